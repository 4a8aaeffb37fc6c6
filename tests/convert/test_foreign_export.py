"""Exports of public dual encoders: what ONNX Runtime computes is what torch computes, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.models import published
from tests.support_models import assert_unit, draw_nothing, picture

import vse
from vse.convert.onnx_export import export_onnx
from vse.errors import InputError
from vse.models.coefficients import coefficients_of
from vse.models.config import PoolingConfig
from vse.models.dual_model import with_pooling
from vse.models.inspection import inspect_folder
from vse.models.onnx import OnnxModel

TOLERANCE = 1e-4
PICTURES = [picture(seed, 30 + 13 * seed, 50 - 3 * seed) for seed in range(5)]
TEXTS = [*published.CAPTIONS, "dog", "Snow  and ICE, 2024 …", "a very long sentence " * 40]


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """One thread, no picture in the card."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Torch models of both families."""
    folder = tmp_path_factory.mktemp("public")
    for family in ("clip", "siglip"):
        published.save_transformers(folder / family, family)
    return {family: vse.load(folder / family, threads=1) for family in ("clip", "siglip")}


@pytest.fixture(scope="module")
def exports(originals, tmp_path_factory):
    """Exports by family and precision, each made once."""
    made: dict[tuple[str, str], Path] = {}

    def get(family: str, precision: str = "fp32") -> Path:
        if (family, precision) not in made:
            folder = tmp_path_factory.mktemp("export") / family
            export_onnx(originals[family], folder, precision=precision)
            made[family, precision] = folder
        return made[family, precision]

    return get


def mean_cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float((first * second).sum(axis=1).mean())


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_exported_dual_encoder_agrees_with_torch(family, originals, exports):
    """Images of any size and texts of any length, alone and in batches."""
    model, exported = originals[family], vse.load(exports(family), threads=1)
    assert isinstance(exported, OnnxModel)
    assert exported.fingerprint() == model.fingerprint()
    images, texts = exported.encode_images(PICTURES, batch_size=2), exported.encode_texts(TEXTS, batch_size=3)
    assert_unit(images, len(PICTURES), model.embed_size)
    np.testing.assert_allclose(images, model.encode_images(PICTURES), atol=TOLERANCE)
    np.testing.assert_allclose(texts, model.encode_texts(TEXTS), atol=TOLERANCE)
    np.testing.assert_allclose(exported.encode_texts(TEXTS[1:2]), texts[1:2], atol=TOLERANCE)
    can = exported.capabilities
    assert (can.images, can.texts, can.videos, can.evidence, can.features) == (True, True, True, False, False)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_exported_dual_encoder_agrees_in_fewer_bits(precision, originals, exports):
    """Its fingerprint has the precision."""
    model, exported = originals["siglip"], vse.load(exports("siglip", precision), threads=1)
    assert exported.fingerprint() == f"{model.fingerprint()}-{precision}"
    assert mean_cosine(exported.encode_images(PICTURES), model.encode_images(PICTURES)) > 0.99
    assert mean_cosine(exported.encode_texts(TEXTS), model.encode_texts(TEXTS)) > 0.99


def test_exported_dual_encoder_stays_foreign(exports):
    """No coefficients of ours, and the report says so."""
    folder = exports("siglip")
    assert coefficients_of(folder) is None
    report = inspect_folder(folder)
    assert (report.runtime, report.foreign, report.confidence) == ("onnx", True, None)
    assert report.capabilities == vse.load(folder).capabilities


def test_exported_dual_encoder_needs_no_torch(exports, originals):
    """Neither torch nor transformers is imported."""
    code = (
        "import sys, json; sys.modules.update(torch=None, transformers=None, open_clip=None, safetensors=None);"
        "import vse; model = vse.load(sys.argv[1]);"
        "print(json.dumps(model.encode_texts(sys.argv[2:]).tolist()))"
    )
    command = [sys.executable, "-c", code, str(exports("siglip")), *TEXTS[:3]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), originals["siglip"].encode_texts(TEXTS[:3]), atol=TOLERANCE)


class TestAddedPooling:
    """A pooling over patch tokens beside the model's own."""

    @pytest.mark.parametrize("family", ["clip", "siglip"])
    def test_added_pooling_starts_as_the_published_model(self, family, originals):
        """Exactly: its weight is 0."""
        model = originals[family]
        pooled = with_pooling(model, PoolingConfig(name="gpo")).eval()
        np.testing.assert_array_equal(pooled.encode_images(PICTURES), model.encode_images(PICTURES))
        np.testing.assert_array_equal(pooled.encode_texts(TEXTS), model.encode_texts(TEXTS))
        assert pooled.fingerprint() != model.fingerprint()

    def test_added_pooling_is_saved_and_exported(self, originals, tmp_path):
        """After a step of training, torch, its copy and the export agree, and differ from the published model."""
        pooled = with_pooling(originals["siglip"], PoolingConfig(name="gpo")).eval()
        with torch.no_grad():
            pooled.image_encoder.gate.fill_(0.7)
        vectors = pooled.encode_images(PICTURES)
        assert np.abs(vectors - originals["siglip"].encode_images(PICTURES)).max() > 1e-3
        pooled.save(tmp_path / "saved")
        np.testing.assert_array_equal(vse.load(tmp_path / "saved").encode_images(PICTURES), vectors)
        export_onnx(pooled, tmp_path / "export")
        exported = vse.load(tmp_path / "export", threads=1)
        np.testing.assert_allclose(exported.encode_images(PICTURES), vectors, atol=TOLERANCE)
        assert not exported.capabilities.evidence

    def test_own_pooling_changes_nothing(self, originals):
        """The same object comes back."""
        assert with_pooling(originals["clip"], PoolingConfig(name="own")) is originals["clip"]

    def test_added_pooling_needs_a_public_model(self, originals, tmp_path):
        """Models of ours have theirs; those of open_clip give no patches."""
        from tests.support_models import build

        with pytest.raises(InputError, match="this is another model"):
            with_pooling(build(), PoolingConfig(name="gpo"))
        published.save_open_clip(tmp_path / "open_clip")
        with pytest.raises(InputError, match="open_clip"):
            with_pooling(vse.load(tmp_path / "open_clip"), PoolingConfig(name="gpo"))

"""What a model declares is what it does, and what ``vse inspect`` reports from its folder alone."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
import torch
from tests.hgr.support import model as hgr_model
from tests.models.test_encode_videos import frames_model, seen
from tests.support_foreign import FOREIGN, foreign_copy
from tests.support_models import build, draw_nothing, grid_config, word_tokenizer

import vse
from vse.convert.onnx_export import export_onnx
from vse.errors import InputError
from vse.hgr import HGRConfig, HGRModel
from vse.inputs.preprocessing import load_pixels
from vse.models import Capabilities, coefficients_of, is_foreign
from vse.models.coefficients import FILE, shipped_coefficients
from vse.models.config import PoolingConfig
from vse.models.inspection import inspect_folder
from vse.models.protocols import NO_EVIDENCE, PairScorer
from vse.models.sources import MODELS, NAMES
from vse.pooling import create_pooling, list_poolings
from vse.pooling.functional import has_contributions
from vse.pooling.registry import pooling_builder

IMAGES = Capabilities(images=True, texts=True, videos=True, evidence=True, features=True)
FEATURES = Capabilities(images=False, texts=True, videos=False, evidence=False, features=True)
OPTIONS = {"k-max": {"k": 3}, "top-percent": {"percent": 40}}


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    draw_nothing(monkeypatch)


def without_vocabulary():
    model = build(grid_config())
    model.tokenizer = None
    return model


TORCH = {
    "grid": (lambda: build(grid_config()), IMAGES),
    "grid without ranks": (lambda: build(grid_config(pooling="gem")), IMAGES._replace(evidence=False)),
    "grid without words": (without_vocabulary, IMAGES._replace(texts=False)),
    "region": (build, FEATURES),
    "frames": (lambda: frames_model(None), FEATURES),
    "frames of a backbone": (lambda: frames_model(seen()), FEATURES._replace(videos=True)),
}


@pytest.mark.parametrize("kind", TORCH)
def test_capabilities_of_torch_models_and_their_folders(kind, tmp_path):
    """The loaded model and the report of its folder agree."""
    make, expected = TORCH[kind]
    model = make()
    assert model.capabilities == expected
    folder = model.save(tmp_path / "model")
    assert vse.load(folder).capabilities == expected
    report = inspect_folder(folder)
    assert report.capabilities == expected
    assert report.to_json()["capabilities"] == expected._asdict()
    assert report.foreign is report.to_json()["foreign"] is False


@pytest.mark.parametrize("kind", ["grid", "grid without ranks", "region"])
def test_capabilities_of_exports(kind, tmp_path):
    """An export takes either images or features."""
    make, expected = TORCH[kind]
    export_onnx(make(), tmp_path / "out")
    expected = expected._replace(features=not expected.images)
    assert vse.load(tmp_path / "out").capabilities == inspect_folder(tmp_path / "out").capabilities == expected


def test_capabilities_of_pair_scorer(tmp_path):
    """Features and texts, no single embedding to explain."""
    assert hgr_model().capabilities == FEATURES._replace(texts=False)
    tokenizer = word_tokenizer()
    config = HGRConfig(feature_size=7, vocabulary_size=tokenizer.vocab_size, word_size=5, embed_size=12)
    model = HGRModel(config, tokenizer)
    assert isinstance(model, PairScorer)
    assert model.capabilities == inspect_folder(model.save(tmp_path / "hgr")).capabilities == FEATURES


@pytest.mark.parametrize("kind", ["grid", "grid without ranks", "region"])
def test_evidence_capability_is_what_cell_contributions_does(kind):
    """Contributions that add up to the embedding, or one line that says why there are none."""
    model = TORCH[kind][0]()
    image = np.zeros((40, 40, 3), np.uint8)
    image[:, :20] = 200
    how = build(grid_config()).preprocessing
    pixels = load_pixels(image, how)[None]
    if model.capabilities.evidence:
        shares, grid = model.cell_contributions(pixels)
        assert len(shares) == grid[0] * grid[1]
        np.testing.assert_allclose(shares.sum(axis=0), model.embed_images(pixels)[0], atol=1e-5)
    else:
        with pytest.raises(InputError) as caught:
            model.cell_contributions(pixels)
        assert str(caught.value) == NO_EVIDENCE


@pytest.mark.parametrize("name", list_poolings())
def test_configuration_knows_which_poolings_weight_ranks(name):
    """Without torch, as the pooling itself says."""
    takes_size = "dim" in inspect.signature(pooling_builder(name)).parameters
    options = OPTIONS.get(name, {}) | ({"dim": 8} if takes_size else {})
    pooling = create_pooling(name, **options)
    assert PoolingConfig(name=name, options=options).weights_ranks == has_contributions(pooling)


def test_data_dependent_weights_have_no_contributions():
    """Neither for the configuration nor for the pooling."""
    options = {"dim": 8, "data_dependent": True}
    with torch.random.fork_rng(devices=[]):
        pooling = create_pooling("gpo", **options)
    assert PoolingConfig(options=options).weights_ranks is has_contributions(pooling) is False


@pytest.mark.parametrize(
    ("files", "foreign"),
    [
        ({}, False),
        ({"config.json": {}}, False),
        ({"config.json": {"runtime": "torch", "vse_version": "0.1.0"}}, False),
        ({"config.json": {"runtime": "torch"}, "open_clip_config.json": {}}, False),
        ({"config.json": {"runtime": "onnx", "source": {}}, "image.onnx": {}}, False),
        ({"config.json": {"runtime": "torch", "foreign": True}}, False),
        ({"config.json": {"runtime": "torch", "foreign": FOREIGN}}, True),
        ({"config.json": {"runtime": "onnx", "source": {"foreign": {}}}}, True),
        ({"config.json": {"foreign": FOREIGN}}, True),
        ({"config.json": {"architectures": ["CLIPModel"], "model_type": "clip"}}, True),
        ({"open_clip_config.json": {}}, True),
        ({"modules.json": []}, True),
        ({"vision_model.onnx": {}, "text_model.onnx": {}}, True),
        ({"onnx/vision_model.onnx": {}, "onnx/text_model.onnx": {}}, True),
    ],
    ids=str,
)
def test_foreign_models_have_no_bundled_coefficients(tmp_path, files, foreign):
    """Recognised by their files; coefficients of their own count."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    assert is_foreign(tmp_path) is foreign
    assert coefficients_of(tmp_path) == (None if foreign else shipped_coefficients())
    own = {"intercept": -1.0, "collection": 0.5, "query": 0.5, "items": 1.0, "source": "a test"}
    (tmp_path / FILE).write_text(json.dumps(own))
    found = coefficients_of(tmp_path)
    assert found is not None
    assert found.source == "a test"


def test_bundled_hub_and_unknown_models_are_not_foreign(tmp_path):
    """They keep the bundled coefficients, or their own."""
    (tmp_path / "config.json").write_text("not JSON")
    for source in (*NAMES, *(MODELS / name for name in NAMES), "owner/model", tmp_path / "nowhere", tmp_path):
        assert not is_foreign(source)
        assert coefficients_of(source) is not None


def test_inspection_of_a_foreign_export(tmp_path):
    """Its source is no configuration of ours, and its results have no confidence."""
    export_onnx(build(grid_config()), tmp_path / "ours")
    folder = foreign_copy(tmp_path / "ours", tmp_path / "theirs")
    report = inspect_folder(folder)
    assert (report.foreign, report.confidence, report.towers) == (True, None, ())
    assert report.capabilities == vse.load(folder).capabilities == IMAGES._replace(evidence=False, features=False)

"""The weights of an export beside its towers: mapped, named after the model, and never those of another."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from tests.support_models import build, draw_nothing, feature_sets, region_config

import vse
from vse.convert.onnx_export import export_onnx
from vse.errors import InputError
from vse.models.onnx import WEIGHTS_ENDING

TEXTS = ["a dog runs in the snow", "two cats sleep"]


def large(seed: int):
    return build(region_config(hidden_size=64), seed=seed)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model whose weights are large enough to be mapped, and its export."""
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        folder = tmp_path_factory.mktemp("weights") / "out"
        report = export_onnx(large(1), folder)
    return large(1), folder, report


def test_weight_files_carry_fingerprint(exported):
    """One file for each tower, with the fingerprint in its name; the report counts both files of a tower."""
    model, folder, report = exported
    files = {path.name for path in folder.glob(f"*{WEIGHTS_ENDING}")}
    assert files == {f"{tower}-{model.fingerprint()}{WEIGHTS_ENDING}" for tower in ("image", "text")}
    for tower in ("image", "text"):
        weights = folder / f"{tower}-{model.fingerprint()}{WEIGHTS_ENDING}"
        assert report.bytes[tower] == (folder / f"{tower}.onnx").stat().st_size + weights.stat().st_size


def test_export_folder_can_be_moved(exported, tmp_path):
    """They are found beside the tower, wherever that is and whatever the current folder; results stay torch's."""
    model, folder, _ = exported
    moved = shutil.copytree(folder, tmp_path / "elsewhere" / "model")
    loaded = vse.load(moved, threads=1)
    sets = feature_sets(3, 5)
    np.testing.assert_allclose(loaded.encode_images(sets), model.encode_images(sets), atol=1e-4)
    np.testing.assert_allclose(loaded.encode_texts(TEXTS), model.encode_texts(TEXTS), atol=1e-4)


@pytest.mark.parametrize("left", [None, 100])
def test_missing_or_truncated_weights_fail_in_one_line(exported, tmp_path, left):
    """Said when the tower is needed, with what to do."""
    folder = shutil.copytree(exported[1], tmp_path / "model")
    (weights,) = folder.glob(f"text-*{WEIGHTS_ENDING}")
    if left is None:
        weights.unlink()
    else:
        os.truncate(weights, left)
    with pytest.raises(
        InputError, match=r"text-.*\.onnx\.data (cannot be read|is damaged).*export the model again"
    ) as caught:
        vse.load(folder).encode_texts(TEXTS)
    assert "\n" not in str(caught.value)


def test_new_export_removes_old_weights(exported, tmp_path, monkeypatch):
    """Exporting another model into the same folder removes what the first one mapped."""
    draw_nothing(monkeypatch)
    folder = shutil.copytree(exported[1], tmp_path / "model")
    export_onnx(large(2), folder)
    assert all(large(2).fingerprint() in path.name for path in folder.glob(f"*{WEIGHTS_ENDING}"))
    np.testing.assert_allclose(vse.load(folder).encode_texts(TEXTS), large(2).encode_texts(TEXTS), atol=1e-4)

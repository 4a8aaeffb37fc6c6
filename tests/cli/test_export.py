"""``vse export``."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from tests.support_models import CAPTIONS, build, feature_sets

import vse


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vse", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return build().save(tmp_path_factory.mktemp("model") / "tiny")


def test_export_end_to_end(saved, tmp_path):
    """The export is compared with torch, reported as JSON, and encodes like its source."""
    done = run("export", saved, tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["precision"] == "fp32"
    assert all(tower["max_difference"] <= 1e-4 for tower in report["agreement"].values())
    sets = feature_sets(4, 9)
    exported, original = vse.load(tmp_path / "out"), vse.load(saved)
    np.testing.assert_allclose(exported.encode_images(sets), original.encode_images(sets), atol=1e-4)
    np.testing.assert_allclose(exported.encode_texts(CAPTIONS), original.encode_texts(CAPTIONS), atol=1e-4)
    inspected = run("inspect", tmp_path / "out")
    assert inspected.returncode == 0, inspected.stderr
    assert "onnx, fp32" in inspected.stdout

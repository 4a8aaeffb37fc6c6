"""``vse eval --features``: stored cells in the place of images."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tests.support_models import SIDE, bigru_config, build, draw_nothing, grid_config

from vse.data import open_data
from vse.data.scenes import write_scenes
from vse.evaluation.embeddings import Embeddings
from vse.inputs import Vocabulary
from vse.models.extract import extract_features


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Scenes and a grid model that knows their words."""
    draw_nothing(monkeypatch)
    write_scenes(tmp_path / "scenes", train=4, dev=0, test=4, size=40)
    tokenizer = Vocabulary.build(open_data(tmp_path / "scenes", "train").captions, min_count=1).tokenizer(20)
    model = build(grid_config(), bigru_config(vocabulary_size=tokenizer.vocab_size), tokenizer=tokenizer)
    model.save(tmp_path / "model")
    return tmp_path, model


def evaluate(place, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vse", "eval", "model", "--data", "scenes", "--samples", "5", *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)


def test_eval_with_stored_features(place):
    """The embeddings are those from images, up to the rounding of float16."""
    home, model = place
    extract_features(open_data(home / "scenes", "test").images, model.image_encoder.backbone, home / "store", size=SIDE)
    for name, more in (("pictures", ()), ("stored", ("--features", "store"))):
        done = evaluate(home, *more, "--save-embeddings", name)
        assert done.returncode == 0, done.stderr
    pictures, stored = (Embeddings.load(next((home / name).iterdir())) for name in ("pictures", "stored"))
    np.testing.assert_allclose(stored.images, pictures.images, atol=1e-2)
    np.testing.assert_array_equal(stored.texts, pictures.texts)


def test_eval_refuses_features_of_another_backbone(place):
    """The width fits, the weights do not: one line."""
    home, _ = place
    other = build(grid_config(), seed=77).image_encoder.backbone
    extract_features(open_data(home / "scenes", "test").images, other, home / "store", size=SIDE)
    done = evaluate(home, "--features", "store")
    assert done.returncode == 1
    assert "features of another backbone" in done.stderr.splitlines()[-1]

"""What the previous version wrote is opened, resumed and searched by this one.

``previous/`` was written by version 0.1 before its modules were merged: a run that was interrupted, a saved model, an
export, a collection, features of images and of videos. ``expected.json`` holds what that version computed from them.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vse
from vse.cli.main import main
from vse.errors import InputError
from vse.index.filters import Filter

PREVIOUS = Path(__file__).with_name("previous")


@pytest.fixture
def previous(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A writable copy, which is the working directory: the recipe names its data by a relative path."""
    folder = tmp_path / "previous"
    shutil.copytree(PREVIOUS, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return json.loads((PREVIOUS / "expected.json").read_text())


def answer(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        assert main([*arguments, "--json"]) == 0
    return json.loads(out.getvalue())


def test_previous_run_resumes_to_the_same_model(previous, expected):
    """The interrupted run ends with the weights and the metrics that the previous version reached."""
    answer("train", "recipe.toml", "--into", "run")
    assert vse.load("run/best").fingerprint() == expected["final_fingerprint"]
    last = (previous / "run/metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last) == expected["final_metrics"]


@pytest.mark.parametrize("folder", ["model", "export"])
def test_previous_model_gives_the_same_embeddings(previous, expected, folder):
    model = vse.load(folder)
    assert model.fingerprint() == expected[f"{folder}_fingerprint"]
    np.testing.assert_allclose(model.encode_texts(["a dog runs in the snow"]), expected["texts"], atol=1e-5)
    np.testing.assert_allclose(model.encode_images(["images/0.png"]), expected["images"], atol=1e-5)


def test_previous_collection_gives_the_same_results(previous, expected):
    found = answer("search", "collection", "a dog runs in the snow", "--model", "export")
    rows = expected["search"]["results"]
    assert [row["path"] for row in found["results"]] == [row["path"] for row in rows]
    for ours, theirs in zip(found["results"], rows, strict=True):
        assert ours["id"] == theirs["id"]
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-5)
        assert ours["confidence"] == pytest.approx(theirs["confidence"], rel=1e-3)


def test_previous_collection_is_indexed_further(previous):
    """Its folder is found at its new place, words are added to it, and it verifies afterwards."""
    before = answer("collection", "info", "collection")
    with closing(vse.open_collection("collection")) as reader:  # it has no words yet
        assert reader.word_counts(["png"]) == {"png": 0}
        with pytest.raises(InputError, match="before words were indexed"):
            reader.search(np.eye(1, reader.info().dimensions, dtype=np.float32)[0], 3, where=Filter(name="png"))
    report = answer("index", "images", "--into", "collection", "--model", "export")
    assert report["folders"][0]["moved"] == 6  # the copy lies elsewhere, and the old folder does not exist
    assert report["items"] == before["items"]
    assert answer("collection", "verify", "collection")["ok"]
    with closing(vse.open_collection("collection")) as reader:
        assert reader.word_counts(["png"]) == {"png": report["items"]}  # old files and new ones


def test_previous_features_are_read_and_kept(previous):
    """Features of images and videos are found complete: extracting them again computes nothing."""
    from tests.clip_support import tiny

    from vse.data import FeatureStore
    from vse.data.media import find_videos
    from vse.models.extract import extract_features, find_images

    for video in find_videos("videos").paths:  # Git does not keep modification times
        features = Path("video_features", f"{video.stem}.npy")
        os.utime(features, ns=(video.stat().st_mtime_ns,) * 2)
    store = FeatureStore.open("features")
    assert len(store.ids) == 6
    images = extract_features(find_images("images"), tiny(), "features", size=64, name="caffe-resnet")
    videos = extract_features(find_videos("videos"), tiny(), "video_features", frames=4, size=64, name="caffe-resnet")
    assert (images.computed, videos.computed) == (0, 0)

"""``vse demo`` through the real command."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import vse
from vse.demo.photos import index_samples
from vse.index.open import open_collection
from vse.progress import SilentProgress


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A quick demo with one seed: its folder and its JSON."""
    out = tmp_path_factory.mktemp("demo") / "demo folder"
    command = [sys.executable, "-m", "vse", "demo", "--quick", "--seeds", "1", "--json", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


@pytest.mark.slow
def test_demo_trains_and_compares_both_methods(demo):
    """The JSON holds both methods, curves of both towers and plots, and is also in the folder."""
    out, result = demo
    assert result == json.loads((out / "result.json").read_text())
    assert result["gallery"] == {"scenes": 60, "captions": 300}
    assert [label.split()[0] for label in result["methods"]] == ["VSE++", "VSE∞"]
    for method in result["methods"].values():
        assert set(method["seeds"]) == {"1"}
        for way in ("i2t", "t2i"):
            assert 0 <= method["mean"][way]["r1"] <= method["mean"][way]["r10"] <= 100
    assert {curve["tower"] for curve in result["curves"]} == {"image", "text"}
    assert Path(result["scenes"]) == out / "scenes.vse"
    for key in ("picture", "training_picture"):
        assert Path(result[key]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_demo_saves_calibrated_model(demo):
    """The saved model encodes images and texts, and its confidence is fitted to it."""
    out, result = demo
    model = vse.load(result["model"])
    images = sorted((out / "scenes" / "images").glob("test_*.png"))[:4]
    scores = model.encode_images(images) @ model.encode_texts(["a red circle", "two blue stars"]).T
    assert scores.shape == (4, 2)
    fitted = json.loads((Path(result["model"]) / "confidence.json").read_text())
    assert fitted["source"] == f"scenes val, 40 images; model {model.fingerprint()}"


@pytest.mark.slow
def test_second_demo_skips_finished_steps_and_tests_page(demo):
    """Nothing is generated, trained or encoded again. Without a terminal the page is requested once and stopped."""
    out, result = demo
    before = {path: path.stat().st_mtime_ns for path in out.rglob("metrics.jsonl")}
    command = [sys.executable, "-m", "vse", "demo", "--quick", "--seeds", "1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "result.json").read_text())["methods"] == result["methods"]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("metrics.jsonl")} == before
    assert "gallery: 0 files to read, 60 unchanged" in done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("the page: http://127.0.0.1:")
    assert f"'vse serve {result['collection']}' serves it" in last
    with closing(open_collection(result["scenes"])) as collection:
        assert (collection.info().files, collection.info().captions) == (60, 300)


@pytest.mark.slow
def test_demo_ends_on_photographs(demo):
    """The page is over the photographs of a package beside some scenes, and finds the cat among them."""
    pytest.importorskip("skimage")
    out, result = demo
    assert Path(result["collection"]) == out / "photos.vse"
    with closing(open_collection(result["collection"])) as collection:
        assert collection.info().files == 12 + 24
        assert vse.search(collection, "a cat", 1).results[0].path.endswith("photographs/chelsea.png")


def test_demo_without_photographs_shows_scenes(monkeypatch, tmp_path):
    """A note says what to install; nothing is written."""
    notes: list[str] = []
    progress = SilentProgress()
    monkeypatch.setattr(progress, "note", notes.append, raising=False)
    monkeypatch.setattr("vse.demo.photos.find_spec", lambda name: None)
    assert index_samples(tmp_path, [], progress) is None
    assert 'pip install ./packages/photo ".[search,samples]"' in notes[0]
    assert list(tmp_path.iterdir()) == []

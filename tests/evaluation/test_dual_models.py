"""Public dual encoders under the protocols of the paper: torch, an export, and a pair of ONNX files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.data.support import entry, write_karpathy
from tests.models.published import save_transformers, save_transformers_js

import vse
from vse.cli.main import main
from vse.convert.onnx_export import export_onnx
from vse.data import open_data
from vse.evaluation import retrieval_metrics

pytest.importorskip("transformers")
COLOURS = ("red", "green", "blue", "black", "white", "grey", "pink", "brown")
QUICK = ("--samples", "2", "--json")


def write_test_split(folder: Path, count: int, captions: int = 1) -> Path:
    """A test split in Karpathy's layout with ``count`` tiny images, ids as COCO has them."""
    (folder / "images").mkdir(parents=True)
    generator = np.random.default_rng(0)
    entries = []
    for number in range(count):
        pixels = Image.fromarray(generator.integers(0, 255, (4, 4, 3), dtype=np.uint8))
        packed = io.BytesIO()
        pixels.save(packed, "bmp")
        name = f"{number}.bmp"
        (folder / "images" / name).write_bytes(packed.getvalue())
        words = [f"{COLOURS[(number + n) % 8]} {COLOURS[number // 8 % 8]} {number // 64}" for n in range(captions)]
        sentids = [number * captions + n for n in range(captions)]
        entries.append(entry(name, "test", *words, cocoid=10_000 + number, sentids=sentids))
    return write_karpathy(folder / f"dataset_{folder.name}.json", entries).parent


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """The output of ``vse eval … --json``, which must succeed."""
    code = main(["eval", *map(str, arguments), *QUICK])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


@pytest.fixture(scope="module")
def dual_models(tmp_path_factory):
    """One CLIP as torch, as an export and as the pair of files of transformers.js."""
    folder = tmp_path_factory.mktemp("models")
    save_transformers(folder / "clip")
    save_transformers_js(folder / "pair")
    export_onnx(vse.load(folder / "clip"), folder / "export")
    return folder


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_test_split(folder / "coco", 5000)
    write_test_split(folder / "f30k", 1000)
    write_test_split(folder / "small", 40, captions=2)
    return folder


def test_an_exported_clip_under_the_protocols_of_coco(dual_models, datasets, tmp_path, monkeypatch, capsys):
    """Five folds of 1K and all 5K, as ``auto`` takes them; the published figures beside, with what differs."""
    monkeypatch.chdir(tmp_path)
    saved = ("--save-embeddings", "vectors")
    found = evaluated(capsys, dual_models / "export", "--data", datasets / "coco", "--against", "paper", *saved)
    names = [each["protocol"] for each in found["results"]]
    assert names == ["coco-1k-5fold", "coco-5k"]
    for result in found["results"]:
        assert result["card"]["models"][0]["image"] == "dual"
        assert result["card"]["models"][0]["backbone"] == "clip"
        assert result["published"]["differences"]["image"][0] == "dual"
    vectors = next((tmp_path / "vectors").iterdir())
    first = evaluated(capsys, "--from-embeddings", vectors, "--protocol", "coco-1k-first-fold")
    assert first["results"][0]["card"]["gallery_images"] == [1000]


@pytest.mark.parametrize("kind", ["clip", "export", "pair"])
def test_a_dual_model_in_any_runtime_under_the_protocol_of_flickr30k(
    dual_models, datasets, tmp_path, monkeypatch, capsys, kind
):
    """The figures are those of the vectors of the model itself, and equal in all runtimes up to rounding."""
    monkeypatch.chdir(tmp_path)
    options = ("--data", datasets / "f30k", "--protocol", "flickr30k-1k", "--against", "paper")
    result = evaluated(capsys, dual_models / kind, *options)["results"][0]
    assert result["protocol"] == "flickr30k-1k"
    assert "published" in result
    data, model = open_data(datasets / "f30k", "test", use="files"), vse.load(dual_models / "clip")
    images, texts = model.encode_images(list(data.images)), model.encode_texts(data.captions)
    expected = retrieval_metrics(images, texts, data.caption_to_image).rsum
    assert result["metrics"]["rsum"] == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize("kind", ["clip", "export", "pair"])
def test_a_dual_model_on_cxc_and_eccv_caption(dual_models, datasets, tmp_path, monkeypatch, capsys, kind):
    """All tasks of both, on 40 images with two captions each."""
    monkeypatch.chdir(tmp_path)
    pairs = {
        "sits": ("caption,image", [(f"x:sentid:{j}", f"{j % 6}.bmp") for j in range(12)]),
        "sis": ("image1,image2", [(f"{i}.bmp", f"{i + 1}.bmp") for i in range(12)]),
        "sts": ("caption1,caption2", [(f"x:sentid:{j}", f"x:sentid:{j + 7}") for j in range(12)]),
    }
    for task, (head, rated) in pairs.items():
        lines = [f"{left},{right},{row % 6},drawn" for row, (left, right) in enumerate(rated)]
        (tmp_path / f"{task}_test.csv").write_text("\n".join([f"{head},agg_score,sampling_method", *lines]) + "\n")
    (tmp_path / "eccv_image_to_caption.json").write_text(json.dumps({"10000": [0, 1, 7], "10003": [15]}))
    (tmp_path / "eccv_caption_to_image.json").write_text(json.dumps({"0": [10000, 10002], "16": [10003]}))
    ids = datasets / "small/dataset_small.json"
    tasks = ("--cxc", ".", "--eccv", ".", "--coco-ids", ids)
    found = evaluated(capsys, dual_models / kind, "--data", datasets / "small", *tasks)
    assert found["results"][0]["protocol"] == "all"
    assert found["cxc"][0]["i2t"]["queries"] == 40
    assert (found["eccv"][0]["i2t"]["queries"], found["eccv"][0]["t2i"]["queries"]) == (2, 2)
    assert found["eccv"][0]["card"]["models"][0]["text"] == "dual"


def test_runtimes_of_a_dual_model_can_be_compared_and_averaged(dual_models, datasets, tmp_path, monkeypatch, capsys):
    """Three members of one test."""
    monkeypatch.chdir(tmp_path)
    models = [dual_models / kind for kind in ("clip", "export", "pair")]
    found = evaluated(capsys, *models, "--data", datasets / "small", "--ensemble", "--compare")
    assert len({round(each["metrics"]["rsum"]) for each in found["results"]}) == 1
    assert evaluated(capsys, models[2], "--data", datasets / "small", "--split", "test", "--markdown", "table.md")
    assert "| pair" in (tmp_path / "table.md").read_text()

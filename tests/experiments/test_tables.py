"""Every table on images as its command runs it, with a tiny recipe in the place of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from tests.support_models import picture
from tests.training.support import tiny_values, write_pairs, write_toml

from vse.cli.main import main
from vse.data import FeatureStore, attach, open_data
from vse.encoders.backbones import CaffeResNet
from vse.experiments import EXPERIMENTS
from vse.experiments.image_table import project_features, read_about
from vse.inputs.vocabulary import Vocabulary
from vse.models.extract import extract_features, find_images
from vse.progress import SilentProgress
from vse.training.result import TrainingResult

ROWS = {
    "headline": 5,
    "aggregators": 6,
    "poolings": 18,
    "either-side": 4,
    "augmentation": 5,
    "sequence-model": 2,
    "per-dimension": 2,
    "data-dependent": 2,
    "gpo-start": 2,
    "ensemble": 2,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Data, a recipe, and a folder of runs that the experiments share."""
    folder = tmp_path_factory.mktemp("tables")
    write_pairs(folder / "data", train=32, dev=8)
    values = tiny_values(folder / "data", schedule={"epochs": 1, "batch_size": 16, "decay_epochs": 0})
    values["model"]["image"]["pooling"] = values["model"]["text"]["pooling"] = "gpo"
    write_toml(folder / "tiny.toml", values)
    return folder


@pytest.fixture(autouse=True)
def no_pictures_of_runs(monkeypatch):
    """They take longer than a tiny training; the images of the experiment are drawn."""
    monkeypatch.setattr(TrainingResult, "draw", lambda *_: None)


def run(place, name, *options):
    given = ["--data", str(place / "data"), "--recipe", str(place / "tiny.toml"), "--runs", str(place / "runs")]
    code = main(["experiment", name, "--quick", "--jobs", "1", *given, "--out", str(place / name), *options])
    return code, json.loads((place / name / "result.json").read_text()) if code == 0 else None


def own_recipe(place, row):
    """What the run of a row says of itself."""
    return json.loads((place / "runs" / row["seeds"][0]["folder"] / "run.json").read_text())["recipe"]


@pytest.mark.parametrize("name", ROWS)
def test_image_table_trains_ranks_and_compares_rows(place, name):
    """All rows are trained and ranked, claims compare rows of the table, text and images are written."""
    code, result = run(place, name)
    assert code == 0
    labels = [row["label"] for row in result["rows"]]
    assert len(labels) == len(set(labels)) == ROWS[name]
    assert all(0 <= row["mean"]["rsum"] <= 600 for row in result["rows"])
    assert result["claims"]
    assert all(part in labels for claim in result["claims"] for part in claim["claim"].split(" above "))
    table = (place / name / "table.md").read_text()
    assert table.startswith("|  | seeds | i→t R@1 |")
    assert all(f"| {label}" in table for label in labels)
    assert all((place / name / f"{picture}.png").stat().st_size for picture in ("seeds", "dev"))


def test_k_max_search_selects_on_dev(place):
    """The chosen pair is the one with the highest rsum on dev, and the others are reported too."""
    code, result = run(place, "k-max-search")
    assert code == 0
    dev = np.array(result["dev_rsum"])
    assert dev.shape == (len(result["image_ks"]), len(result["text_ks"]))
    row, column = np.unravel_index(dev.argmax(), dev.shape)
    assert result["best"] == {
        "image": result["image_ks"][row],
        "text": result["text_ks"][column],
        "dev_rsum": dev.max(),
    }


def test_coefficients_experiment_draws_both_sides(place):
    """The curves of both sides are given and drawn."""
    code, result = run(place, "coefficients")
    assert code == 0
    assert {curve["tower"] for curve in result["curves"]} == {"image", "text"}
    assert (place / "coefficients/coefficients.png").stat().st_size


def test_main_table_trains_named_recipes(place):
    """``--recipe`` names a section of the paper's table: both of its recipes are trained, and nothing else."""
    family = "coco-butd-region-bigru"
    Vocabulary.build(open_data(place / "data", "train").captions, min_count=1).save(place / "words.json")
    small = [f"data.vocabulary={place / 'words.json'}", "model.embed_size=16", "model.text.word_size=8"]
    small += ["model.image.feature_size=16", "model.image.hidden_size=8", "schedule.batch_size=16", "run.threads=1"]
    options = [part for change in small for part in ("--set", change)]
    code, result = run(place, "main-table", "--recipe", family, "--seeds", "0", *options)
    assert code == 0
    told = {row["label"]: (row["recipe"], own_recipe(place, row)) for row in result["rows"]}
    assert {label: name for label, (name, _) in told.items()} == {
        "VSE++": f"{family}-vse-plus-plus",
        "VSE∞": f"{family}-vse-infinity",
    }
    assert [own["model"]["image"]["pooling"]["name"] for _, own in told.values()] == ["avg", "gpo"]
    assert [claim["claim"] for claim in result["claims"]] == ["VSE∞ above VSE++"]
    assert family in result["title"]


def test_rows_differ_in_what_they_say(place):
    """A run's own record has the pooling and the augmentation that its row is called by."""
    _, result = run(place, "augmentation")
    told = {}
    for row in result["rows"]:
        recipe = own_recipe(place, row)
        sides = (recipe["augmentation"]["image"], recipe["augmentation"]["text"])
        told[row["label"]] = (*sides, recipe["model"]["image"]["pooling"]["name"])
    assert told == {
        "VSE∞, none": ("none", "none", "gpo"),
        "VSE∞, visual": ("drop", "none", "gpo"),
        "VSE∞, visual + text": ("drop", "drop", "gpo"),
        "VSE++, none": ("none", "none", "avg"),
        "VSE++, visual + text": ("drop", "drop", "avg"),
    }


def test_every_table_is_here():
    """An experiment that trains on images has a test."""
    trained = {name for name, entry in EXPERIMENTS.items() if entry.trains}
    assert trained - {"video"} == {*ROWS, "main-table", "k-max-search", "coefficients"}


def test_ensemble_experiment_needs_pairs(place, capsys):
    """Three models cannot be paired."""
    code, _ = run(place, "ensemble", "--seeds", "0,1,2")
    assert code == 1
    assert "3 seeds cannot be paired" in capsys.readouterr().err


def test_projection_keeps_distances(tmp_path):
    """Cells keep their distances: as many directions as values change nothing but the base."""
    rows = []
    (tmp_path / "data").mkdir()
    for number in range(12):
        Image.fromarray(picture(number)).save(tmp_path / "data" / f"{number}.png")
        split = "train" if number < 8 else "dev" if number < 10 else "test"
        rows.append({"path": f"{number}.png", "caption": f"number {number}", "split": split})
    table = tmp_path / "data/table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    backbone = CaffeResNet(blocks=(1, 1, 1, 1), width=4)
    extract_features(find_images(table), backbone, tmp_path / "store", size=64, name="caffe-resnet")
    store = FeatureStore.open(tmp_path / "store")
    size = store.header.channels
    folder = project_features(table, tmp_path / "store", tmp_path, size, SilentProgress())
    assert read_about(folder)["variance_kept"] == pytest.approx(1.0, abs=1e-5)
    before = attach(open_data(table, "test", use="files"), store).images
    after = open_data(folder, "test", use="features")
    assert after.captions == ("number 10", "number 11")
    for number in range(len(before)):
        cells, projected = before[number], after.images[number]
        distances = [np.linalg.norm(each[:, None] - each[None], axis=-1) for each in (cells, projected)]
        np.testing.assert_allclose(distances[0], distances[1], rtol=2e-2, atol=2e-2)
    stamp = (folder / "test_ims.npy").stat().st_mtime_ns
    assert project_features(table, tmp_path / "store", tmp_path, size, SilentProgress()) == folder
    assert (folder / "test_ims.npy").stat().st_mtime_ns == stamp
    assert project_features(table, tmp_path / "store", tmp_path, 2, SilentProgress()) != folder

"""``vse calibrate``, and the commands that use its coefficients."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import pytest
from tests.cli.search_support import error_line, reported
from tests.support_models import SIDE, bigru_config, build, contents, draw_nothing, grid_config

import vse
from vse.cli.main import main
from vse.data import open_data
from vse.data.scenes import write_scenes
from vse.inputs import Vocabulary
from vse.models.coefficients import (
    COEFFICIENT_FILES,
    FILE,
    RELEVANCE_FILE,
    coefficients_of,
    own_relevance,
    shipped_coefficients,
)
from vse.models.extract import extract_features

PICTURES = 32


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Scenes, an untrained model with their vocabulary, its export, and a collection made with the export."""
    home = tmp_path_factory.mktemp("calibrate")
    scenes = home / "scenes"
    write_scenes(scenes, train=4, dev=PICTURES, test=4, size=SIDE)
    tokenizer = Vocabulary.build(open_data(scenes, "dev").captions, min_count=1).tokenizer(20)
    model = build(grid_config(), bigru_config(vocabulary_size=tokenizer.vocab_size), tokenizer=tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        model.save(home / "model")
        reported("calibrate", home / "model", "--data", scenes)
        reported("export", home / "model", home / "export", "--precision", "fp16")
    taken = [[(home / each / name).read_bytes() for name in COEFFICIENT_FILES] for each in ("export", "model")]
    for each in ("model", "export"):
        for name in COEFFICIENT_FILES:
            (home / each / name).unlink()
    reported("index", scenes / "images", "--model", home / "export", "--into", home / "scenes.vse")
    return SimpleNamespace(home=home, scenes=scenes, model=model, index=home / "scenes.vse", taken=taken)


@pytest.fixture
def folder(place, tmp_path):
    """A copy of the model that a test may change."""
    return shutil.copytree(place.home / "model", tmp_path / "model")


@pytest.fixture
def export(place):
    """The export of the collection, without coefficients before and after the test."""
    yield place.home / "export"
    for name in COEFFICIENT_FILES:
        (place.home / "export" / name).unlink(missing_ok=True)


def test_calibrate_writes_coefficients(place, folder):
    """Coefficients are written next to the model, which does not change; a second call writes the same bytes."""
    before = contents(folder)
    found = reported("calibrate", folder, "--data", place.scenes)
    assert found["written"] == str(folder / FILE)
    assert (found["pictures"], found["captions"]) == (PICTURES, 5 * PICTURES)
    assert found["coefficients"] == json.loads((folder / FILE).read_text())
    fingerprint = place.model.fingerprint()
    assert found["coefficients"]["source"] == f"scenes val, {PICTURES} images; model {fingerprint}"
    relevance = found["relevance"]
    assert relevance["written"] == str(folder / RELEVANCE_FILE)
    assert relevance["coefficients"]["source"] == own_relevance(folder).source == found["coefficients"]["source"]
    assert relevance["coefficients"]["references"] == len(own_relevance(folder).vectors) == PICTURES // 2
    written = {name: (folder / name).read_bytes() for name in COEFFICIENT_FILES}
    assert contents(folder) == before | written
    assert vse.load(folder).fingerprint() == fingerprint
    reported("calibrate", folder, "--data", place.scenes)
    assert contents(folder) == before | written


def test_calibrate_with_stored_features(place, folder, tmp_path):
    """The coefficients are close to those from images."""
    backbone = place.model.image_encoder.backbone
    extract_features(open_data(place.scenes, "dev").images, backbone, tmp_path / "store", size=SIDE)
    pictures = reported("calibrate", folder, "--data", place.scenes)
    stored = reported("calibrate", folder, "--data", place.scenes, "--features", tmp_path / "store")
    assert stored["error"] == pytest.approx(pictures["error"], abs=0.02)
    assert stored["results"] == pictures["results"]


def test_calibrate_export(place, export):
    """The coefficients are close to those of its source model."""
    found = reported("calibrate", export, "--data", place.scenes)
    assert coefficients_of(export).source == found["coefficients"]["source"]
    assert place.model.fingerprint() in found["coefficients"]["source"]


def test_search_uses_own_coefficients(place, export):
    """By text and by id; ids and scores do not change, and without the file the defaults are used."""
    queries = [
        ("search", place.index, "a red circle", "-k", 5, "--all"),
        ("search", place.index, "--like", 3, "-k", 5),
    ]
    plain = [reported(*query)["results"] for query in queries]
    reported("calibrate", export, "--data", place.scenes)
    own = [reported(*query)["results"] for query in queries]
    for before, after in zip(plain, own, strict=True):
        assert [(r["id"], r["score"]) for r in before] == [(r["id"], r["score"]) for r in after]
        assert all(b["confidence"] != a["confidence"] for b, a in zip(before, after, strict=True))
    for name in COEFFICIENT_FILES:
        (export / name).unlink()
    assert [reported(*query)["results"] for query in queries] == plain


def test_search_uses_coefficients_of_given_model(place, export, tmp_path):
    """--model gives the folder of the coefficients."""
    moved = shutil.copytree(export, tmp_path / "moved")
    query = ("search", place.index, "a red circle", "-k", 1, "--all")
    plain = reported(*query)["results"][0]["confidence"]
    reported("calibrate", moved, "--data", place.scenes)
    assert reported(*query)["results"][0]["confidence"] == plain
    assert reported(*query, "--model", moved)["results"][0]["confidence"] != plain


def test_search_names_corrupt_coefficients(place, export, capsys):
    """One line that names the file."""
    (export / FILE).write_text('{"intercept": 1.0}')
    line = error_line(capsys, 1, "search", place.index, "a red circle")
    assert str(export / FILE) in line
    assert "vse calibrate" in line


def test_export_copies_coefficients(place):
    """Unchanged, whatever the precision."""
    exported, original = place.taken
    assert exported == original


@pytest.mark.slow
def test_export_removes_stale_coefficients(folder, tmp_path, monkeypatch):
    """Coefficients of a former model would be used for this one."""
    draw_nothing(monkeypatch)
    reported("export", folder, tmp_path / "out")
    for name in COEFFICIENT_FILES:
        (tmp_path / "out" / name).write_text("{}")
    reported("export", folder, tmp_path / "out")
    assert coefficients_of(tmp_path / "out") == shipped_coefficients()
    assert own_relevance(tmp_path / "out") is None


def test_inspect_reports_calibration(place, folder, capsys):
    """What the coefficients were fitted on, or how to fit them."""
    assert main(["inspect", str(folder)]) == 0
    assert "default ('vse calibrate' fits it to the model)" in capsys.readouterr().out
    assert reported("inspect", folder)["confidence"] is None
    source = reported("calibrate", folder, "--data", place.scenes)["coefficients"]["source"]
    assert reported("inspect", folder)["confidence"] == source
    assert main(["inspect", str(folder)]) == 0
    assert f"fitted on {source}" in capsys.readouterr().out


def test_calibrate_prints_text(place, folder, capsys):
    """Sizes, hit rates, both errors and the file."""
    assert main(["calibrate", str(folder), "--data", str(place.scenes)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{PICTURES} images")
    assert [line.split(":")[0].split()[-1] for line in lines[1:3]] == ["10", "30"]
    assert f"written: {folder / FILE}" in lines
    assert lines[-1] == f"written: {folder / RELEVANCE_FILE}"


def test_calibrate_refuses_unsuitable_models_and_data(place, folder, tmp_path, capsys):
    """Hub ids, ensembles, several models, too little data, features for an export: one line, and nothing is written."""
    (tmp_path / "ensemble").mkdir()
    (tmp_path / "ensemble" / "ensemble.json").write_text("{}")
    data = ("--data", place.scenes)
    assert "'vse pull owner/model'" in error_line(capsys, 1, "calibrate", "owner/model", *data)
    assert "an ensemble" in error_line(capsys, 1, "calibrate", tmp_path / "ensemble", *data)
    assert "no model" in error_line(capsys, 1, "calibrate", tmp_path, *data)
    assert "--help" in error_line(capsys, 2, "calibrate", folder, folder, *data)
    assert "--data" in error_line(capsys, 2, "calibrate", folder)
    assert main(["calibrate", str(folder), "--data", str(place.scenes), "--split", "test"]) == 1
    assert "4 images: expected at least 30" in capsys.readouterr().err.splitlines()[-1]
    assert not any((folder / name).exists() for name in COEFFICIENT_FILES)

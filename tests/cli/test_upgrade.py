"""``vse collection upgrade``: exit codes, output, and the resulting index."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from PIL import Image
from tests.support_models import build, grid_config, picture
from tests.support_rights import ordinary_rights

from vse.cli.main import main
from vse.convert.onnx_export import export_onnx
from vse.index.open import open_collection

HEAVY = ("torch", "transformers", "timm", "matplotlib", "scipy")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two tiny models, the new one as an export, which needs no torch."""
    folder = tmp_path_factory.mktemp("models")
    build(grid_config()).save(folder / "old")
    export_onnx(build(grid_config(), seed=1), folder / "new")
    return folder


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos").mkdir()
    for seed, name in enumerate(("a.png", "b.png", "[bold]c.png")):
        Image.fromarray(picture(seed)).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


@pytest.fixture
def index(photos, models, tmp_path, capsys):
    assert main(["index", str(photos), "--into", str(tmp_path / "photos.vse"), "--model", str(models / "old")]) == 0
    capsys.readouterr()
    return tmp_path / "photos.vse"


def call(index, model, *more):
    return ["collection", "upgrade", str(index), "--model", str(model), *more]


def info_of(index):
    collection = open_collection(index)
    found = collection.info()
    collection.close()
    return found


def test_upgrade_prints_result_and_progress(index, models, photos, capsys):
    """The result and corrupt files on stdout, progress on stderr; a corrupt file does not fail the upgrade."""
    (photos / "[bold]c.png").write_bytes(b"damaged")
    assert main(call(index, models / "new")) == 0
    output = capsys.readouterr()
    assert f"{index}: 2 files re-encoded (" in output.out
    assert "generation 2 is active: 2 files, 2 embeddings of model" in output.out
    assert f"'vse index' and 'vse search' now use {models / 'new'}" in output.out
    assert "1 files could not be used" in output.out
    assert f"  {photos}/[bold]c.png: " in output.out
    assert "files/s" in output.err
    assert "3/3" in output.err
    assert (info_of(index).generation, info_of(index).model_source) == (2, str(models / "new"))


def test_upgrade_changes_default_model(index, models, photos, capsys, monkeypatch):
    """Of indexing and search, even if it was given as a relative path; the old model is an error."""
    monkeypatch.chdir(models)
    assert main(call(index, "new", "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    expected = {"index": str(index), "generation": 2, "model_source": str(models / "new"), "encoded": 3, "resumed": 0}
    assert {key: report[key] for key in expected} == expected
    assert (report["left_out"], report["problems"], report["notes"]) == (0, [], [])
    monkeypatch.chdir(photos)
    Image.fromarray(picture(8)).save(photos / "d.png")
    assert main(["index", str(photos), "--into", str(index), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folders"][0]["new"] == 1
    assert main(["search", str(index), "--image", str(photos / "b.png"), "-k", "1", "--json"]) == 0
    assert "b.png" in capsys.readouterr().out
    assert main(["index", str(photos), "--into", str(index), "--model", str(models / "old")]) == 1
    assert f"vse collection upgrade {index} --model" in capsys.readouterr().err


def test_upgrade_refuses_missing_files(index, models, photos, capsys):
    """One line with the options; ``--drop-missing`` drops and reports them."""
    (photos / "a.png").unlink()
    assert main(call(index, models / "new")) == 1
    said = capsys.readouterr()
    assert said.out == ""
    (error,) = [line for line in said.err.splitlines() if line.startswith("vse: error: ")]
    for part in ("1 files", str(photos / "a.png"), f"vse index {photos} --into {index}", "--drop-missing"):
        assert part in error
    assert info_of(index).generation == 1
    assert main(call(index, models / "new", "--drop-missing")) == 0
    output = capsys.readouterr().out
    assert "2 files re-encoded, 1 left out" in output
    assert f"{photos}/a.png (no such file)" in output
    assert info_of(index).files == 2


def absent(photos):
    photos.rename(photos.parent / "away")
    return photos


def emptied(photos):
    for path in photos.iterdir():
        path.unlink()
    return photos


def emptied_below(photos):
    (photos / "my trip" / "d.png").unlink()
    return photos / "my trip"


def deleted(photos):
    (photos / "b.png").unlink()
    return photos


@pytest.mark.parametrize("lose", [absent, emptied, emptied_below, deleted])
def test_upgrade_error_has_command_that_works(index, models, photos, capsys, lose):
    """Indexing alone would keep the files of a folder that may not be mounted."""
    if lose is emptied_below:
        (photos / "my trip").mkdir()
        Image.fromarray(picture(7)).save(photos / "my trip" / "d.png")
        assert main(["index", str(photos), "--into", str(index)]) == 0
    place = lose(photos)
    assert main(call(index, models / "new")) == 1
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("vse: error: ")]
    if lose is not deleted:
        assert "mount the disk" in error
    command = shlex.split(re.search(r"\((vse (?:index|collection remove) .*)\), or leave them out", error)[1])
    expected = ["index", str(place), "--into", str(index)] if lose is deleted else ["collection", "remove", str(index)]
    assert command[: len(expected) + 1] == ["vse", *expected]
    assert main(command[1:]) == 0
    assert main(call(index, models / "new")) == 0
    assert info_of(index).generation == 2


def test_upgrade_names_unreadable_files(index, models, photos, capsys):
    """The error of an unreadable file suggests neither mounting nor removing."""
    photos.chmod(0)
    try:
        with ordinary_rights():
            assert main(call(index, models / "new")) == 1
    finally:
        photos.chmod(0o700)
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"those of {photos} (cannot be read (Permission denied)): allow reading it, or leave them out" in error


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{index}"], 2, "--model"),
        (["{index}", "--model", "{models}/old"], 1, "holds embeddings of that model already"),
        (["{index}", "--model", "nothing"], 1, "no such folder"),
        (["nothing.vse", "--model", "{models}/new"], 1, "is not a collection"),
        (["{index}", "--model", "{regions}"], 1, "not images"),
    ],
)
def test_upgrade_usage_errors(index, models, tmp_path, capsys, arguments, code, said):
    """One line, the right exit code, and an unchanged index."""
    regions = build().save(tmp_path / "regions") if "{regions}" in arguments else ""
    values = {"index": index, "models": models, "regions": regions}
    assert main(["collection", "upgrade", *(argument.format(**values) for argument in arguments)]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines()[-1].startswith("vse: error: ")
    assert said in output.err.splitlines()[-1]
    assert info_of(index).generation == 1


def test_interrupted_upgrade_resumes(index, models, photos, capsys):
    """Exit code 130 and the command that resumes; the second run encodes the rest."""
    for seed in range(20, 220):
        Image.fromarray(picture(seed)).save(photos / f"{seed}.png")
    assert main(["index", str(photos), "--into", str(index)]) == 0
    program = (
        "import os, signal, sys; from vse.index.upgrade.encode import _Stage; from vse.cli.main import main\n"
        "advance = _Stage.advance\n"
        "def reported(self, *arguments):\n"
        "    advance(self, *arguments)\n"
        "    if self._files == 70: os.kill(os.getpid(), signal.SIGINT)\n"
        "_Stage.advance = reported\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *call(index, models / "new")],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "the same command resumes" in done.stderr
    assert info_of(index).generation == 1
    capsys.readouterr()
    assert main(call(index, models / "new", "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    assert 60 <= report["resumed"] < 203
    assert report["encoded"] + report["resumed"] == report["files"] == 203


def test_upgrade_to_export_loads_no_torch(index, models):
    """Upgrading to an export loads none of the large libraries."""
    program = (
        "import sys; from vse.cli.main import main; code = main(sys.argv[1:]);"
        f"print('LOADED', *sorted(set(sys.modules) & set({HEAVY!r}))); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *call(index, models / "new")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED"

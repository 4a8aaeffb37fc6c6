"""``vse index``: exit codes, output, and the resulting index."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image
from tests.support_models import build, grid_config, picture

from vse.cli.main import main
from vse.convert.onnx_export import export_onnx
from vse.errors import VSEError
from vse.index.open import open_collection
from vse.index.store import EmbeddedCollection

HEAVY = ("torch", "transformers", "timm", "matplotlib", "scipy")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A tiny model as an export, which needs no torch."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    export_onnx(build(grid_config()), folder)
    return folder


@pytest.fixture
def photos(tmp_path):
    """Three images and a corrupt one."""
    folder = tmp_path / "photos"
    (folder / "trip").mkdir(parents=True)
    for seed, name in enumerate(("a.png", "b.jpg", "trip/é.png")):
        Image.fromarray(picture(seed)).save(folder / name)
    (folder / "[bold]broken.jpg").write_bytes(b"no picture")
    return folder


@pytest.fixture
def index(tmp_path):
    return tmp_path / "photos.vse"


def call(photos, index, *more):
    return ["index", str(photos), "--into", str(index), *map(str, more)]


def paths(index):
    collection = open_collection(index)
    found = [file.path for file in collection.files()]
    collection.close()
    return found


def test_index_with_ocr_says_what_is_missing(photos, index, exported, capsys, monkeypatch):
    """Without its extra, --ocr is one line that says how to install it, and nothing is indexed."""
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    assert main(call(photos, index, "--model", exported, "--ocr")) != 0
    error = capsys.readouterr().err
    assert "rapidocr" in error
    assert "Traceback" not in error
    assert paths(index) == []


def test_index_prints_result_and_progress(photos, index, exported, capsys):
    """The result and corrupt files on stdout, progress on stderr; corrupt files do not fail the run."""
    assert main(call(photos, index, "--model", exported)) == 0
    output = capsys.readouterr()
    assert f"{photos}: 3 new (" in output.out
    assert "images/s)" in output.out
    assert "1 files could not be used:" in output.out
    assert "  [bold]broken.jpg: " in output.out
    assert f"{index}: 3 files, 3 embeddings" in output.out
    assert "images/s" in output.err
    assert paths(index) == ["a.png", "b.jpg", "trip/é.png"]


def test_index_json_and_second_run(photos, index, exported, capsys):
    """A second run finds the model from another working directory; ``--json`` prints one object."""
    main(call(photos, index, "--model", exported))
    capsys.readouterr()
    (photos / "a.png").rename(photos / "c.png")
    assert main(call(photos, index, "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["index"], report["files"], report["items"]) == (str(index), 3, 3)
    (folder,) = report["folders"]
    assert folder["root"] == str(photos)
    assert (folder["new"], folder["moved"], folder["unchanged"]) == (0, 1, 2)
    assert [problem["path"] for problem in folder["problems"]] == ["[bold]broken.jpg"]


def test_index_stores_absolute_paths(photos, index, exported, capsys, monkeypatch):
    """Relative paths of folders and model are stored as absolute ones; a repeated folder counts once."""
    (photos.parent / "more").mkdir()
    Image.fromarray(picture(9)).save(photos.parent / "more" / "m.png")
    monkeypatch.chdir(photos.parent)
    (photos.parent / "model").symlink_to(exported)
    arguments = ["index", "photos", "more", "./photos/", "--into", "photos.vse", "--model", "model", "--json"]
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert [folder["root"] for folder in report["folders"]] == [str(photos), str(photos.parent / "more")]
    monkeypatch.chdir(photos)
    assert main(["index", str(photos), "--into", str(index), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folders"][0]["unchanged"] == 3


def test_index_command_keeps_files_of_missing_folder(photos, index, exported, capsys):
    """A known folder that is missing is not an error, and its files are kept."""
    main(call(photos, index, "--model", exported))
    capsys.readouterr()
    photos.rename(photos.parent / "away")
    assert main(call(photos, index)) == 0
    assert "its 3 files stay in the index" in capsys.readouterr().out
    assert len(paths(index)) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--into", "{index}", "--model", "{model}"], 2, "FOLDER"),
        (["nowhere", "--into", "{index}", "--model", "{model}"], 1, "nowhere: no such folder"),
        (["{photos}/a.png", "--into", "{index}", "--model", "{model}"], 1, "not a folder"),
        (["{photos}", "--into", "{index}", "--model", "nothing"], 1, "no such folder"),
        (["{photos}", "--into", "{photos}", "--model", "{model}"], 1, "expected an empty or new folder"),
        (["{photos}", "--into", "{photos}/a.png", "--model", "{model}"], 1, "a.png is not a folder"),
        (["{photos}", "--into", "{photos}/a.png"], 1, "a.png is not a folder"),
        (["{photos}", "--into", "", "--model", "{model}"], 1, "the address of a collection is empty"),
        (["{photos}", "--into", "{photos}/a.png/x.db", "--model", "{model}"], 1, "a.png is not a folder"),
        (["{photos}", "--into", "{index}", "--model", "{model}", "--watch", "--json"], 2, "--watch does not end"),
    ],
)
def test_index_usage_errors(photos, index, exported, capsys, arguments, code, said):
    """One line, the right exit code, and no index is created."""
    values = {"photos": photos, "index": index, "model": exported}
    assert main(["index", *(argument.format(**values) for argument in arguments)]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("vse: error: ")
    assert output.err.count("\n") == 1
    assert said in output.err
    assert not index.exists()


def test_index_refuses_other_models(photos, index, exported, tmp_path, capsys):
    """Another model is an error with the upgrade command; so is one that reads features, before an index is created."""
    main(call(photos, index, "--model", exported))
    other, regions = build(grid_config(), seed=1).save(tmp_path / "other"), build().save(tmp_path / "regions")
    capsys.readouterr()
    assert main(call(photos, index, "--model", other)) == 1
    assert f"vse collection upgrade {index} --model" in capsys.readouterr().err
    assert main(call(photos, tmp_path / "second.vse", "--model", regions)) == 1
    assert "not images" in capsys.readouterr().err
    assert not (tmp_path / "second.vse").exists()


def test_index_names_missing_model_folder(photos, index, exported, tmp_path, capsys):
    """The error names the missing folder and --model."""
    here = tmp_path / "here"
    here.symlink_to(exported)
    main(call(photos, index, "--model", here))
    here.unlink()
    capsys.readouterr()
    assert main(call(photos, index)) == 1
    said = capsys.readouterr().err
    assert str(here) in said
    assert "--model" in said
    assert main(call(photos, index, "--model", exported)) == 0
    assert f"no longer at {here}: using {exported} from now on" in capsys.readouterr().err
    assert main(call(photos, index)) == 0
    assert main(["search", str(index), "--image", str(photos / "a.png")]) == 0


def test_index_keeps_model_source_while_it_exists(photos, index, exported, tmp_path, capsys):
    """Another copy, perhaps on removable media, does not replace the stored place."""
    main(call(photos, index, "--model", exported))
    (tmp_path / "stick").symlink_to(exported)
    assert main(call(photos, index, "--model", tmp_path / "stick")) == 0
    assert "from now on" not in capsys.readouterr().err
    collection = open_collection(index)
    assert collection.info().model_source == str(exported)
    collection.close()


def test_index_command_refuses_overlapping_folders(photos, index, exported, capsys):
    """Overlaps among given and known folders are reported before a model is loaded."""
    (photos.parent / "more").mkdir()
    Image.fromarray(picture(9)).save(photos.parent / "more" / "m.png")
    trip, more = str(photos / "trip"), str(photos.parent / "more")
    for folders in ((more, str(photos), trip), (trip, str(photos), more)):
        assert main(["index", *folders, "--into", str(index), "--model", "nothing"]) == 1
        assert f"is given too, and what they share would be found twice: leave out {trip}" in capsys.readouterr().err
    assert not index.exists()
    main(call(photos, index, "--model", exported))
    capsys.readouterr()
    assert main(["index", more, trip, "--into", str(index), "--model", "nothing"]) == 1
    assert f"{photos} is in the index already" in capsys.readouterr().err
    assert paths(index) == ["a.png", "b.jpg", "trip/é.png"]


def test_index_reports_failed_cache_build(photos, index, exported, capsys, monkeypatch):
    """The command fails, and still reports what was indexed."""

    def full(self, *, progress=None):
        raise VSEError("the disk is full")

    monkeypatch.setattr(EmbeddedCollection, "settle", full)
    assert main(call(photos, index, "--model", exported, "--json")) == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["files"] == 3
    assert output.err.endswith("vse: error: the disk is full\n")


def test_index_reports_cache_build(photos, index, exported, capsys, monkeypatch):
    """Building the cache may take minutes, so its progress is shown."""

    def settle(self, *, progress):
        progress.start(1, "making it fast")
        progress.advance()

    monkeypatch.setattr(EmbeddedCollection, "settle", settle)
    assert main(call(photos, index, "--model", exported)) == 0
    assert "making it fast" in capsys.readouterr().err


def test_index_with_export_loads_no_torch(photos, index, exported):
    """Indexing with an export loads none of the large libraries."""
    program = (
        "import sys; from vse.cli.main import main; code = main(sys.argv[1:]);"
        f"print('LOADED', *sorted(set(sys.modules) & set({HEAVY!r}))); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *call(photos, index, "--model", exported)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED"
    assert len(paths(index)) == 3


def test_index_watch_until_interrupted(photos, index, exported):
    """``--watch`` indexes changes; an interrupt exits with 130, with everything committed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vse", *call(photos, index, "--model", exported, "--watch")],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "watching" in line:
                break
        Image.fromarray(picture(5)).save(photos / "late.png")
        until = time.monotonic() + 60
        for line in process.stderr:
            assert time.monotonic() < until
            if "1 new" in line:
                break
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 130
    assert "vse: interrupted" in said
    assert "late.png" in paths(index)

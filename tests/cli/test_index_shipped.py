"""``vse index FOLDER`` without options: the bundled model, and an index named after the folder."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from contextlib import closing

import pytest
from PIL import Image
from tests.cli.search_support import error_line, reported, saved_folder
from tests.support_models import picture

import vse
from vse.cli.main import main
from vse.cli.options import named_after
from vse.index.open import open_collection
from vse.models.sources import DEFAULT, MODELS, PREVIOUS

HEAVY = ("torch", "transformers", "timm", "matplotlib", "scipy", "huggingface_hub")
ALONE = f"""
import socket, sys
def refuse(*arguments, **options): raise OSError("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
from vse.cli.main import main
code = main(sys.argv[1:])
print("LOADED", *sorted(set(sys.modules) & set({HEAVY!r})))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with three images, and the output of a process without network that indexed them."""
    home = tmp_path_factory.mktemp("home")
    (home / "My Photos" / "trip").mkdir(parents=True)
    for seed, name in enumerate(("a.png", "b.jpg", "trip/c.png")):
        Image.fromarray(picture(seed)).save(home / "My Photos" / name)
    command = [sys.executable, "-c", ALONE, "index", "My Photos/"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=home)
    assert done.returncode == 0, done.stderr
    return home, done.stdout.splitlines()


@pytest.fixture
def home(made, tmp_path, monkeypatch):
    """A copy of the index in the working directory; the images stay where they are."""
    shutil.copytree(made[0] / "My Photos.vse", tmp_path / "My Photos.vse")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def info_of(index):
    with closing(open_collection(index)) as collection:
        return collection.info()


def test_index_needs_no_options(made):
    """The index is in the working directory and names the bundled model; neither torch nor the network is used."""
    home, said = made
    info = info_of(home / "My Photos.vse")
    assert (info.files, info.roots) == (3, (str(home / "My Photos"),))
    assert (info.model, info.model_source) == (vse.load(DEFAULT).fingerprint(), DEFAULT)
    assert said[-1] == "LOADED"
    assert "My Photos.vse: 3 files, 3 embeddings" in said


def test_index_prints_commands_that_work(made, home, capsys):
    """The printed commands search and serve."""
    told_search, told_serve = (line.split(": ", 1)[1] for line in made[1][-3:-1])
    assert main([*shlex.split(told_search)[1:], "--all"]) == 0
    assert "c.png" in capsys.readouterr().out
    assert shlex.split(told_serve) == ["vse", "serve", "My Photos.vse"]


def test_index_again_with_bundled_model(made, home, capsys):
    """The same call indexes new files; ``--json`` prints one object; an existing index keeps its model."""
    folder = made[0] / "My Photos"
    report = reported("index", folder)
    assert (report["index"], report["folders"][0]["unchanged"]) == ("My Photos.vse", 3)
    shutil.copytree(folder, home / "other" / "My Photos")
    own = home / "own.vse"
    reported("index", home / "other" / "My Photos", "--into", own, "--model", saved_folder())
    reported("index", home / "other" / "My Photos", "--into", own)
    assert info_of(own).model_source == str(saved_folder())


def test_index_refuses_other_folder_of_same_name(made, home, capsys):
    """It is added only with the printed command."""
    other = shutil.copytree(made[0] / "My Photos", home / "other" / "My Photos")
    line = error_line(capsys, 1, "index", other)
    assert str(made[0] / "My Photos") in line
    assert info_of("My Photos.vse").files == 3
    assert main(shlex.split(line.split("'", 1)[1].split("' adds")[0])[1:]) == 0
    assert info_of("My Photos.vse").files == 6


def test_index_refuses_root_folder_and_collections(home, capsys):
    """The root folder has no name, and an index is not indexed; nothing is created."""
    assert "--into NAME.vse" in error_line(capsys, 2, "index", "/")
    assert "is an index" in error_line(capsys, 1, "index", "My Photos.vse")
    assert [path.name for path in home.iterdir()] == ["My Photos.vse"]


@pytest.mark.parametrize("name", ["-x", "~x", "milvus+x"])
def test_index_names_that_look_like_options_are_absolute(tmp_path, monkeypatch, name):
    """They are reported as absolute paths, which every command accepts."""
    monkeypatch.chdir(tmp_path)
    assert named_after(f"/photos/{name}") == str(tmp_path / f"{name}.vse")
    assert named_after("/photos/x") == "x.vse"


def test_local_model_named_like_bundled_one(made, home, capsys):
    """A folder of that name is used if the user types it, not by the index."""
    (home / DEFAULT).symlink_to(saved_folder())
    reported("index", made[0] / "My Photos")
    assert reported("search", "My Photos.vse", "a dog", "-k", 1, "--all")["results"]
    assert "collection upgrade" in error_line(capsys, 1, "search", "My Photos.vse", "a dog", "--model", DEFAULT)
    reported("index", made[0] / "My Photos", "--into", "new.vse")
    assert info_of("new.vse").model_source == DEFAULT
    reported("index", made[0] / "My Photos", "--into", "own.vse", "--model", DEFAULT)
    assert info_of("own.vse").model_source == str(home / DEFAULT)


def test_folder_named_like_bundled_model(made, home, capsys):
    """``vse index photo --model photo`` works; the path of the bundled model stands for its name."""
    shutil.copytree(made[0] / "My Photos", home / DEFAULT)
    reported("index", DEFAULT, "--model", DEFAULT)
    assert info_of(f"{DEFAULT}.vse").model_source == DEFAULT
    reported("index", DEFAULT, "--into", "whole.vse", "--model", MODELS / DEFAULT)
    assert info_of("whole.vse").model_source == DEFAULT


def test_search_uses_coefficients_of_bundled_model(made, home, tmp_path):
    """Without them the confidences differ."""
    from vse.service.routes.collection import curves
    from vse.service.state import load_collection

    bare = shutil.copytree(MODELS / DEFAULT, tmp_path / "bare")
    (bare / "confidence.json").unlink()
    query = ("search", "My Photos.vse", "a dog", "-k", 1, "--all")
    own, plain = reported(*query)["results"][0], reported(*query, "--model", bare)["results"][0]
    assert own["score"] == plain["score"]
    assert own["confidence"] != plain["confidence"]
    loaded = load_collection("My Photos.vse")
    with closing(loaded.collection):
        assert loaded.coefficients.source == json.loads((MODELS / DEFAULT / "confidence.json").read_text())["source"]
        assert {curve.tower for curve in curves(loaded).curves} == {"image", "text"}


def test_index_of_former_weights_suggests_upgrade(made, home, capsys, tmp_path, monkeypatch):
    """The error has the upgrade command, and the command works."""
    (tmp_path / "next").mkdir()
    (tmp_path / "next" / DEFAULT).symlink_to(saved_folder())
    monkeypatch.setattr("vse.models.sources.MODELS", tmp_path / "next")
    folder = made[0] / "My Photos"
    line = error_line(capsys, 1, "search", "My Photos.vse", "a dog")
    assert f"the {DEFAULT!r} model of this version of vse" in line
    assert line.endswith(f"vse collection upgrade 'My Photos.vse' --model {DEFAULT}")
    assert main(["index", str(folder)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert main(shlex.split(line.split("files: ")[1])[1:]) == 0
    info = info_of("My Photos.vse")
    assert (info.generation, info.model_source) == (2, DEFAULT)
    assert info.model == vse.load(saved_folder()).fingerprint()
    assert reported("search", "My Photos.vse", "a dog", "-k", 1, "--all")["results"]
    assert reported("index", folder)["folders"][0]["unchanged"] == 3


def test_index_of_previous_bundled_model_works_and_offers_upgrade(made, home, capsys):
    """It is searched and updated with the model that encoded it, and one command upgrades it to the current one."""
    folder = made[0] / "My Photos"
    assert main(["index", str(folder), "--into", "old.vse", "--model", str(MODELS / PREVIOUS[DEFAULT][-1])]) == 0
    with closing(open_collection("old.vse", write=True)) as collection:
        collection.set_model_source(DEFAULT)  # as the version that bundled it recorded it
    capsys.readouterr()
    assert main(["search", "old.vse", "a dog", "-k", "1", "--all"]) == 0
    shown = capsys.readouterr()
    assert shown.out
    assert "'vse collection upgrade old.vse' re-encodes it with the current one" in shown.err
    assert main(["index", str(folder), "--into", "old.vse"]) == 0
    assert "vse collection upgrade old.vse" in capsys.readouterr().err
    assert main(["collection", "upgrade", "old.vse"]) == 0
    assert info_of("old.vse").model == vse.load(DEFAULT).fingerprint()
    capsys.readouterr()
    assert main(["search", "old.vse", "a dog", "-k", "1", "--all"]) == 0
    assert capsys.readouterr().err == ""
    assert "--model MODEL is needed" in error_line(capsys, 2, "collection", "upgrade", "old.vse")


def test_bundled_model_is_not_modified(home, capsys):
    """Calibrating or exporting it is an error that suggests a copy, by name and by folder; the copy works."""
    before = sorted(path.name for path in (MODELS / DEFAULT).iterdir())
    for name in (DEFAULT, MODELS / DEFAULT):
        for command in (("calibrate", name, "--data", "."), ("export", name, "out")):
            line = error_line(capsys, 1, *command)
            assert "is bundled with the package" in line
            copy = shlex.split(line.split("'cp ")[1].split("', and")[0].replace("DIR", "mine"))
            assert copy == ["-r", str(MODELS / DEFAULT), "mine"]
    subprocess.run(["cp", *copy], check=True)
    assert "is bundled" not in error_line(capsys, 1, "calibrate", "mine", "--data", "nowhere")
    assert reported("search", "My Photos.vse", "a dog", "--model", "mine", "-k", 1, "--all")["results"]
    assert sorted(path.name for path in (MODELS / DEFAULT).iterdir()) == before


def test_serve_defaults_to_only_index(home, capsys, monkeypatch):
    """None or several are an error."""
    asked = []
    monkeypatch.setattr("vse.service.server.run_service", lambda where, *rest, **options: asked.append(where))
    assert main(["serve"]) == 0
    assert asked == ["My Photos.vse"]
    shutil.copytree("My Photos.vse", "b.vse")
    assert "(My Photos.vse, b.vse)" in error_line(capsys, 2, "serve")
    (home / "empty" / "no.vse").mkdir(parents=True)
    monkeypatch.chdir(home / "empty")
    assert "'vse index FOLDER' creates one" in error_line(capsys, 2, "serve")

"""An index from somebody else: files are shown only of folders that were confirmed on this machine."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.service.support import API, Home, application, assert_problem, id_of, run, started

from vse.index.confirmed import confirm_roots, confirmed_roots, record_file, unconfirmed_roots

SECRET = "root:x:0:0:the secret"


@pytest.fixture
def foreign(home: Home, tmp_path: Path) -> Path:
    """An index that was made elsewhere: a copy at a place where nothing was indexed."""
    return shutil.copytree(home.index, tmp_path / "foreign.vse")


def forge(index: Path, name: str, root: Path, path: str) -> None:
    """Let the file called ``name`` be another one, as somebody with sqlite3 can."""
    [database] = index.glob("generation-*/items.sqlite")
    with sqlite3.connect(database) as connection:
        for column in ("root", "path"):
            [(kind,)] = connection.execute(f"SELECT DISTINCT typeof({column}) FROM files").fetchall()
            value = str(root) if column == "root" else path
            stored = value.encode() if kind == "blob" else value
            matched = name.encode() if kind == "blob" else name
            where = "path = ?" if column == "root" else "path = ? AND 1"
            connection.execute(f"UPDATE files SET {column} = ? WHERE {where}", (stored, matched))
    connection.close()


@pytest.mark.parametrize("route", ["thumbnail", "preview", "media", "original"])
def test_forged_row_of_a_foreign_index_is_not_served(home, foreign, tmp_path, route):
    """A row with another root and path is an answer without media, whatever the file is."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(SECRET)
    shutil.copy(home.photos / "clip.mp4", tmp_path / "etc/clip.mp4")
    forge(foreign, "clip.mp4", tmp_path / "etc", "passwd" if route != "media" else "clip.mp4")
    with application(foreign) as client:
        name = "passwd" if route != "media" else "clip.mp4"
        response = client.get(f"{API}/items/{id_of(client, name)}/{route}")
        assert_problem(response, 403, "--root DIR")
        assert SECRET not in response.text


def test_search_of_a_foreign_index_works_without_media(foreign):
    """Results and their details are there; a file is neither shown nor said to exist."""
    with application(foreign) as client:
        found = client.get(f"{API}/search", params={"q": "a dog"}).json()["results"]
        assert found
        details = client.get(f"{API}/items/{found[0]['id']}").json()
        assert details["available"] is False
        assert {each["missing"] for each in found} == {True}


def test_named_root_is_served(home, foreign):
    """A root that the user named for the service is shown, others are not."""
    with application(foreign, roots=(str(home.photos),)) as client:
        assert client.get(f"{API}/items/{id_of(client, 'a.png')}/thumbnail").status_code == 200
    with application(foreign, roots=("/elsewhere",)) as client:
        assert client.get(f"{API}/items/{id_of(client, 'a.png')}/thumbnail").status_code == 403


def test_indexed_root_is_confirmed(own):
    """``vse index`` confirms the folders that it is given, for this collection alone."""
    assert confirmed_roots(own.index) == {str(own.photos)}
    assert unconfirmed_roots(own.folder / "another.vse", [str(own.photos)]) == (str(own.photos),)


def test_root_indexed_meanwhile_is_served(home, foreign, monkeypatch):
    """A running service shows a folder that is confirmed while it runs."""
    monkeypatch.setattr("vse.service.media.CONFIRMED_SECONDS", 0.0)
    with application(foreign) as client:
        where = f"{API}/items/{id_of(client, 'a.png')}/thumbnail"
        assert client.get(where).status_code == 403
        assert confirm_roots(foreign, [str(home.photos)])
        assert client.get(where).status_code == 200


def test_serve_names_unconfirmed_roots_and_confirms_named_ones(home, foreign, tmp_path):
    """One line says how to confirm; with --root there is none, and later starts remember it."""
    command = [sys.executable, "-m", "vse", "serve", str(foreign), "--port", "0", "--json", "--no-log"]

    def errors(*more: str) -> str:
        log = tmp_path / "log"
        with started([*command, *more], log) as process:
            assert process.stdout
            assert process.stdout.readline().startswith("{")
            return log.read_text()

    line = f"{home.photos} was not indexed on this machine, so its files are not shown"
    assert line in errors()
    assert errors("--root", str(home.photos)) == ""
    assert errors() == ""
    refused = subprocess.run([*command, "--root", str(tmp_path)], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"--root {tmp_path}: not a folder of" in refused.stderr


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}', "null", "[" * 100_000])
def test_damaged_record_confirms_nothing_and_is_replaced(tmp_path, monkeypatch, content):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    record_file().parent.mkdir(parents=True)
    record_file().write_text(content)
    assert confirmed_roots(tmp_path / "a.vse") == frozenset()
    assert confirm_roots(tmp_path / "a.vse", ["/photos"])
    assert confirmed_roots(tmp_path / "a.vse") == {"/photos"}


def test_record_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert not confirm_roots(tmp_path / "a.vse", ["/photos"])


def test_record_forgets_collections_that_are_gone(tmp_path, monkeypatch):
    """It holds what exists: addresses of servers are kept, removed folders are not."""
    monkeypatch.setenv("VSE_HOME", str(tmp_path / "home"))
    (tmp_path / "gone.vse").mkdir()
    confirm_roots(tmp_path / "gone.vse", ["/a"])
    confirm_roots("milvus+http://host/b", ["/b"])
    (tmp_path / "gone.vse").rmdir()
    (tmp_path / "c.vse").mkdir()
    confirm_roots(tmp_path / "c.vse", ["/c"])
    assert json.loads((tmp_path / "home/confirmed_roots.json").read_text()) == {
        "milvus+http://host/b": ["/b"],
        str(tmp_path / "c.vse"): ["/c"],
    }


@pytest.mark.parametrize("command", ["search", "index", "serve", "mcp"])
def test_model_that_an_index_names_is_not_fetched(own, monkeypatch, capsys, command):
    """A hub id in a collection is looked for on this machine alone; the line says how to fetch it."""
    from vse.cli.main import main
    from vse.models import fetch

    def asked(*arguments: object, **options: object) -> None:
        raise AssertionError(f"the hub was asked for {arguments}")

    monkeypatch.setattr(fetch, "download", asked)
    [database] = own.index.glob("generation-*/items.sqlite")
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE meta SET value = 'somebody/model' WHERE key = 'model_source'")
    connection.close()
    arguments = {
        "search": ["search", own.index, "a dog"],
        "index": ["index", own.photos, "--into", own.index],
        "serve": ["serve", own.index, "--port", "0"],
        "mcp": ["mcp", own.index],
    }
    if command == "mcp":
        pytest.importorskip("mcp")
    assert main(list(map(str, arguments[command]))) == 1
    error = capsys.readouterr().err
    assert "'vse pull somebody/model'" in error
    assert "--model" in error
    assert run("search", own.index, "a dog", "--model", own.model)["results"]

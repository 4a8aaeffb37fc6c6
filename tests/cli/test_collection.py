"""``vse collection``: its reports, and the commands in its messages."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
from contextlib import closing

import pytest
from PIL import Image
from tests.cli.search_support import error_line, printed, reported
from tests.index.examples import directions
from tests.index.scan.metadata_support import xmp
from tests.support_models import build, grid_config, picture

from vse.cli.main import main
from vse.index.open import open_collection
from vse.index.types import Entry, Moment


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("old", "new")):
        build(grid_config(), seed=seed).save(folder / name)
    return folder


@pytest.fixture
def photos(tmp_path):
    """Two folders whose names need quoting, with three images and one."""
    for seed, name in enumerate(("my photos/a.png", "my photos/it's b.png", "my photos/c.png", "more/m.png")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(picture(seed)).save(tmp_path / name)
    return tmp_path / "my photos"


@pytest.fixture
def index(photos, models, tmp_path):
    place = tmp_path / "my index.vse"
    reported("index", photos, photos.parent / "more", "--into", place, "--model", models / "old")
    return place


def shown(capsys, *arguments, code=0):
    capsys.readouterr()
    assert main([*map(str, arguments)]) == code
    return capsys.readouterr().out


def half_an_upgrade(index):
    """Leave an interrupted upgrade with one of four files encoded."""
    with closing(open_collection(index, write=True)) as collection:
        new = collection.new_generation(model="another", model_source="/models/an other", dimensions=7)
        new.add([Entry(next(collection.files()), (Moment(directions(1, 7, seed=1)[0]),))])
        new.close()


def test_collection_info_lists_folders_and_bytes(index, photos, capsys):
    """Files of each folder, and the size on disk."""
    found = reported("collection", "info", index)
    assert found["folders"] == [
        {"root": str(photos.parent / "more"), "files": 1},
        {"root": str(photos), "files": 3},
    ]
    assert found["bytes"] == sum(path.stat().st_size for path in index.rglob("*") if path.is_file())
    assert found["unfinished"] is None
    text = shown(capsys, "collection", "info", index)
    assert f"folder {photos}: 3 files" in text
    assert "kB on disk" in text
    assert "upgrade" not in text


def test_collection_info_lists_cameras_and_places(index, photos, models, capsys):
    """The most frequent first; five of them as text, all as JSON."""
    for number in range(7):
        packet = xmp(attributes=f'photoshop:City="Quito" tiff:Model="Box {number}"')
        (photos / f"c{number}.xmp").write_bytes(packet)
        Image.fromarray(picture(number + 9)).save(photos / f"c{number}.png")
    reported("index", photos, "--into", index)
    found = reported("collection", "info", index)
    assert found["places"] == [{"name": "Quito", "files": 7}]
    assert len(found["cameras"]) == 7
    text = shown(capsys, "collection", "info", index)
    assert "places: Quito (7)\n" in text
    assert "cameras: Box 0 (1); Box 1 (1); Box 2 (1); Box 3 (1); Box 4 (1); …\n" in text


def test_unfinished_upgrade_is_shown_and_discarded(index, capsys):
    """Info shows its model, files and both commands; afterwards the collection is as before."""
    half_an_upgrade(index)
    found = reported("collection", "info", index)
    expected = {"generation": 2, "model": "another", "model_source": "/models/an other", "dimensions": 7, "files": 1}
    assert found["unfinished"] == expected
    text = shown(capsys, "collection", "info", index)
    quoted = shlex.quote(str(index))
    for part in (
        "upgrade to model another (/models/an other) is unfinished, with 1 files encoded",
        f"'vse collection upgrade {quoted} --model '/models/an other'' resumes it",
        f"'vse collection upgrade {quoted} --discard' discards it",
    ):
        assert part in text
    gone = reported("collection", "upgrade", index, "--discard")
    assert gone["unfinished"] is None
    assert (gone["generation"], gone["files"]) == (1, 4)
    assert "was discarded, with 1 encoded files" in gone["note"]
    assert not (index / "generation-0002").exists()
    assert "has no unfinished upgrade" in error_line(capsys, 1, "collection", "upgrade", index, "--discard")


def test_corrupt_unfinished_upgrade_can_be_discarded(index, capsys):
    """Even if nothing of it can be read."""
    half_an_upgrade(index)
    (index / "generation-0002" / "items.sqlite").write_bytes(b"no database" * 1000)
    assert "cannot be read" in shown(capsys, "collection", "info", index)
    assert reported("collection", "upgrade", index, "--discard")["unfinished"] is None
    assert not (index / "generation-0002").exists()


@pytest.mark.parametrize("more", [("--discard", "--model", "x"), ("--discard", "--drop-missing"), ()])
def test_collection_upgrade_needs_model_or_discard(index, capsys, more):
    """``--discard`` allows no other option; otherwise a model is needed."""
    assert "--model" in error_line(capsys, 2, "collection", "upgrade", index, *more)


def test_collection_verify_and_rebuild(index, capsys):
    """An intact collection passes; corruption is reported with exit code 1; a rebuild repairs the cache."""
    assert reported("collection", "verify", index)["ok"]
    assert "was rebuilt" in reported("collection", "rebuild", index)["note"]
    (vectors,) = (index / "generation-0001" / "cache").glob("items-*.vectors")
    data = bytearray(vectors.read_bytes())
    data[5] ^= 0xFF
    vectors.write_bytes(data)
    found, code = printed("collection", "verify", index)
    assert (found["ok"], code) == (False, 1)
    capsys.readouterr()
    for command in ("rebuild", "verify"):
        assert main(["collection", command, str(index)]) == 0
        assert "steps" in capsys.readouterr().err


def test_verify_prints_commands_that_repair_corrupt_rows(index, photos, models, capsys):
    """The printed commands leave an intact collection with all files."""
    database = index / "generation-0001" / "items.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(
            "UPDATE items SET vector = zeroblob(length(vector)) WHERE file = "
            "(SELECT id FROM files WHERE path = CAST('it''s b.png' AS BLOB))"
        )
        connection.commit()
    text = shown(capsys, "collection", "verify", index, code=1)
    assert f"of items ({photos}/it's b.png) does not match its checksum" in text
    (line,) = [line for line in text.splitlines() if "backup" in line]
    for command in line.partition("again: ")[2].split("; "):
        arguments = shlex.split(command)
        assert arguments[0] == "vse"
        assert main(arguments[1:]) == 0
    capsys.readouterr()
    assert reported("collection", "verify", index)["ok"]
    assert reported("collection", "info", index)["files"] == 4


def test_verify_with_corrupt_file_name_suggests_new_index(index, capsys):
    """The file could not be removed by that name."""
    database = index / "generation-0001" / "items.sqlite"
    raw = database.read_bytes()
    database.write_bytes(raw.replace(b"my photosc.png", b"my photosd.png", 1))
    assert raw != database.read_bytes()
    assert main(["collection", "verify", str(index), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["problems"]
    assert found["damaged_files"] == []
    assert "into a new one" in shown(capsys, "collection", "verify", index, code=1)


def test_collection_names_process_that_writes(index, photos, capsys):
    """The process that holds the lock, and what to do about it."""
    with closing(open_collection(index, write=True)):
        line = error_line(capsys, 1, "collection", "remove", index, photos / "a.png")
    assert f"is being written by process {os.getpid()}: wait for it or stop it" in line
    assert "'vse index --watch' runs until Ctrl-C" in line


@pytest.mark.parametrize("command", ["verify", "rebuild"])
def test_verify_and_rebuild_refuse_milvus(tmp_path, capsys, command):
    """A local Milvus file too; the suggested command exists, and nothing is created."""
    line = error_line(capsys, 1, "collection", command, tmp_path / "photos.db")
    assert "stored in Milvus" in line
    assert f"'vse collection info {tmp_path / 'photos.db'}'" in line
    assert not (tmp_path / "photos.db").exists()


@pytest.mark.parametrize("command", [("info",), ("verify",), ("remove", "x"), ("upgrade", "--model", "x")])
@pytest.mark.parametrize("name", ["note.txt", "note.txt/photos.vse"])
def test_collection_commands_refuse_file(tmp_path, capsys, command, name):
    """Every command names the file."""
    (tmp_path / "note.txt").write_text("note")
    line = error_line(capsys, 1, "collection", command[0], tmp_path / name, *command[1:])
    assert f"{tmp_path / 'note.txt'} is not a folder" in line

"""Files of an unmounted disk below an indexed folder are not mistaken for deleted ones."""

from __future__ import annotations

import shlex
import shutil

import pytest
from tests.index.pipeline.support import counts, ids_of, later, model, new_collection, save_picture

from vse.cli.main import main
from vse.index.pipeline import index_folder
from vse.index.scan import empty_folders

DISK = ("disk/a.bmp", "disk/b.bmp", "disk/trip/c.bmp")


@pytest.fixture
def root(tmp_path):
    """One image in the folder itself and three on a disk."""
    for seed, path in enumerate(("stays.bmp", *DISK)):
        save_picture(tmp_path / "my photos", path, seed)
    return tmp_path / "my photos"


@pytest.fixture
def collection(tmp_path, root):
    with new_collection(tmp_path / "index.vse") as made:
        index_folder(made, model(), root)
        yield made


def unmount(root, into):
    """Replace the disk by its empty mount point."""
    (root / "disk").rename(into)
    (root / "disk").mkdir()


def test_an_empty_folder_keeps_its_files(collection, root, tmp_path):
    """They keep their ids, a note names the folder and the command to forget them, and the disk can return."""
    before = ids_of(collection)
    unmount(root, tmp_path / "elsewhere")
    (root / "disk/.hidden").touch()  # systems put hidden files on mount points
    for _ in range(2):
        report = index_folder(collection, model(), root)
        assert counts(report) == {"kept": 3, "unchanged": 1}
        assert ids_of(collection) == before
    (note,) = report.notes
    assert note.startswith(f"{root}/disk: empty, but held 3 files")
    shutil.rmtree(root / "disk")
    (tmp_path / "elsewhere").rename(root / "disk")
    assert counts(index_folder(collection, model(), root)) == {"unchanged": 4}


def test_the_command_in_the_note_forgets_them(collection, root, tmp_path, capsys):
    """The quoted command works verbatim, even with spaces in the path; the next run keeps nothing."""
    unmount(root, tmp_path / "elsewhere")
    (note,) = index_folder(collection, model(), root).notes
    collection.close()
    command = shlex.split(note.partition("To forget them: ")[2])
    assert command[0] == "vse"
    assert main(command[1:]) == 0
    assert "3 files removed" in capsys.readouterr().out
    with type(collection).open(tmp_path / "index.vse", write=True) as again:
        assert counts(index_folder(again, model(), root)) == {"unchanged": 1}


def test_a_folder_that_was_removed_is_a_deletion(collection, root):
    """If the folder itself is gone, or other files are left in it, its disk was not unmounted."""
    (root / "disk/trip/c.bmp").unlink()
    (root / "disk/trip").rmdir()
    assert counts(index_folder(collection, model(), root)) == {"removed": 1, "unchanged": 3}
    (root / "disk/notes.txt").touch()
    (root / "disk/a.bmp").unlink()
    (root / "disk/b.bmp").unlink()
    assert counts(index_folder(collection, model(), root)) == {"removed": 2, "unchanged": 1}


def test_files_that_moved_out_of_a_folder_move(collection, root):
    """Files that moved out of a now empty folder are moves; only those not found are kept."""
    before = ids_of(collection)
    (root / "disk/a.bmp").rename(root / "a.bmp")
    later(root / "a.bmp")
    (root / "disk/trip/c.bmp").rename(root / "c.bmp")
    (root / "disk/trip").rmdir()
    (root / "disk/b.bmp").unlink()
    report = index_folder(collection, model(), root)
    assert counts(report) == {"moved": 2, "kept": 1, "unchanged": 1}
    now = ids_of(collection)
    assert (now["a.bmp"], now["c.bmp"]) == (before["disk/a.bmp"], before["disk/trip/c.bmp"])
    assert now["disk/b.bmp"] == before["disk/b.bmp"]


def test_every_empty_folder_is_named(collection, root):
    """Notes name the nearest empty folder, with its number of files."""
    for path in DISK:
        (root / path).unlink()
    report = index_folder(collection, model(), root)
    assert counts(report) == {"kept": 1, "removed": 2, "unchanged": 1}, "disk/trip is empty, disk is not"
    assert report.notes[0].startswith(f"{root}/disk/trip: empty, but held 1 files")


def test_the_folder_nearest_above(tmp_path):
    """Missing folders, and those replaced by files, are skipped on the way up; the root is never returned."""
    for folder in ("empty", "full/inner", "full/gone.d"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "full/file").write_text("x")
    paths = ["a.png", "no/b.png", "empty/c.png", "empty/x/y/d.png", "full/e.png", "full/file/f.png", "full/inner/g.png"]
    assert empty_folders(tmp_path, paths) == {
        "empty/c.png": "empty",
        "empty/x/y/d.png": "empty",
        "full/inner/g.png": "full/inner",
    }

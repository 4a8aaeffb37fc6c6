"""A collection follows its folder and encodes nothing twice."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from tests.index.pipeline.support import (
    counts,
    ids_of,
    later,
    model,
    new_collection,
    save_picture,
    vectors_of,
)
from tests.support_models import build, grid_config

from vse.errors import InputError
from vse.index.pipeline import index_folder
from vse.index.scan import Found, describe


@pytest.fixture
def root(tmp_path):
    """Three images, one of them in a subfolder."""
    for seed, path in enumerate(("a.png", "b.bmp", "trip/c.png")):
        save_picture(tmp_path / "photos", path, seed)
    return tmp_path / "photos"


@pytest.fixture
def collection(tmp_path):
    with new_collection(tmp_path / "index.vse") as made:
        yield made


@pytest.fixture
def index(collection, root):
    """Return a function that brings the collection up to date and returns the report."""
    return lambda **options: index_folder(collection, model(), root, **options)


def test_first_indexing_stores_embedding_and_metadata(index, collection, root):
    """Each image has the model's embedding of its file and the metadata of a scan."""
    report = index(batch_size=2)
    assert counts(report) == {"new": 3}
    assert report.images == 3
    assert report.images_per_second > 0
    for path, ids in ids_of(collection).items():
        assert len(ids) == 1
        np.testing.assert_allclose(collection.vectors(ids), model().encode_images([root / path]), atol=1e-5)
    for file in collection.files():
        status = (root / file.path).stat()
        found = Found(file.path, status.st_size, status.st_mtime_ns, "image")
        assert file == describe(found, str(root))


def test_known_files_are_not_read(index, collection, root):
    """Size and time decide: content replaced under the same size and time goes unnoticed."""
    index()
    before = ids_of(collection)
    status = (root / "a.png").stat()
    (root / "a.png").write_bytes(b"x" * status.st_size)
    os.utime(root / "a.png", ns=(status.st_atime_ns, status.st_mtime_ns))
    report = index()
    assert counts(report) == {"unchanged": 3}
    assert report.images == 0
    assert ids_of(collection) == before


def test_a_touched_file_is_only_updated(index, collection, root):
    """A new time with the same content encodes nothing and keeps the ids; the next run skips the file."""
    index()
    before = ids_of(collection)
    later(root / "a.png")
    report = index()
    assert counts(report) == {"touched": 1, "unchanged": 2}
    assert report.images == 0
    assert ids_of(collection) == before
    assert counts(index()) == {"unchanged": 3}


@pytest.mark.parametrize("path", ["b.bmp", "a.png"])
def test_a_changed_file_is_encoded_again(index, collection, root, path):
    """With the same size (BMP) or another (PNG)."""
    index()
    before = vectors_of(collection, path)
    later(save_picture(root, path, seed=7))
    report = index()
    assert counts(report) == {"changed": 1, "unchanged": 2}
    assert report.images == 1
    np.testing.assert_allclose(vectors_of(collection, path), model().encode_images([root / path]), atol=1e-5)
    assert not np.allclose(vectors_of(collection, path), before)


def test_a_moved_file_keeps_its_ids(index, collection, root):
    """A renamed file with a new time, and one moved with its folder, keep their ids."""
    index()
    before = ids_of(collection)
    (root / "a.png").rename(root / "z.png")
    (root / "trip").rename(root / "journey")
    later(root / "z.png")
    report = index()
    assert counts(report) == {"moved": 2, "unchanged": 1}
    assert report.images == 0
    assert ids_of(collection) == {
        "z.png": before["a.png"],
        "b.bmp": before["b.bmp"],
        "journey/c.png": before["trip/c.png"],
    }
    assert counts(index()) == {"unchanged": 3}


def test_files_that_change_places(index, collection, root):
    """Chains of renames, as when images are renumbered, and swaps are all recognised as moves."""
    for number in range(4):
        save_picture(root, f"n/{number}.bmp", 10 + number)
    index()
    before = ids_of(collection)
    for number in (3, 2, 1, 0):
        (root / f"n/{number}.bmp").rename(root / f"n/{number + 1}.bmp")
        later(root / f"n/{number + 1}.bmp", by=number + 1)
    (root / "a.png").rename(root / "x")
    (root / "trip/c.png").rename(root / "a.png")
    (root / "x").rename(root / "trip/c.png")
    report = index()
    assert counts(report) == {"moved": 6, "unchanged": 1}
    assert report.images == 0
    after = ids_of(collection)
    assert [after[f"n/{number + 1}.bmp"] for number in range(4)] == [before[f"n/{number}.bmp"] for number in range(4)]
    assert (after["a.png"], after["trip/c.png"]) == (before["trip/c.png"], before["a.png"])
    assert counts(index()) == {"unchanged": 7}


def test_a_file_takes_the_place_of_a_moved_one(index, collection, root):
    """The moved file keeps its ids; the one that replaces it is encoded."""
    index()
    before = ids_of(collection)
    (root / "a.png").rename(root / "old.png")
    save_picture(root, "a.png", seed=9)
    report = index()
    assert counts(report) == {"moved": 1, "changed": 1, "unchanged": 2}
    assert ids_of(collection)["old.png"] == before["a.png"]
    np.testing.assert_allclose(vectors_of(collection, "a.png"), model().encode_images([root / "a.png"]), atol=1e-5)


def test_a_deleted_file_is_removed(index, collection, root):
    index()
    (root / "a.png").unlink()
    assert counts(index()) == {"removed": 1, "unchanged": 2}
    assert set(ids_of(collection)) == {"b.bmp", "trip/c.png"}


def test_equal_contents_at_two_places(index, collection, root):
    """A copy is a separate file; each of two equal files can move or be deleted on its own."""
    shutil.copy2(root / "a.png", root / "copy.png")
    assert counts(index()) == {"new": 4}
    shutil.copy2(root / "a.png", root / "third.png")
    assert counts(index()) == {"new": 1, "unchanged": 4}
    before = ids_of(collection)
    (root / "copy.png").rename(root / "trip/copy.png")
    (root / "third.png").unlink()
    assert counts(index()) == {"moved": 1, "removed": 1, "unchanged": 3}
    after = ids_of(collection)
    assert after["a.png"] == before["a.png"]
    assert after["trip/copy.png"] == before["copy.png"]


def test_two_copies_of_a_file_that_is_gone(index, collection, root):
    """The first copy by path takes over the ids; the other is new."""
    index()
    before = ids_of(collection)
    shutil.copy2(root / "a.png", root / "y.png")
    (root / "a.png").rename(root / "x.png")
    assert counts(index()) == {"moved": 1, "new": 1, "unchanged": 2}
    assert ids_of(collection)["x.png"] == before["a.png"]


def test_indexing_keeps_odd_names(index, collection, root):
    """Non-ASCII letters, spaces, quotes and emoji survive the round trip."""
    names = ["Ärger/été 1.png", "雪/犬.png", 'it\'s "q".png', "🐕.png", "a\nb.png"]
    for seed, name in enumerate(names, 20):
        save_picture(root, name, seed)
    assert counts(index()) == {"new": 3 + len(names)}
    assert set(names) <= set(ids_of(collection))
    assert counts(index()) == {"unchanged": 3 + len(names)}
    (root / "雪").rename(root / "neige")
    assert counts(index())["moved"] == 1


def test_indexing_lists_and_retries_unreadable_files(index, collection, root):
    """Unreadable files are reported with the reason and retried; the others are indexed."""
    (root / "empty.jpg").touch()
    (root / "text.jpg").write_text("no picture")
    whole = save_picture(root, "cut.png", seed=5).read_bytes()
    (root / "cut.png").write_bytes(whole[: len(whole) // 2])
    report = index()
    assert counts(report) == {"new": 3, "problems": 3}
    assert [problem.path for problem in report.problems] == ["cut.png", "empty.jpg", "text.jpg"]
    assert report.problems[1].reason == "empty"
    (root / "cut.png").write_bytes(whole)
    assert counts(index()) == {"new": 1, "unchanged": 3, "problems": 2}
    assert "cut.png" in ids_of(collection)


def test_a_known_file_that_became_unreadable(index, collection, root):
    """It keeps its embedding and is reported until it becomes readable or is deleted."""
    index()
    before = ids_of(collection)
    (root / "a.png").write_bytes(b"half")
    assert counts(index()) == {"unchanged": 2, "problems": 1}
    assert ids_of(collection) == before
    save_picture(root, "a.png", seed=3)
    assert counts(index()) == {"changed": 1, "unchanged": 2}


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_indexing_keeps_files_of_missing_root(index, collection, root, tmp_path, how):
    """A missing or empty root keeps all its files, with a note; once it is back, all are known."""
    index()
    before = ids_of(collection)
    root.rename(tmp_path / "away")
    if how == "empty":
        root.mkdir()
    report = index()
    assert counts(report) == {"kept": 3}
    assert "its 3 files stay in the index" in report.notes[0]
    assert ids_of(collection) == before
    if how == "empty":
        root.rmdir()
    (tmp_path / "away").rename(root)
    assert counts(index()) == {"unchanged": 3}


def test_a_place_that_cannot_be_looked_at(index, collection, root, tmp_path):
    """Files behind a dangling symlink are kept; other missing ones are removed."""
    index()
    (root / "trip").rename(tmp_path / "elsewhere")
    (root / "trip").symlink_to(tmp_path / "unplugged")
    (root / "a.png").unlink()
    report = index()
    assert counts(report) == {"kept": 1, "removed": 1, "unchanged": 1, "problems": 1}
    assert set(ids_of(collection)) == {"b.bmp", "trip/c.png"}
    assert "1 files could not be checked" in report.notes[0]


def test_files_that_are_being_written(index, collection, root):
    """They wait, and so does the removal of missing files, which may be the same ones at a new place."""
    index()
    before = ids_of(collection)
    (root / "a.png").rename(root / "new.png")
    save_picture(root, "other.png", seed=8)
    report = index(settled=lambda found: found.path != "new.png")
    assert counts(report) == {"new": 1, "waiting": 2, "unchanged": 2}
    assert counts(index()) == {"moved": 1, "unchanged": 3}
    assert ids_of(collection)["new.png"] == before["a.png"]


def test_indexing_refuses_missing_and_nested_roots(collection, root, tmp_path):
    """A folder that never existed, and one inside or around an indexed one, are errors."""
    with pytest.raises(InputError, match=r"nowhere: no such folder"):
        index_folder(collection, model(), tmp_path / "nowhere")
    index_folder(collection, model(), root)
    for other in (root / "trip", tmp_path):
        with pytest.raises(InputError, match="found twice"):
            index_folder(collection, model(), other)
    assert counts(index_folder(collection, model(), f"{root}/trip/..")) == {"unchanged": 3}


def test_indexing_two_roots_independently(collection, root, tmp_path):
    """Indexing one root removes nothing from the other."""
    save_picture(tmp_path / "more", "a.png", 4)
    index_folder(collection, model(), root)
    assert counts(index_folder(collection, model(), tmp_path / "more")) == {"new": 1}
    assert counts(index_folder(collection, model(), root)) == {"unchanged": 3}
    assert collection.info().files == 4


def test_indexing_refuses_other_models_before_reading(collection, root):
    """Another model than the collection's, and one that takes features, are rejected before anything is read."""
    with pytest.raises(InputError, match=r"vse collection upgrade .* --model"):
        index_folder(collection, build(grid_config(), seed=1), root)
    with pytest.raises(InputError, match="not images"):
        index_folder(collection, build(), root)
    assert collection.info().files == 0

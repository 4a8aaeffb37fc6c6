"""Several folders in one call: files that move between them keep embeddings and ids."""

from __future__ import annotations

import shutil

import pytest
from tests.index.pipeline.support import counts, later, model, new_collection, save_picture
from tests.inputs.video.clips import write_clip

from vse.errors import InputError
from vse.index.pipeline import index_folder, index_folders


@pytest.fixture
def roots(tmp_path):
    """Two folders of three files each."""
    for name in ("one", "two"):
        for seed, path in enumerate(("a.png", "trip/b.png", "c.bmp")):
            save_picture(tmp_path / name, path, seed + 10 * (name == "two"))
    return tmp_path / "one", tmp_path / "two"


@pytest.fixture
def collection(tmp_path):
    with new_collection(tmp_path / "index.vse") as made:
        yield made


def index(collection, *roots):
    return [counts(report) for report in index_folders(collection, model(), roots)]


def ids_by_place(collection):
    found = {}
    for ids, _ in collection.all_vectors():
        for item in collection.items(ids.tolist()):
            found.setdefault(f"{item.file.root}/{item.file.path}", []).append(item.id)
    return found


@pytest.mark.parametrize("order", [1, -1])
def test_a_move_between_folders(collection, roots, order):
    """A renamed, touched image and a video keep their ids, and nothing is encoded, in either order of folders."""
    one, two = roots
    write_clip(one / "clip.mp4", seconds=8.0, rate=5)
    index(collection, *roots)
    before = ids_by_place(collection)
    (one / "a.png").rename(two / "z.png")
    later(two / "z.png")
    (one / "clip.mp4").rename(two / "trip" / "clip.mp4")
    reports = index_folders(collection, model(), roots[::order])[::order]
    assert [counts(report) for report in reports] == [{"unchanged": 2}, {"moved": 2, "unchanged": 3}]
    assert [report.images for report in reports] == [0, 0]
    after = ids_by_place(collection)
    assert after[f"{two}/z.png"] == before[f"{one}/a.png"]
    assert after[f"{two}/trip/clip.mp4"] == before[f"{one}/clip.mp4"]
    assert len(after) == len(before)
    assert index(collection, *roots) == [{"unchanged": 2}, {"unchanged": 5}]


def test_moves_in_both_directions_and_within(collection, roots):
    """All moves are recognised at once; deleted files are removed and new ones encoded."""
    one, two = roots
    index(collection, *roots)
    before = ids_by_place(collection)
    (one / "a.png").rename(two / "from-one.png")
    (two / "a.png").rename(one / "from-two.png")
    (one / "c.bmp").rename(one / "d.bmp")
    (two / "c.bmp").unlink()
    save_picture(two, "new.png", 30)
    assert index(collection, *roots) == [
        {"moved": 2, "unchanged": 1},
        {"new": 1, "moved": 1, "removed": 1, "unchanged": 1},
    ]
    after = ids_by_place(collection)
    assert after[f"{two}/from-one.png"] == before[f"{one}/a.png"]
    assert after[f"{one}/from-two.png"] == before[f"{two}/a.png"]
    assert after[f"{one}/d.bmp"] == before[f"{one}/c.bmp"]
    assert set(after) - set(before) == {
        f"{two}/from-one.png",
        f"{one}/from-two.png",
        f"{one}/d.bmp",
        f"{two}/new.png",
    }


def test_one_file_for_two_copies(collection, roots):
    """A missing file is matched with one copy only, preferably in its own folder."""
    one, two = roots
    index(collection, *roots)
    before = ids_by_place(collection)
    shutil.copy2(one / "a.png", two / "copy.png")
    (one / "a.png").rename(one / "renamed.png")
    assert index(collection, *roots) == [{"moved": 1, "unchanged": 2}, {"new": 1, "unchanged": 3}]
    assert ids_by_place(collection)[f"{one}/renamed.png"] == before[f"{one}/a.png"]


def test_moved_file_is_matched_once_across_folders(collection, roots, tmp_path):
    """A missing file is neither matched in two folders nor kept as if its disk were unmounted."""
    one, two = roots
    three = tmp_path / "three"
    index(collection, *roots)
    before = ids_by_place(collection)
    three.mkdir()
    shutil.copy2(one / "trip" / "b.png", three / "b.png")
    (one / "trip" / "b.png").rename(two / "b.png")
    assert index(collection, *roots, three) == [{"unchanged": 2}, {"moved": 1, "unchanged": 3}, {"new": 1}]
    assert ids_by_place(collection)[f"{two}/b.png"] == before[f"{one}/trip/b.png"]


def test_swapped_files_are_encoded_again(collection, roots):
    """A file moved onto a known path of another folder does not keep its ids: the content is encoded again."""
    one, two = roots
    index(collection, *roots)
    (one / "a.png").rename(two / "a.png")
    later(two / "a.png")
    assert index(collection, *roots) == [{"removed": 1, "unchanged": 2}, {"changed": 1, "unchanged": 2}]


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_folder_that_is_away(collection, roots, tmp_path, how):
    """Files of an absent folder stay, even if another folder has copies of them."""
    one, two = roots
    index(collection, *roots)
    before = ids_by_place(collection)
    shutil.copy2(one / "a.png", two / "copy.png")
    one.rename(tmp_path / "away")
    if how == "empty":
        one.mkdir()
    assert index(collection, *roots) == [{"kept": 3}, {"new": 1, "unchanged": 3}]
    assert {place: ids for place, ids in ids_by_place(collection).items() if place in before} == before


def test_folders_indexed_in_separate_calls(collection, roots):
    """Moves between folders are not recognised across separate calls."""
    one, two = roots
    index(collection, *roots)
    (one / "a.png").rename(two / "z.png")
    assert counts(index_folder(collection, model(), two)) == {"new": 1, "unchanged": 3}
    assert counts(index_folder(collection, model(), one)) == {"removed": 1, "unchanged": 2}


def test_overlapping_folders_are_refused_before_indexing(collection, roots):
    """Overlapping folders are an error before anything is indexed; a folder given twice counts once."""
    one, _ = roots
    with pytest.raises(InputError, match="is given too, and what they share would be found twice"):
        index_folders(collection, model(), [one, one / "trip"])
    assert collection.info().files == 0
    assert index(collection, one, f"{one}/trip/..") == [{"new": 3}]

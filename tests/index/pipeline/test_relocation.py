"""A folder that was moved or renamed keeps its embeddings and ids: told by the user, or recognised by content."""

from __future__ import annotations

import pytest
from tests.index.pipeline.support import counts, later, model, new_collection, save_picture

from vse.errors import InputError
from vse.index.build import relocate_root
from vse.index.pipeline import index_folder


@pytest.fixture
def root(tmp_path):
    for seed, path in enumerate(("a.png", "trip/b.png", "trip/c.png", "d.png")):
        save_picture(tmp_path / "photos", path, seed)
    return tmp_path / "photos"


@pytest.fixture
def collection(tmp_path):
    with new_collection(tmp_path / "index.vse") as made:
        yield made


def ids_by_place(collection):
    blocks = [collection.items(ids.tolist()) for ids, _ in collection.all_vectors()]
    return {(item.file.root, item.file.path): item.id for items in blocks for item in items}


def test_relocated_root_keeps_ids_and_rules(collection, root, tmp_path):
    """Nothing is read again, and the patterns go with the folder."""
    index_folder(collection, model(), root, exclude=["d.png"])
    before = ids_by_place(collection)
    root.rename(tmp_path / "pictures")
    assert relocate_root(collection, root, tmp_path / "pictures") == 3
    assert ids_by_place(collection) == {(str(tmp_path / "pictures"), path): each for (_, path), each in before.items()}
    assert counts(index_folder(collection, model(), tmp_path / "pictures")) == {"unchanged": 3}


def test_relocation_is_refused_where_files_are_absent(collection, root, tmp_path):
    """The message names a file and the way out; with force the folder may be absent, as on another machine."""
    index_folder(collection, model(), root)
    with pytest.raises(InputError, match=r"4 of 4 files looked for are not there, the first is a.png: .* add --force"):
        relocate_root(collection, root, tmp_path / "nowhere")
    assert collection.info().roots == (str(root),)
    assert relocate_root(collection, root, tmp_path / "nowhere", force=True) == 4
    with pytest.raises(InputError, match="is not an indexed folder: expected one of the collection"):
        relocate_root(collection, root, tmp_path / "elsewhere")
    with pytest.raises(InputError, match="the old and the new place are the same"):
        relocate_root(collection, tmp_path / "nowhere", tmp_path / "nowhere")


def test_renamed_root_is_recognised_by_content(collection, root, tmp_path):
    """Most files are found again under other names and times; only what is new is encoded."""
    index_folder(collection, model(), root)
    before = sorted(ids_by_place(collection).values())
    new = tmp_path / "pictures"
    root.rename(new)
    (new / "a.png").rename(new / "z.png")
    later(new / "z.png")
    save_picture(new, "e.png", 9)
    report = index_folder(collection, model(), new)
    assert counts(report) == {"new": 1, "moved": 4}
    assert report.images == 1
    after = ids_by_place(collection)
    assert {place[0] for place in after} == {str(new)}
    assert sorted(after.values())[: len(before)] == before


def test_copies_of_few_files_do_not_move_absent_root(collection, root, tmp_path):
    """Less than half of an unplugged disk found elsewhere are copies; an existing folder is never moved."""
    index_folder(collection, model(), root)
    save_picture(tmp_path / "copies", "a.png", 0)
    save_picture(tmp_path / "copies", "x.png", 8)
    assert counts(index_folder(collection, model(), tmp_path / "copies")) == {"new": 2}
    root.rename(tmp_path / "unplugged")
    save_picture(tmp_path / "more", "a.png", 0)
    assert counts(index_folder(collection, model(), tmp_path / "more")) == {"new": 1}
    assert collection.info().files == 7

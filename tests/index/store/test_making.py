"""Creating a collection: never over files that somebody else put there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.index.examples import VECTORS
from tests.index.support import batch, create, database

from vse._util.locks import FolderLock
from vse.errors import InputError, VSEError
from vse.index.store import EmbeddedCollection, session


@pytest.mark.parametrize(
    "path",
    ["generation-0001/thesis.txt", "generation-0002/cache/photo.jpg", "generation-0001/cache/old/items.json",
     "generation-0001/items.sqlite/photo.jpg", "generation-x/a", ".collection/a", "photo.jpg"],
)  # fmt: skip
def test_folders_of_others_are_refused_and_kept(tmp_path: Path, path: str) -> None:
    """Even a folder named like a generation: it is ours only if it holds nothing but our files."""
    theirs = tmp_path / "folder" / path
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    with pytest.raises(InputError, match=f"holds {path.split('/', maxsplit=1)[0]!r}"):
        create(tmp_path / "folder")
    assert theirs.read_text() == "mine"
    assert [each.name for each in (tmp_path / "folder").iterdir()] == [path.split("/", maxsplit=1)[0]]


def test_a_collection_removes_no_folder_of_others(tmp_path: Path) -> None:
    """Neither an older generation with a foreign file in it, nor a folder where the next generation goes."""
    folder = tmp_path / "collection"
    with create(folder) as writer:
        writer.add(batch(VECTORS))
        note, taken = folder / "generation-0001" / "note.txt", folder / "generation-0003" / "note.txt"
        note.write_text("mine")
        with writer.new_generation(model="new", model_source="s", dimensions=3) as new:
            new.commit()
    taken.parent.mkdir()
    taken.write_text("mine too")
    with EmbeddedCollection.open(folder, write=True) as writer:
        with pytest.raises(InputError, match=r"generation-0003 .*move it elsewhere"):
            writer.new_generation(model="newer", model_source="s", dimensions=3)
        assert (note.read_text(), taken.read_text()) == ("mine", "mine too")
        note.unlink()
    with EmbeddedCollection.open(folder, write=True):
        assert not database(folder, 1).parent.exists()


def test_store_clears_leftovers_of_killed_process(tmp_path: Path) -> None:
    """A lock, a partial header, generations with logs and caches, or an empty one."""
    folder = tmp_path / "collection"
    with create(folder) as writer:
        writer.add(batch(VECTORS))
    for name in ("items.sqlite-wal", "items.sqlite-shm", "cache/.items.json.abc", "cache/items-1.hnsw-new"):
        (folder / "generation-0001" / name).touch()
    (folder / "collection.json").rename(folder / ".collection.json.xyz")
    (folder / "generation-0002").mkdir()
    with create(folder) as writer:
        assert writer.info().files == 0
        assert writer.verify().ok


def test_a_collection_that_is_made_at_the_same_time_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes find an empty folder; the second to get the lock checks again, and releases it."""
    folder = tmp_path / "collection"

    class Late(FolderLock):
        def __init__(self, place: Path) -> None:
            monkeypatch.setattr(session, "FolderLock", FolderLock)
            with create(folder) as first:
                first.add(batch(VECTORS))
            super().__init__(place)

    monkeypatch.setattr(session, "FolderLock", Late)
    with pytest.raises(InputError, match="is already a collection"):
        create(folder)
    with EmbeddedCollection.open(folder, write=True) as writer:
        assert writer.info().files == len(VECTORS)
        assert writer.verify().ok


def test_a_file_is_no_place_for_a_collection(tmp_path: Path) -> None:
    """Creating and opening both fail with a line that says so."""
    (tmp_path / "photos.vse").touch()
    with pytest.raises(InputError, match="is a file, expected"):
        create(tmp_path / "photos.vse")
    with pytest.raises(InputError, match="is not a collection"):
        EmbeddedCollection.open(tmp_path / "photos.vse")


def test_no_lock_remains_when_making_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt succeeds, in the same process too."""
    folder = tmp_path / "collection"

    def full(folder: Path, generation: int, storage: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(session, "write_generation", full)
        with pytest.raises(VSEError, match="No space left"):
            create(folder)
    create(folder).close()

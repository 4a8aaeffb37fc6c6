"""The address of a collection selects its backend; indexing works the same with each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.index.pipeline.support import counts, later, model, save_picture
from tests.inputs.video.clips import write_clip
from tests.support_models import SIZE
from tests.support_rights import ordinary_rights

from vse.errors import InputError, VSEError
from vse.index.open import backend_of, collection_exists, create_collection, open_collection
from vse.index.pipeline import index_folder

ABOUT = {"model": "m", "model_source": "s", "dimensions": 4}


@pytest.mark.parametrize(
    ("address", "backend"),
    [
        ("photos.vse", "embedded"),
        ("photos", "embedded"),
        ("photos.db", "milvus"),
        ("photos.db/", "milvus"),
        ("photos.vse/", "embedded"),
        ("milvus+file:/x/photos.db/", "milvus"),
        ("milvus+file:/x/photos.db", "milvus"),
        ("milvus+https://host/photos", "milvus"),
    ],
)
def test_collection_addresses(address, backend):
    """The prefix ``milvus+`` or the suffix .db means Milvus, anything else is a folder."""
    assert backend_of(address) == backend


def test_invalid_collection_addresses():
    """Empty and malformed addresses are errors, not absent collections."""
    for address in ("", "milvus+http://host", "milvus+ftp://host/name"):
        with pytest.raises(InputError):
            collection_exists(address)


def test_a_name_that_ends_like_a_folder(tmp_path):
    """A trailing slash from shell completion means the same collection."""
    pytest.importorskip("milvus_lite")
    create_collection(f"{tmp_path}/photos.db/", **ABOUT).close()
    for address in (f"{tmp_path}/photos.db", f"{tmp_path}/photos.db/", f"milvus+file:{tmp_path}/photos.db//"):
        assert collection_exists(address)
        collection = open_collection(address)
        assert collection.info().where == f"{tmp_path}/photos.db"
        collection.close()


def test_open_names_file_in_place_of_collection(tmp_path):
    """A file in the place of a collection, or above it, is reported as such."""
    (tmp_path / "note").touch()
    (tmp_path / "note.db").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is a file"):
        collection_exists(f"milvus+file:{tmp_path}/note.db")
    for name in ("note", "note/photos.vse", "note/photos.db", "note.db", "link"):
        for work in (collection_exists, open_collection, lambda where: create_collection(where, **ABOUT)):
            with pytest.raises(InputError, match="is not a folder"):
                work(tmp_path / name)


def test_a_folder_that_may_not_be_entered(tmp_path):
    """An unreadable folder is an error, not an absent collection."""
    (tmp_path / "locked" / "photos.vse").mkdir(parents=True)
    (tmp_path / "locked").chmod(0)
    try:
        with ordinary_rights(), pytest.raises(VSEError, match="Permission denied"):
            collection_exists(tmp_path / "locked" / "photos.vse")
    finally:
        (tmp_path / "locked").chmod(0o700)


@pytest.mark.parametrize("name", ["photos.vse", "photos.db"])
def test_a_collection_of_a_newer_version_exists(tmp_path, name, monkeypatch):
    """A newer format is reported, not mistaken for an absent collection."""
    if name.endswith(".db"):
        pytest.importorskip("milvus_lite")
    monkeypatch.setattr("vse.index.milvus.schema.FORMAT", 99)
    monkeypatch.setattr("vse.index.store.layout.FORMAT", 99)
    create_collection(tmp_path / name, **ABOUT).close()
    monkeypatch.undo()

    def use():
        return collection_exists(tmp_path / name) and open_collection(tmp_path / name)

    with pytest.raises(InputError, match=r"has format 99, expected [12]"):
        use()


@pytest.mark.parametrize("name", ["photos.vse", "photos.db"])
def test_collection_records_moved_model(tmp_path, name):
    """The new location of the model is persistent; nothing else changes."""
    if name.endswith(".db"):
        pytest.importorskip("milvus_lite")
    collection = create_collection(tmp_path / name, **ABOUT)
    before = collection.info()
    collection.set_model_source("/new/place")
    assert collection.info() == replace(before, model_source="/new/place")
    collection.close()
    collection = open_collection(tmp_path / name)
    assert collection.info() == replace(before, model_source="/new/place")
    with pytest.raises(VSEError, match="open for reading only"):
        collection.set_model_source("/elsewhere")
    collection.close()


@pytest.mark.parametrize("name", ["photos.vse", "photos.db"])
def test_a_collection_from_beginning_to_end(tmp_path, name):
    """Create, fill, reopen and update: the counts are the same for both backends."""
    if name.endswith(".db"):
        pytest.importorskip("pymilvus")
        pytest.importorskip("milvus_lite")
    root, where = tmp_path / "media", tmp_path / name
    for seed, path in enumerate(("b.png", "é/a.png", "é.png", "x y/c.png")):
        save_picture(root, path, seed)
    write_clip(root / "d.mp4", seconds=8.0, rate=5)
    (root / "captions.csv").write_text("path,caption\nb.png,snow\n")
    assert not collection_exists(where)
    about = {"model": model().fingerprint(), "model_source": "tiny", "dimensions": SIZE}
    collection = create_collection(where, **about)
    assert counts(index_folder(collection, model(), root)) == {"new": 5}
    collection.close()
    assert collection_exists(where)
    with pytest.raises(InputError):
        open_collection(where, model="another")
    collection = open_collection(where, write=True, model=model().fingerprint())
    (root / "é").rename(root / "z")
    (root / "é.png").unlink()
    later(root / "b.png")
    save_picture(root, "x y/c.png", 9)
    assert counts(index_folder(collection, model(), root)) == {
        "moved": 1,
        "removed": 1,
        "touched": 1,
        "changed": 1,
        "unchanged": 1,
    }
    assert counts(index_folder(collection, model(), root)) == {"unchanged": 4}
    info = collection.info()
    assert (info.files, info.items, info.captions) == (4, 5, 1)
    assert [caption for caption, *_ in collection.search_captions(model().encode_texts(["snow"])[0], 3)] == ["snow"]
    collection.close()

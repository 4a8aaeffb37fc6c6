"""The address of a collection decides what keeps it; indexing does not see the difference."""

from __future__ import annotations

import pytest
from tests.index.scan.clips import write_clip
from tests.index.test_indexing_support import counts, later, model, save_picture
from tests.support_models import SIZE

from vse.errors import InputError
from vse.index.indexing import index_folder
from vse.index.open import backend_of, collection_exists, create_collection, open_collection


@pytest.mark.parametrize(
    ("address", "backend"),
    [
        ("photos.vse", "embedded"),
        ("photos", "embedded"),
        ("photos.db", "milvus"),
        ("milvus+file:/x/photos.db", "milvus"),
        ("milvus+https://host/photos", "milvus"),
    ],
)
def test_addresses(address, backend):
    """A prefix or the ending .db means Milvus, everything else is a folder."""
    assert backend_of(address) == backend


def test_bad_addresses():
    """Nothing, and addresses of Milvus that cannot be read, which are not taken for absent collections."""
    for address in ("", "milvus+http://host", "milvus+ftp://host/name"):
        with pytest.raises(InputError):
            collection_exists(address)


@pytest.mark.parametrize("name", ["photos.vse", "photos.db"])
def test_a_collection_from_beginning_to_end(tmp_path, name):
    """Made, filled, opened again, brought up to date: the same counts whatever keeps it."""
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
        "skipped": 1,
    }
    assert counts(index_folder(collection, model(), root)) == {"skipped": 4}
    info = collection.info()
    assert (info.files, info.items, info.captions) == (4, 5, 1)
    assert [caption for caption, *_ in collection.search_captions(model().encode_texts(["snow"])[0], 3)] == ["snow"]
    collection.close()

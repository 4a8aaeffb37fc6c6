"""Metadata and sidecars are indexed as words, and their changes cost no embedding."""

from __future__ import annotations

import os
import sqlite3
import sys
from dataclasses import replace

import pytest
from PIL import Image, ImageDraw, ImageFont
from tests.index.pipeline.support import counts, ids_of, later, model, new_collection, save_picture, vectors_of
from tests.index.scan.metadata_support import camera_exif, iptc, takeout, titled, with_app13
from tests.index.scan.support import gps_of
from tests.index.upgrade.support import other
from tests.inputs.video.clips import write_clip

from vse.errors import InputError, MissingDependencyError
from vse.index import Filter
from vse.index.pipeline import index_folder
from vse.index.pipeline.updates import read_texts
from vse.index.scan import ScanLimits
from vse.index.scan.metadata import METADATA_VERSION
from vse.index.scan.ocr import check_ocr
from vse.index.store import EmbeddedCollection
from vse.index.upgrade.run import upgrade_collection
from vse.progress import SilentProgress


@pytest.fixture
def root(tmp_path):
    """Two images: one with a camera and coordinates, one with a sidecar."""
    folder = tmp_path / "photos"
    exif = camera_exif(make="Canon", model="Canon EOS 80D")
    exif.get_ifd(0x8825).update(gps_of((48.0, 8.0, 15.0), (11.0, 34.0, 30.0)))
    save_picture(folder, "a.jpg", 1, exif=exif)
    save_picture(folder, "b.png", 2)
    (folder / "b.xmp").write_bytes(titled("Aunt Mathilda", "Quito"))
    return folder


@pytest.fixture
def collection(tmp_path):
    with new_collection(tmp_path / "index.vse") as made:
        yield made


def known(collection):
    return {file.path: file for file in collection.files()}


def found(collection, **conditions):
    """Return the paths of the files that match a filter."""
    return [item.file.path for item in collection.recent(10, where=Filter(**conditions))]


def state(collection):
    """Return ids and embeddings, which no update of metadata changes."""
    return ids_of(collection), {path: vectors_of(collection, path).tolist() for path in ids_of(collection)}


def test_metadata_is_found_by_words(collection, root):
    assert counts(index_folder(collection, model(), root)) == {"new": 2}
    assert found(collection, camera="eos 80d") == ["a.jpg"]
    assert found(collection, place="munich") == ["a.jpg"]
    assert found(collection, words=("aunt mathilda",)) == ["b.png"]
    assert found(collection, words=("quito",)) == ["b.png"]
    assert known(collection)["a.jpg"].place == "Munich, Bavaria, Germany"
    assert collection.verify().problems == ()
    assert counts(index_folder(collection, model(), root)) == {"unchanged": 2}


def test_changed_sidecar_updates_words_alone(collection, root):
    """A new, a changed and a deleted sidecar: no image is encoded, and ids and embeddings stay."""
    index_folder(collection, model(), root)
    before = state(collection)
    (root / "b.xmp").write_bytes(titled("Uncle Theodor", "Lima"))
    (root / "a.jpg.json").write_text(takeout(description="a birthday cake", people=[{"name": "Ada"}]))
    report = index_folder(collection, model(), root)
    assert (counts(report), report.images) == ({"touched": 2}, 0)
    assert found(collection, words=("theodor",)) == ["b.png"]
    assert found(collection, words=("mathilda",)) == []
    assert found(collection, words=("birthday cake",)) == found(collection, words=("ada",)) == ["a.jpg"]
    (root / "b.xmp").unlink()
    assert counts(index_folder(collection, model(), root)) == {"touched": 1, "unchanged": 1}
    assert known(collection)["b.png"].title is None
    assert state(collection) == before
    assert collection.verify().problems == ()
    assert counts(index_folder(collection, model(), root)) == {"unchanged": 2}


def test_sidecar_follows_moved_image(collection, root):
    """Image and sidecar move together, then the image alone; a touched image keeps its words."""
    index_folder(collection, model(), root)
    before = state(collection)[0]
    (root / "trip").mkdir()
    for name in ("b.png", "b.xmp"):
        (root / name).rename(root / "trip" / name)
    assert counts(index_folder(collection, model(), root)) == {"moved": 1, "unchanged": 1}
    assert known(collection)["trip/b.png"].title == "Aunt Mathilda"
    later(root / "trip" / "b.png")
    assert counts(index_folder(collection, model(), root)) == {"touched": 1, "unchanged": 1}
    (root / "trip" / "b.png").rename(root / "c.png")
    assert counts(index_folder(collection, model(), root)) == {"moved": 1, "unchanged": 1}
    assert known(collection)["c.png"].title is None
    assert ids_of(collection)["c.png"] == before["b.png"]


def test_older_collection_gets_metadata_without_encoding(collection, root):
    """Files of a version that read no metadata; the second run has nothing to do."""
    index_folder(collection, model(), root)
    whole, before = known(collection), state(collection)
    plain = [
        replace(file, camera=None, place=None, title=None, keywords=(), metadata_version=0) for file in whole.values()
    ]
    collection.move([((file.root, file.path), file) for file in plain])
    assert found(collection, camera="eos") == []
    report = index_folder(collection, model(), root)
    assert (counts(report), report.images) == ({"touched": 2}, 0)
    assert known(collection) == whole
    assert state(collection) == before
    assert counts(index_folder(collection, model(), root)) == {"unchanged": 2}


def test_collection_of_first_version_gets_metadata(tmp_path, root):
    """Its database has no table for it yet."""
    with new_collection(tmp_path / "old.vse") as collection:
        index_folder(collection, model(), root)
        before = state(collection)
    (database,) = (tmp_path / "old.vse").rglob("*.sqlite")
    with sqlite3.connect(database) as connection:
        for trigger in ("words_added", "words_removed"):
            connection.execute(f"DROP TRIGGER {trigger}")
        for table in ("word_index", "words", "details"):
            connection.execute(f"DROP TABLE {table}")
    connection.close()
    with EmbeddedCollection.open(tmp_path / "old.vse", write=True) as collection:
        report = index_folder(collection, model(), root)
        assert (counts(report), report.images) == ({"touched": 2}, 0)
        assert found(collection, words=("mathilda",)) == ["b.png"]
        assert state(collection) == before


def test_interrupted_backfill_resumes(collection, root, monkeypatch):
    """An error after the first block keeps what it wrote, and the next run reads the rest alone."""
    index_folder(collection, model(), root)
    whole, before = known(collection), state(collection)
    collection.move([((file.root, file.path), replace(file, metadata_version=0)) for file in whole.values()])
    monkeypatch.setattr("vse.index.pipeline.plan.BLOCK", 1)
    move = collection.move

    def failing(moves, **options):
        monkeypatch.setattr(collection, "move", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        move(moves, **options)

    monkeypatch.setattr(collection, "move", failing)
    with pytest.raises(KeyboardInterrupt):
        index_folder(collection, model(), root)
    monkeypatch.setattr(collection, "move", move)
    assert counts(index_folder(collection, model(), root)) == {"touched": 1, "unchanged": 1}
    assert known(collection) == whole
    assert state(collection) == before


def test_unreadable_image_keeps_its_metadata(collection, root):
    """A file that cannot be read for its metadata is a problem; what was known stays and it is retried."""
    index_folder(collection, model(), root)
    file = known(collection)["a.jpg"]
    collection.move([((file.root, file.path), replace(file, metadata_version=0))])
    content, status = (root / "a.jpg").read_bytes(), (root / "a.jpg").stat()
    (root / "a.jpg").write_bytes(b"?" * len(content))
    os.utime(root / "a.jpg", ns=(status.st_atime_ns, status.st_mtime_ns))
    report = index_folder(collection, model(), root)
    assert [problem.path for problem in report.problems] == ["a.jpg"]
    assert known(collection)["a.jpg"].camera == "Canon EOS 80D"
    (root / "a.jpg").write_bytes(content)
    os.utime(root / "a.jpg", ns=(status.st_atime_ns, status.st_mtime_ns))
    index_folder(collection, model(), root)
    assert known(collection)["a.jpg"].metadata_version == METADATA_VERSION


def test_live_photo_has_one_result(collection, root):
    """A video that was indexed alone is removed once its image is there, and comes back without it."""
    write_clip(root / "c.mov", seconds=2)
    assert counts(index_folder(collection, model(), root)) == {"new": 3}
    save_picture(root, "c.jpg", 3)
    report = index_folder(collection, model(), root)
    assert (counts(report), report.live_videos) == ({"new": 1, "removed": 1, "unchanged": 2}, 1)
    assert report.to_json()["live_videos"] == 1
    (root / "c.jpg").unlink()
    assert counts(index_folder(collection, model(), root)) == {"new": 1, "removed": 1, "unchanged": 2}


def test_video_tags_are_found(collection, root):
    tags = {"title": "Regatta", "comment": "off Valparaiso", "make": "Apple", "model": "iPhone 12",
            "location": "+48.1370+011.5750/"}  # fmt: skip
    write_clip(root / "clip.mov", seconds=1, metadata=tags, options={"movflags": "use_metadata_tags"})
    index_folder(collection, model(), root)
    file = known(collection)["clip.mov"]
    assert (file.title, file.description, file.camera) == ("Regatta", "off Valparaiso", "Apple iPhone 12")
    assert file.place == "Munich, Bavaria, Germany"
    assert found(collection, words=("regatta",)) == ["clip.mov"]
    collection.move([((file.root, file.path), replace(file, title=None, metadata_version=0))])
    index_folder(collection, model(), root)
    assert known(collection)["clip.mov"] == file


def test_hostile_metadata_never_fails_indexing(collection, root):
    """Entities, packets that are huge or cut, and records whose lengths lie: every image is indexed."""
    laughs = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    save_picture(root, "laughs.jpg", 3, xmp=laughs + titled("&b;"))
    save_picture(root, "huge.webp", 4, xmp=titled("x" * 10_000_000))
    save_picture(root, "cut.jpg", 5, xmp=titled("kept", "lost")[:-110])
    save_picture(root, "record.jpg", 6)
    jpeg = (root / "record.jpg").read_bytes()
    (root / "record.jpg").write_bytes(with_app13(jpeg, iptc((5, b"fine")) + b"\x1c\x02\x19\xff\xff\xff"))
    save_picture(root, "sidecar.jpg", 7)
    (root / "sidecar.xmp").write_bytes(laughs + titled("&b;"))
    (root / "sidecar.jpg.json").write_bytes(b"[" * 50_000)
    report = index_folder(collection, model(), root)
    assert (counts(report), report.problems) == ({"new": 7}, ())
    titles = {path: file.title for path, file in known(collection).items() if file.title}
    assert titles == {"b.png": "Aunt Mathilda", "cut.jpg": "kept", "record.jpg": "fine"}


def sign(path, text):
    image = Image.new("RGB", (640, 200), "white")
    ImageDraw.Draw(image).text((30, 60), text, font=ImageFont.load_default(56), fill="black")
    image.save(path)


@pytest.fixture
def ocr():
    try:
        check_ocr()
    except MissingDependencyError:
        pytest.skip("RapidOCR is not installed")


def test_ocr_finds_text_in_images(collection, root, ocr):
    """Images indexed before are read too, once, without encoding; the choice is remembered, and can be revoked."""
    sign(root / "sign.png", "Happy Birthday")
    index_folder(collection, model(), root)
    before = state(collection)
    assert known(collection)["sign.png"].ocr is None
    report = index_folder(collection, model(), root, ocr=True)
    assert (report.ocr, report.images, counts(report)) == (3, 0, {"unchanged": 3})
    assert found(collection, words=("birthday",)) == ["sign.png"]
    assert {file.ocr for path, file in known(collection).items() if path != "sign.png"} == {""}
    assert state(collection) == before
    sign(root / "more.png", "Railway Station")
    assert index_folder(collection, model(), root).ocr == 1
    assert found(collection, words=("railway station",)) == ["more.png"]
    (root / "sign.png").rename(root / "moved.png")
    index_folder(collection, model(), root, ocr=False)
    assert found(collection, words=("birthday",)) == ["moved.png"]
    sign(root / "last.png", "No Entry")
    assert index_folder(collection, model(), root).ocr == 0
    assert collection.verify().problems == ()


def test_ocr_without_its_extra_is_one_line(collection, root, monkeypatch):
    """Asked for, it is an error before anything is read; remembered, it is a note."""
    collection.set_settings({"folders": {str(root): {"ocr": True}}})
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(MissingDependencyError, match=r"rapidocr"):
        index_folder(collection, model(), root, ocr=True)
    assert not list(collection.files())
    report = index_folder(collection, model(), root)
    assert counts(report) == {"new": 2}
    assert any("rapidocr" in note and "--no-ocr" in note for note in report.notes)


def test_ocr_of_unreadable_image_is_empty(collection, root, ocr):
    index_folder(collection, model(), root)
    (root / "a.jpg").unlink()
    assert read_texts(collection, str(root), ScanLimits(), SilentProgress()) == 2
    assert {file.ocr for file in collection.files()} == {""}


def test_rules_with_ocr_need_local_index(collection, root, monkeypatch, ocr):
    monkeypatch.setattr("vse.index.pipeline.folder.keeps_details", lambda _: False)
    with pytest.raises(InputError, match="Milvus"):
        index_folder(collection, model(), root, ocr=True)


def test_upgrade_keeps_metadata_and_text(tmp_path, root):
    """Another model re-encodes the files; what sidecars and OCR said about them stays."""
    with new_collection(tmp_path / "up.vse") as collection:
        index_folder(collection, model(), root)
        file = known(collection)["b.png"]
        collection.move([((file.root, file.path), replace(file, ocr="no entry"))])
        before = known(collection)
        upgrade_collection(collection, other(), "other")
    with EmbeddedCollection.open(tmp_path / "up.vse", write=True) as collection:
        assert known(collection) == before
        assert found(collection, words=("no entry",)) == found(collection, words=("mathilda",)) == ["b.png"]
        assert counts(index_folder(collection, other(), root)) == {"unchanged": 2}

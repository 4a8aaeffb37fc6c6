"""Generations in Milvus: what is dropped and when, and what readers are told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.index.conformance_generations import NEW, ids_of, next_generation
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, entry, picture
from tests.index.support import batch

from vse.errors import InputError, VSEError
from vse.index.milvus import MilvusCollection
from vse.index.milvus.tables import Tables, part_of
from vse.index.upgrade.run import discard_upgrade

pytest.importorskip("milvus_lite")
FIRST = {"vse_g1", "vse_g1_captions", "vse_g1_meta"}
SECOND = {"vse_g2", "vse_g2_captions", "vse_g2_meta"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "photos.db"
    with MilvusCollection.create(place, model="old", model_source="s", dimensions=DIMENSIONS) as writer:
        writer.add(batch(VECTORS))
    return place


def switch(folder: Path) -> None:
    with MilvusCollection.open(folder, write=True) as writer:
        new = next_generation(writer)
        new.add(batch(NEW))
        new.commit()


def names(collection: MilvusCollection) -> set[str]:
    """The names of all Milvus collections; the first generation has a token in it."""
    return {re.sub(r"_g1_[0-9a-f]{8}", "_g1", name) for name in collection.tables.connection.names()}


def test_the_next_writer_drops_what_nobody_needs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Readers drop nothing; after the drop, each read of the old generation fails with one line."""
    with MilvusCollection.open(folder) as reader:
        switch(folder)
        with MilvusCollection.open(folder) as other:
            assert names(other) == FIRST | SECOND
            assert other.tables.connection.target("vse") == "vse_g2"
        assert len(reader.search(QUERIES[0], 100).ids) == len(VECTORS)
        with MilvusCollection.open(folder, write=True) as writer:
            assert names(writer) == SECOND
            assert writer.info().files == len(NEW)
        for read in (
            reader.info,
            lambda: reader.search(QUERIES[0], 1),
            lambda: reader.search_captions(QUERIES[0], 1),
            lambda: list(reader.files()),
            lambda: reader.vectors([1]),
        ):
            with pytest.raises(VSEError, match="switched to a newer generation: open it again"):
                read()
        assert reader.superseded
    assert capfd.readouterr() == ("", "")


def test_unfinished_upgrade_is_reported_and_discarded(folder: Path) -> None:
    """Readers see its model and files too; other writers keep it, and discarding it keeps the serving generation."""
    with MilvusCollection.open(folder, write=True) as writer:
        assert writer.unfinished() is None
        with pytest.raises(InputError, match="has no unfinished upgrade"):
            discard_upgrade(writer)
        new = next_generation(writer)
        new.add(batch(NEW[:3]))
        expected = new.info()
        assert (expected.generation, expected.files) == (2, 3)
        with pytest.raises(VSEError, match="is not serving yet"):
            next_generation(new)
        new.close()
    with MilvusCollection.open(folder) as reader:
        assert reader.unfinished() == expected
    with MilvusCollection.open(folder, write=True) as writer:
        writer.add([entry("more.jpg", VECTORS[0])])
        assert names(writer) == FIRST | SECOND
        assert discard_upgrade(writer) == expected
        assert (writer.unfinished(), names(writer)) == (None, FIRST)
        assert writer.info().files == len(VECTORS) + 1


def test_open_retries_during_switch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening looks up the serving generation again when the one it found is gone."""
    load = Tables.load

    def interrupted(self: Tables) -> bool:
        monkeypatch.undo()
        switch(folder)
        MilvusCollection.open(folder, write=True).close()
        return load(self)

    monkeypatch.setattr(Tables, "load", interrupted)
    with MilvusCollection.open(folder) as reader:
        assert (reader.info().generation, len(reader.search(NEW[0], 100).ids)) == (2, len(NEW))


def test_milvus_move_during_upgrade_reuses_no_id(folder: Path) -> None:
    """An id that the new generation assigned to the old place is not assigned to the new place as well."""
    with MilvusCollection.open(folder, write=True) as writer:
        new = next_generation(writer)
        new.add(batch(NEW[:1]))
        moved = picture("moved.jpg", captions=("caption 0",))
        writer.move([(("/photos", "00000.jpg"), moved)])
        new.add([replace(batch(NEW[:1])[0], file=moved)])
        ids = ids_of(new)
        assert ids["00000.jpg"] == ids_of(writer)["moved.jpg"] != ids["moved.jpg"]
        new.close()
        new = next_generation(writer)
        assert ids_of(new) == {}, "one is elsewhere by now, the other has another id"
        new.add([replace(batch(NEW[:1])[0], file=moved)])
        assert ids_of(new) == {"moved.jpg": ids_of(writer)["moved.jpg"]}
        new.close()
        writer.add(batch(VECTORS[:1]))
        assert ids_of(writer)["00000.jpg"] != ids_of(writer)["moved.jpg"], "a copy at the old place has its own id"


def test_parts_of_other_collections_are_told_apart() -> None:
    """By their full names."""
    ours = {
        "photos_g1": (1, "", "items"),
        "photos_g1_0123abcd": (1, "0123abcd", "items"),
        "photos_g2_captions": (2, "", "captions"),
        "photos_g12_0123abcd_meta": (12, "0123abcd", "meta"),
    }
    others = ["photos", "photos2_g1", "photos_gallery", "photos_g", "photos_g02", "my_photos_g1", "photos_g2_more"]
    assert {name: part_of("photos", name) for name in ours} == ours
    assert {part_of("photos", name) for name in others} == {None}

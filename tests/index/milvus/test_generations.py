"""Generations in Milvus: what is dropped and when, what readers are told, and changes that fail halfway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.index.conformance_generations import NEW, ids_of, next_generation
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, entry, picture
from tests.index.support import batch

from vse.errors import InputError, VSEError
from vse.index.milvus import MilvusCollection
from vse.index.milvus.schema import State, generation_of
from vse.index.milvus.tables import Ledger, Tables
from vse.index.types import NextGeneration
from vse.index.upgrade.run import discard_upgrade

pytest.importorskip("milvus_lite")
FIRST = {"vse", "vse_captions"}
SECOND = {"vse_g2", "vse_g2_captions"}


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
    return set(collection.tables.connection.names()) - {"vse_meta"}


def test_the_next_writer_drops_what_nobody_needs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Readers drop nothing; after the drop, each read of the old generation fails with one line."""
    with MilvusCollection.open(folder) as reader:
        switch(folder)
        assert names(reader) == FIRST | SECOND | {"vse_g2_meta"}
        with MilvusCollection.open(folder) as other:
            assert names(other) == FIRST | SECOND | {"vse_g2_meta"}
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


def test_a_generation_that_is_being_made_is_kept_by_other_writers(folder: Path) -> None:
    """Until it is committed or discarded."""
    with MilvusCollection.open(folder, write=True) as writer:
        next_generation(writer).close()
    with MilvusCollection.open(folder, write=True) as writer:
        writer.add([entry("more.jpg", VECTORS[0])])
        assert names(writer) == FIRST | SECOND | {"vse_g2_meta"}
        new = next_generation(writer)
        with pytest.raises(VSEError, match="is not serving yet"):
            next_generation(new)
        new.discard()
        assert names(writer) == FIRST


def test_unfinished_upgrade_is_reported_and_discarded(folder: Path) -> None:
    """Readers see its model and files too; discarding it keeps the serving generation."""
    with MilvusCollection.open(folder, write=True) as writer:
        assert writer.unfinished() is None
        with pytest.raises(InputError, match="has no unfinished upgrade"):
            discard_upgrade(writer)
        new = next_generation(writer)
        new.add(batch(NEW[:3]))
        expected = new.info()
        assert (expected.generation, expected.files) == (2, 3)
        new.close()
    with MilvusCollection.open(folder) as reader:
        assert reader.unfinished() == expected
    with MilvusCollection.open(folder, write=True) as writer:
        assert discard_upgrade(writer) == expected
        assert (writer.unfinished(), names(writer)) == (None, FIRST)
        assert writer.info().files == len(VECTORS)


def before_first(patch: pytest.MonkeyPatch, method: str, work: Callable[[], None]) -> None:
    """Run ``work`` right before the first call of a method of the tables."""
    original = getattr(Tables, method)

    def interrupted(self: Tables, *arguments: object, **options: object) -> object:
        patch.undo()
        work()
        return original(self, *arguments, **options)

    patch.setattr(Tables, method, interrupted)


def switch_and_drop(folder: Path) -> None:
    switch(folder)
    MilvusCollection.open(folder, write=True).close()


@pytest.mark.parametrize("method", ["nearest", "query"])
@pytest.mark.parametrize(("work", "told"), [(switch, False), (switch_and_drop, True)])
def test_read_during_switch_stays_with_old_generation(
    folder: Path, monkeypatch: pytest.MonkeyPatch, method: str, work: Callable[[Path], None], told: bool
) -> None:
    """The read sees the old generation while it exists and fails afterwards; it never sees the new one."""
    with MilvusCollection.open(folder) as reader:

        def read() -> float:
            return float(reader.search(VECTORS[0], 1).scores[0] if method == "nearest" else reader.vectors([1])[0, 0])

        before = read()
        before_first(monkeypatch, method, lambda: work(folder))
        if told:
            with pytest.raises(VSEError, match="newer generation"):
                read()
        else:
            assert read() == before


def test_open_retries_during_switch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening looks up the serving generation again when the one it found is gone."""
    before_first(monkeypatch, "load", lambda: switch_and_drop(folder))
    with MilvusCollection.open(folder) as reader:
        assert (reader.info().generation, len(reader.search(NEW[0], 100).ids)) == (2, len(NEW))


def test_a_commit_that_fails_can_be_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the row was not written, the old generation serves and changes; if only the reply was lost, it is done."""
    publish = Ledger.publish

    def cut(self: Ledger, state: State) -> None:
        if state.generation == 3 and self.table == "vse_meta":
            publish(self, state)
        raise VSEError("the line is cut")

    with MilvusCollection.open(folder, write=True) as writer:
        new = next_generation(writer)
        new.add(batch(NEW))
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "publish", cut)
            with pytest.raises(VSEError, match="cut"):
                new.commit()
        writer.add([entry("more.jpg", VECTORS[0])])
        assert (writer.superseded, writer.info().files) == (False, len(VECTORS) + 1)
        new.commit()
    with MilvusCollection.open(folder, write=True) as writer:
        new = next_generation(writer, "third")
        new.add(batch(NEW[:2]))
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "publish", cut)
            new.commit()
        assert writer.superseded


def filled(writer: MilvusCollection, changes: int) -> NextGeneration:
    new = next_generation(writer)
    for _ in range(changes):
        new.add(batch(NEW))
    return new


def test_a_switch_that_arrives_late_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had failed and the old generation was changed since: that one wins, whatever the new one's batch."""
    late: list[tuple[Ledger, State]] = []
    publish = Ledger.publish

    def delayed(self: Ledger, state: State) -> None:
        if self.table == "vse_meta" and state.generation == 2:
            late.append((self, state))
            raise VSEError("the line is cut")
        publish(self, state)

    with MilvusCollection.open(folder, write=True) as writer:
        new = filled(writer, 9)
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "publish", delayed)
            with pytest.raises(VSEError, match="cut"):
                new.commit()
        writer.add([entry("more.jpg", VECTORS[0])])
        publish(*late[0])
        assert not writer.superseded
        writer.add([entry("again.jpg", VECTORS[0])])
        with MilvusCollection.open(folder) as reader:
            assert (reader.info().generation, len(list(reader.files()))) == (1, len(VECTORS) + 2)
        for _ in range(9):
            new.add(batch(NEW))
        new.commit()
    with MilvusCollection.open(folder) as reader:
        assert (reader.info().generation, len(list(reader.files()))) == (2, len(NEW))


@pytest.mark.parametrize("step", ["insert", "rewrite", "delete"])
def test_half_a_change_of_the_new_generation_is_not_committed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """``commit`` cleans up what a failed change left, and what a successful one could not delete."""
    with MilvusCollection.open(folder, write=True) as writer:
        new = filled(writer, 1)
        done = getattr(Tables, step)

        def fail(self: Tables, table: str, rows: Sequence[object]) -> None:
            if step != "delete":
                done(self, table, rows)
            raise VSEError("the line is cut")

        with monkeypatch.context() as patch:
            patch.setattr(Tables, step, fail)
            if step == "delete":
                new.remove([("/photos", "00000.jpg")])
            else:
                with pytest.raises(VSEError, match="cut"):
                    new.add(batch(NEW[:3]))
        new.commit()
    left = len(NEW) - (step == "delete")
    with MilvusCollection.open(folder, write=True) as writer:
        assert writer.info().files == len(list(writer.files())) == left
        assert len(writer.search(NEW[0], 100).ids) == len(writer.search_captions(NEW[0], 100)) == left
        assert len(writer.tables.query("items", "row >= 0", ["row"])) == left


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


def test_recreated_collection_drops_old_generations(folder: Path) -> None:
    """Nothing of an earlier collection of the same name is resumed."""
    with MilvusCollection.open(folder, write=True) as writer:
        filled(writer, 1).close()
        writer.tables.connection.drop("vse_meta")
    with MilvusCollection.create(folder, model="old", model_source="s", dimensions=DIMENSIONS) as writer:
        assert names(writer) == FIRST
        assert next_generation(writer).info().files == 0


def test_parts_of_other_collections_are_told_apart() -> None:
    """By their full names."""
    ours = {"photos": 1, "photos_captions": 1, "photos_meta": 1, "photos_g2": 2, "photos_g12_meta": 12}
    others = [
        "photos2",
        "photos_gallery",
        "photos_g",
        "photos_g1",
        "photos_g02",
        "my_photos",
        "photos_g2_more",
        "photos_meta_captions",
    ]
    assert {name: generation_of("photos", name) for name in ours} == ours
    assert {generation_of("photos", name) for name in others} == {None}

"""A process that changes Milvus Lite is killed at any moment: acknowledged changes are there, and repeating heals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.index.conformance_generations import ids_of
from tests.index.crash import kill_again_and_again
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, directions
from tests.index.support import batch

from vse.index.milvus import MilvusCollection
from vse.index.milvus.connection import Connection
from vse.index.types import Collection

pytest.importorskip("milvus_lite")
TUNING = "from vse.index.milvus import tables; tables.FLUSH_AFTER = 12"  # so that kills also hit flushes


def create(folder: Path) -> MilvusCollection:
    return MilvusCollection.create(folder, model="m1", model_source="s", dimensions=DIMENSIONS)


def check(reader: Collection, files: int) -> None:
    """Check counts and searches; captions of the batch under way may be missing or wait for their files."""
    info = reader.info()
    assert info.files == info.items == files
    assert len(reader.search(QUERIES[0], 10**6).ids) == info.items
    found = reader.search_captions(QUERIES[0], 10**6)
    assert files - 5 <= len(found) <= files
    assert len(reader.items([item for _, item, _ in found])) == len(found), "a caption leads to its file"


def check_whole(reader: Collection, files: int) -> None:
    """Check that nothing is missing and nothing is left over."""
    check(reader, files)
    assert len(reader.search_captions(QUERIES[0], 10**6)) == reader.info().captions == files


@pytest.mark.slow
def test_milvus_survives_kill_at_any_moment(tmp_path: Path) -> None:
    """On Milvus Lite a batch of images is complete or absent; a caption always leads to a file."""
    folder = tmp_path / "photos.db"
    create(folder).close()
    kill_again_and_again(folder, TUNING, times=5, longest=0.5, check=check)


class Killed(BaseException):
    """The process is killed here."""


@contextmanager
def dying_at(call: int) -> Iterator[list[int]]:
    """Stop everything at the n-th use of Milvus; yield the number of uses so far."""
    using, count = Connection.using, [0]

    def counted(self: Connection) -> Any:
        count[0] += 1
        if count[0] >= call:
            raise Killed
        return using(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "using", counted)
        yield count


@pytest.mark.slow
def test_milvus_change_is_repeated_after_kill_at_each_call(tmp_path: Path) -> None:
    """Whatever call of Milvus a change stops at, repeating it gives the same files, items and captions."""
    changed = [batch(directions(3, seed=5), "x")[0], *batch(directions(3, seed=6))]
    with create(tmp_path / "photos.db") as writer:
        for call in range(1, 100):
            writer.add(batch(VECTORS))
            writer.remove([("/photos", "x00000.jpg")])
            done = False
            with suppress(Killed), dying_at(call):
                writer.add(changed)
                writer.move([(("/photos", "x00000.jpg"), changed[1].file)])
                done = True
            list(writer.files())  # deletes what was replaced
            writer.add(changed)
            check_whole(writer, len(VECTORS) + 1)
            if done:
                break
        assert done


@pytest.mark.slow
def test_upgrade_survives_kill_at_each_call(tmp_path: Path) -> None:
    """Readers find one complete generation, the old or the new one, and a retried upgrade succeeds."""
    folder = tmp_path / "photos.db"
    with create(folder) as writer:
        writer.add(batch(VECTORS))
        before = ids_of(writer)

    def upgrade(to: str, seed: int) -> None:
        with MilvusCollection.open(folder, write=True) as writer:
            if writer.info().model == to:
                return
            with writer.new_generation(model=to, model_source="s", dimensions=DIMENSIONS) as new:
                vectors = directions(len(VECTORS), seed=seed)
                new.add(batch(vectors[:4]))
                new.add(batch(vectors))
                new.commit()

    with dying_at(10**6) as count:
        upgrade("m2", 2)
    calls = sorted({*range(1, count[0], 9), *range(count[0] - 6, count[0] + 1)})  # the switch is near the end
    for number, call in enumerate(calls, start=3):
        with suppress(Killed), dying_at(call):
            upgrade(f"m{number}", number)
        with MilvusCollection.open(folder) as reader:
            assert reader.info().model in (f"m{number - 1}", f"m{number}")
            check_whole(reader, len(VECTORS))
        upgrade(f"m{number}", number)
    with MilvusCollection.open(folder, write=True) as writer:
        assert writer.info().model == f"m{number}"
        check_whole(writer, len(VECTORS))
        assert ids_of(writer) == before, "items keep their ids"
        assert len(writer.tables.connection.names()) == 3, "older generations are dropped"


@pytest.mark.parametrize("left", [0, 100, -1], ids=["nothing", "the header", "all but a byte"])
def test_truncated_indexes_are_rebuilt(tmp_path: Path, left: int) -> None:
    """Milvus Lite writes them in place, and would reject the collection: they are rebuilt, and nothing is lost."""
    folder = tmp_path / "photos.db"
    with create(folder) as writer:
        writer.add(batch(VECTORS))
        expected = writer.search(QUERIES[0], 20)
    torn = list(folder.glob("**/indexes/*"))
    assert torn
    for path in torn:
        path.write_bytes(path.read_bytes()[:left])
    with MilvusCollection.open(folder, write=True) as writer:
        assert writer.search(QUERIES[0], 20).ids.tolist() == expected.ids.tolist()
        assert writer.info().files == len(VECTORS)

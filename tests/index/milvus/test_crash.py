"""A process that changes Milvus Lite is killed at any moment: acknowledged changes are there, and none is partial."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.index.crash import kill_again_and_again, killed
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, directions
from tests.index.support import batch

from vse.index.milvus import MilvusCollection
from vse.index.milvus.connection import Connection
from vse.index.types import Collection

pytest.importorskip("milvus_lite")
TUNING = "from vse.index.milvus import tables; tables.FLUSH_AFTER = 12"  # so that kills also hit flushes
FILES = 20
UPGRADING = """
    import sys
    from tests.index.examples import directions
    from tests.index.support import batch
    from vse.index.open import open_collection

    collection = open_collection(sys.argv[1], write=True)
    print("open", flush=True)
    while True:
        model = f"m{collection.info().generation + 1}"
        new = collection.new_generation(model=model, model_source="s", dimensions=8)
        there = {file.path for file in new.files()}
        for each in batch(directions(20, seed=collection.info().generation + 1)):
            if each.file.path not in there:
                new.add([each])
                print("added", new.info().generation, flush=True)
        print("committing", new.info().generation, flush=True)
        new.commit()
        collection.close()
        collection = open_collection(sys.argv[1], write=True)
        print("serves", collection.info().generation, flush=True)
    """


def create(folder: Path) -> MilvusCollection:
    return MilvusCollection.create(folder, model="m1", model_source="s", dimensions=DIMENSIONS)


def rows_of(writer: MilvusCollection) -> list[int]:
    """Return the number of rows in each table, including those that nobody sees."""
    return [len(writer.tables.query(table, "row >= 0", ["row"])) for table in ("items", "captions")]


def check(reader: Collection, files: int) -> None:
    """Check that counts, captions and searches agree."""
    info = reader.info()
    assert info.files == info.items == info.captions == files
    assert len(reader.search(QUERIES[0], 10**6).ids) == info.items
    assert len(reader.search_captions(QUERIES[0], 10**6)) == info.captions


@pytest.mark.slow
def test_milvus_survives_kill_at_any_moment(tmp_path: Path) -> None:
    """Batches are complete or absent; then a writer cleans up, and no row remains outside the published state."""
    folder = tmp_path / "photos.db"
    create(folder).close()
    files = kill_again_and_again(folder, TUNING, times=8, longest=0.5, check=check)
    with MilvusCollection.open(folder, write=True) as writer:
        assert rows_of(writer) == [files] * 2


def check_generation(collection: Collection, generation: int, ids: list[int]) -> None:
    """Check that all files have the vectors of this generation, under the ids they had before."""
    info = collection.info()
    assert (info.generation, info.model) == (generation, f"m{generation}")
    check(collection, FILES)
    np.testing.assert_array_equal(collection.vectors(ids), directions(FILES, seed=generation))


@pytest.mark.slow
def test_milvus_survives_kill_while_upgrading(tmp_path: Path) -> None:
    """The serving generation is the last acknowledged one or the one being committed, complete, with the same ids.

    The next process resumes what was added.
    """
    folder = tmp_path / "photos.db"
    with create(folder) as writer:
        writer.add(batch(directions(FILES, seed=1)))
        ids = np.concatenate([some for some, _ in writer.all_vectors()]).tolist()
    script = f"{TUNING}\n{textwrap.dedent(UPGRADING)}"
    random = np.random.default_rng(21)
    serves, half = 1, 0
    for _ in range(10):
        said = [(word, int(number)) for word, number in killed(script, folder, delay=float(random.uniform(0, 0.8)))]
        acknowledged = max([serves, *(number for word, number in said if word == "serves")])
        committing = max([serves, *(number for word, number in said if word == "committing")])
        added = Counter(number for word, number in said if word == "added")
        assert added[serves + 1] <= FILES - half, "what was acknowledged before is not added again"
        with MilvusCollection.open(folder) as reader:
            before, serves = serves, reader.info().generation
            assert acknowledged <= serves <= max(acknowledged, committing)
            check_generation(reader, serves, ids)
        half = added[serves + 1] + (half if serves == before else 0)
    assert serves > 1
    with MilvusCollection.open(folder, write=True) as writer:
        check_generation(writer, serves, ids)
        assert rows_of(writer) == [FILES] * 2


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
def test_upgrade_survives_kill_at_each_call(tmp_path: Path) -> None:
    """Readers find one complete generation, the old or the new one, and a retried upgrade succeeds."""
    folder = tmp_path / "photos.db"
    with create(folder) as writer:
        writer.add(batch(VECTORS))

    def upgrade(to: str, seed: int) -> None:
        with MilvusCollection.open(folder, write=True) as writer:
            if writer.info().model == to:
                return
            with writer.new_generation(model=to, model_source="s", dimensions=DIMENSIONS) as new:
                vectors = directions(len(VECTORS), seed=seed)
                new.add(batch(vectors[:4]))
                new.add([*batch(vectors)[3:], *batch(vectors[:1], "new")])
                new.remove([("/photos", "new00000.jpg")])
                new.commit()

    with dying_at(10**6) as count:
        upgrade("m2", 2)
    calls = sorted({*range(1, count[0], 6), *range(count[0] - 9, count[0] + 1)})  # the switch is near the end
    for number, call in enumerate(calls, start=3):
        before, to = f"m{number - 1}", f"m{number}"
        with suppress(Killed), dying_at(call):
            upgrade(to, number)
        with MilvusCollection.open(folder) as reader:
            assert reader.info().model in (before, to)
            check(reader, len(VECTORS))
        upgrade(to, number)
        with MilvusCollection.open(folder) as reader:
            assert reader.info().model == to
            check(reader, len(VECTORS))
            ids = reader.search(directions(1, seed=number)[0], 100).ids.tolist()
            assert sorted(ids) == list(range(1, len(VECTORS) + 1)), "items keep their ids"
    with MilvusCollection.open(folder, write=True) as writer:
        assert rows_of(writer) == [len(VECTORS)] * 2
        assert len(writer.tables.connection.names()) == 3


@pytest.mark.slow
def test_discard_survives_kill_at_each_call(tmp_path: Path) -> None:
    """It exists completely or not at all, whenever it is requested again."""
    with create(tmp_path / "photos.db") as writer:
        for call in range(1, 100):
            new = writer.new_generation(model="new", model_source="s", dimensions=12)
            new.add(batch(directions(3, 12)))
            new.close()
            done = False
            with suppress(Killed), dying_at(call):
                writer.new_generation(model="other", model_source="s", dimensions=5).close()
                done = True
            new = writer.new_generation(model="new", model_source="s", dimensions=12)
            there = new.info().files
            assert there in (0, 3)
            assert len(list(new.files())) == len(new.search_captions(directions(1, 12)[0], 10)) == there
            new.discard()
            if done:
                break
        assert done


@pytest.mark.parametrize("left", [0, 5, 100, -1], ids=["nothing", "half a header", "the header", "all but a byte"])
def test_truncated_indexes_are_rebuilt(tmp_path: Path, left: int) -> None:
    """Milvus Lite writes them in place, and would reject the collection: they are rebuilt, and nothing is lost."""
    folder = tmp_path / "photos.db"
    with create(folder) as writer:
        writer.add(batch(VECTORS))
        expected = writer.search(QUERIES[0], FILES)
    torn = list(folder.glob("**/indexes/*"))
    assert torn
    for path in torn:
        path.write_bytes(path.read_bytes()[:left])
    with MilvusCollection.open(folder, write=True) as writer:
        found = writer.search(QUERIES[0], FILES)
        assert found.ids.tolist() == expected.ids.tolist()
        assert writer.info().files == len(VECTORS)

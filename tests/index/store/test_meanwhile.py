"""Long operations beside searches and changes: they block nobody, and nobody sees intermediate states."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.index.examples import directions
from tests.index.support import Watched, batch, create

from vse.errors import VSEError
from vse.index.store import EmbeddedCollection, approximate
from vse.index.store import verify as damaged_rows
from vse.index.store import verify as verify_cache
from vse.index.store.cache import VectorCache

COUNT, DIMENSIONS = 160, 16
VECTORS = directions(COUNT, DIMENSIONS, seed=50)
QUERY = directions(1, DIMENSIONS, seed=51)[0]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the thresholds so that small collections get real indexes and progress reports."""
    monkeypatch.setattr(approximate, "HNSW_FROM", 100)
    monkeypatch.setattr(approximate, "LINKS", 4)
    for module in (approximate, damaged_rows, verify_cache):
        monkeypatch.setattr(module, "BLOCK", 40)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "collection"
    with create(place, DIMENSIONS) as writer:
        writer.add(batch(VECTORS))
    return place


def elsewhere(work: Callable[[], Any]) -> Any:
    """Return the result of ``work`` in another thread, which must not block."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work).result(timeout=20)
    finally:
        pool.shutdown(wait=False)  # a thread blocked on this one would never end


def beside(collection: EmbeddedCollection, name: str) -> Watched:
    """Return a reporter that searches and changes ``collection`` from another thread at every step."""
    number = 0

    def step(stage: str, done: int) -> None:
        nonlocal number
        number += 1
        elsewhere(lambda: collection.add(batch(VECTORS[:1], f"{name}/{number}/")))
        assert len(elsewhere(lambda: collection.search(QUERY, 10_000)).ids) == collection.info().items
        elsewhere(lambda: collection.remove([("/photos", f"{name}/{number - 1}/00000.jpg")]))

    return Watched(step)


@pytest.mark.parametrize("work", ["rebuild", "settle"])
def test_the_cache_is_written_beside_searches_and_changes(folder: Path, work: str) -> None:
    """Another thread neither blocks nor loses anything, and its changes reach the cache."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.add(batch(VECTORS[: COUNT // 2], "more/"))
        watched = beside(writer, "late")
        getattr(writer, work)(progress=watched)
        assert watched.told("approximate")
        assert writer.verify().ok
        assert len(writer.search(QUERY, 10_000).ids) == writer.info().items == COUNT + COUNT // 2 + 1
    with EmbeddedCollection.open(folder) as reader:
        assert reader.verify().ok
        assert len(reader.search(QUERY, 10_000).ids) == reader.info().items


def test_the_switch_is_prepared_beside_searches_and_changes(folder: Path) -> None:
    """The old generation serves and changes until the switch; ids it assigned meanwhile are not assigned again."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        new = writer.new_generation(model="new", model_source="s", dimensions=DIMENSIONS)
        new.add(batch(VECTORS))
        watched = beside(writer, "late")
        new.commit(progress=watched)
        assert watched.told("writing") == watched.told("approximate") == [(COUNT, COUNT)] * 2
        highest = max(int(ids[-1]) for ids, _ in writer.all_vectors())
        assert highest > COUNT
    with EmbeddedCollection.open(folder, write=True) as writer:
        assert not writer.search(QUERY, 5).exact
        writer.add(batch(VECTORS[:1], "last/"))
        assert max(int(ids[-1]) for ids, _ in writer.all_vectors()) > highest
        assert writer.verify().ok


def test_commit_includes_files_added_meanwhile(folder: Path) -> None:
    """A thread that adds to the new generation is blocked, or its files reach the cache as well."""
    late = directions(3, DIMENSIONS, seed=52)
    with EmbeddedCollection.open(folder, write=True) as writer:
        new = writer.new_generation(model="new", model_source="s", dimensions=DIMENSIONS)
        new.add(batch(VECTORS)[1:])
        adding: list[threading.Thread] = []

        def step(stage: str, done: int) -> None:
            if not adding:  # the file has the lowest id of all
                adding.append(threading.Thread(target=new.add, args=([*batch(VECTORS)[:1], *batch(late, "late/")],)))
                adding[0].start()

        built = Watched(step)
        switched = new._switched
        new._switched = lambda cached: [each.join() for each in adding] and switched(cached)  # type: ignore[method-assign]
        new.commit(progress=built)
        assert len(built.told("approximate")) == 4, "made twice, since it was outrun"
    with EmbeddedCollection.open(folder) as reader:
        assert len(reader.search(QUERY, 10_000, exact=True).ids) == COUNT + 3
        assert reader.search(VECTORS[0], 1, exact=True).scores[0] > 0.999
        assert reader.verify().ok


def test_closing_waits_for_work_on_the_cache(folder: Path) -> None:
    """The folder stays locked while another thread writes to it."""
    writer = EmbeddedCollection.open(folder, write=True)
    closing = threading.Thread(target=writer.close)

    def step(stage: str, done: int) -> None:
        if not closing.ident:
            closing.start()
            while writer.session._connection is not None:  # until the other thread has started
                time.sleep(0.001)
        with pytest.raises(VSEError, match="is being written"):
            EmbeddedCollection.open(folder, write=True)

    writer.rebuild(progress=Watched(step))
    closing.join()
    with pytest.raises(VSEError, match="closed"):
        writer.rebuild()
    with EmbeddedCollection.open(folder, write=True) as again:
        assert again.verify().ok


def test_verifying_beside_a_writer_finds_no_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One snapshot is read: rows added or removed, and vectors purged from the cache meanwhile, are not corruption.

    A corrupt cache is still found.
    """
    monkeypatch.setattr(approximate, "HNSW_FROM", 10**6)
    with EmbeddedCollection.open(folder, write=True) as writer, EmbeddedCollection.open(folder) as reader:
        number = 0

        def step(stage: str, done: int) -> None:
            nonlocal number
            number += 1
            if number > 40:
                return  # reading more than one snapshot would never end
            writer.remove([("/photos", f"{COUNT - 2 * number:05}.jpg"), ("/photos", f"{2 * number:05}.jpg")])
            writer.add(batch(VECTORS[:3], f"{number}/"))
            if number % 3:
                writer.settle()
            else:
                writer.rebuild()

        for collection in (reader, writer):
            files = collection.info().files
            watched = Watched(step)
            report = collection.verify(progress=watched)
            assert (report.problems, report.cache_problems) == ((), ())
            assert (report.files, report.items) == (files, files)
            assert number >= 10
            origin = 4  # rows of the table ``meta``
            rows = 4 * files + origin  # a file, its details, an item and a caption
            assert watched.told("reading") == [(rows, rows)]
            assert watched.told("comparing") == [(2 * files, 2 * files)]
        cache = writer.caches.by_table["items"]
        header = cache.header()
        assert header is not None
        matrix = np.memmap(cache.path(header, "vectors"), np.float32, "r+", shape=(header.rows, DIMENSIONS))
        matrix[-1] += 1
        matrix.flush()
        watched = Watched(lambda stage, done: writer.add(batch(VECTORS[:1], f"{stage}{done}/")))
        report = reader.verify(progress=watched)
        assert report.problems == ()
        assert ["a different vector" in line for line in report.cache_problems] == [True]


def replaced_before(step: str, target: Any, writer: EmbeddedCollection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the writer rebuild its cache right before the next call of ``step``."""
    plain = getattr(target, step)

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(target, step, plain)
        writer.rebuild()
        return plain(*arguments)

    monkeypatch.setattr(target, step, late)


def test_reader_retries_when_cache_is_replaced_while_opening(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader maps the new files, and does not load the whole collection into memory."""
    with EmbeddedCollection.open(folder, write=True) as writer, EmbeddedCollection.open(folder) as reader:
        replaced_before("ids", VectorCache, writer, monkeypatch)
        assert len(reader.search(QUERY, 10_000).ids) == COUNT
        known = reader._searchers["items"]._snapshot
        assert known is not None
        assert (len(known.base.ids), len(known.fresh.ids)) == (COUNT, 0)


@pytest.mark.parametrize(("step", "target"), [("ids", VectorCache), ("vectors", VectorCache), ("load", approximate)])
def test_verify_retries_when_cache_is_replaced(
    folder: Path, step: str, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old files are gone, which is not corruption."""
    with EmbeddedCollection.open(folder, write=True) as writer, EmbeddedCollection.open(folder) as reader:
        replaced_before(step, target, writer, monkeypatch)
        assert reader.verify().ok

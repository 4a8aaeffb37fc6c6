"""Bounded growth: removals that everybody has seen are trimmed, and the filter cache has a size limit."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.index.examples import QUERIES, VECTORS, directions
from tests.index.support import batch, cache, create, database

from vse.index.filters import Filter
from vse.index.store import EmbeddedCollection, searcher
from vse.index.store import cache as caches
from vse.index.store.searcher import FilterCache

KEPT = 5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a collection that updates its caches often and trims removals early."""
    monkeypatch.setattr(caches, "FOLLOW_AFTER", 20)
    monkeypatch.setattr(caches, "KEPT_CHANGES", KEPT)
    place = tmp_path / "collection"
    with create(place) as writer:
        writer.add(batch(directions(40, seed=3)))
    return place


def removals(folder: Path) -> int:
    with closing(sqlite3.connect(database(folder))) as connection:
        return int(connection.execute("SELECT count(*) FROM removed").fetchone()[0])


def exchange(writer: EmbeddedCollection, times: int) -> None:
    """Replace four files repeatedly: eight removals each time."""
    for _ in range(times):
        writer.add(batch(VECTORS[:4], "again/"))


def test_removals_are_listed_for_a_while(folder: Path) -> None:
    """However often files are replaced, the list stays short and the collection is intact."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        sizes = []
        for _ in range(10):
            exchange(writer, 10)
            sizes.append(removals(folder))
            assert len(writer.search(QUERIES[0], 1000).ids) == writer.info().items
        assert max(sizes) <= 8 * (KEPT + 5)
        assert writer.verify().ok
    with EmbeddedCollection.open(folder, write=True) as writer:
        assert removals(folder) <= 8 * KEPT
        assert len(writer.search(QUERIES[0], 1000).ids) == 44
        assert writer.verify().ok


def test_readers_that_were_away_begin_with_the_cache_again(folder: Path) -> None:
    """A frequent and a rare reader find the same; neither holds the whole collection in memory."""
    random = np.random.default_rng(4)
    with (
        EmbeddedCollection.open(folder, write=True) as writer,
        EmbeddedCollection.open(folder) as near,
        EmbeddedCollection.open(folder) as far,
    ):
        for round_ in range(30):
            exchange(writer, 1)
            writer.remove([("/photos", f"{random.integers(40):05}.jpg")])
            expected = writer.search(QUERIES[1], 1000).ids
            assert len(expected) == writer.info().items
            np.testing.assert_array_equal(near.search(QUERIES[1], 1000).ids, expected)
            if round_ % 10 == 9:
                np.testing.assert_array_equal(far.search(QUERIES[1], 1000).ids, expected)
                assert len(far.search_captions(QUERIES[1], 1000)) == len(expected)
                known = far._searchers["items"]._snapshot
                assert known is not None
                assert len(known.fresh.ids) <= 20
        while known is None or not len(known.fresh.ids):  # the writer does not purge vectors that a reader copied
            exchange(writer, 1)
            far.search(QUERIES[1], 1)
            known = far._searchers["items"]._snapshot
        exchange(writer, 20)
        shutil.rmtree(cache(folder))
        np.testing.assert_array_equal(far.search(QUERIES[1], 1000).ids, writer.search(QUERIES[1], 1000).ids)


def test_an_old_cache_is_not_trusted(folder: Path) -> None:
    """Results are right with a cache older than the listed removals (a backup); ``verify`` and the writer notice."""
    kept = {path: path.read_bytes() for path in cache(folder).iterdir()}
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.remove([("/photos", f"{number:05}.jpg") for number in range(3)])
        exchange(writer, 30)
        expected = writer.search(QUERIES[0], 1000).ids
    for path in cache(folder).iterdir():
        path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    with EmbeddedCollection.open(folder) as reader:
        np.testing.assert_array_equal(reader.search(QUERIES[0], 1000).ids, expected)
        report = reader.verify()
        assert report.problems == ()
        assert all("too stale" in line for line in report.cache_problems)
        assert report.cache_problems
    EmbeddedCollection.open(folder, write=True).close()
    with EmbeddedCollection.open(folder) as reader:
        np.testing.assert_array_equal(reader.search(QUERIES[0], 1000).ids, expected)
        assert reader.verify().ok


def test_answers_to_filters_are_bound_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Least recently used entries go first, and all of them after a change; a larger result raises the limit."""
    monkeypatch.setattr(searcher, "MAX_FILTER_BYTES", 8 * 100)
    filters, asked = FilterCache(), []

    def ids(name: str, count: int, changes: int = 1) -> np.ndarray:
        def ask() -> np.ndarray:
            asked.append(name)
            return np.arange(count)

        return filters.ids(Filter(folder=name), changes, ask)

    first = ids("a", 40)
    assert ids("b", 40) is not first
    assert ids("a", 40) is first
    ids("c", 40)  # b was used least recently
    assert asked == ["a", "b", "c"]
    ids("a", 40)
    assert asked == ["a", "b", "c"]
    ids("b", 40)
    assert asked == ["a", "b", "c", "b"]
    for _ in range(2):
        assert len(ids("all", 1000)) == 1000
    assert (asked[4:], filters.bytes) == (["all"], 8000)
    ids("a", 40)
    assert filters.bytes <= 8000
    ids("a", 50, changes=2)
    assert (asked[5:], filters.bytes) == (["a", "a"], 8 * 50)

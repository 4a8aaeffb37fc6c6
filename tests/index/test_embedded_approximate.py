"""Approximate indexes: from a size on, found by themselves, scored exactly, and never in the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.index.examples import directions
from tests.index.support import batch, cache, create

from vse.index.embedded import EmbeddedCollection, approximate
from vse.index.embedded.approximate import Kind
from vse.index.filters import Filter

COUNT, DIMENSIONS = 1500, 16
VECTORS = directions(COUNT, DIMENSIONS, seed=40)
QUERIES = directions(20, DIMENSIONS, seed=41)


@pytest.fixture(params=["hnsw", "ivfpq"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kind:
    """Small sizes for the real indexes."""
    monkeypatch.setattr(approximate, "HNSW_FROM", 1000)
    monkeypatch.setattr(approximate, "POOL", 128)
    monkeypatch.setattr(approximate, "MOST", 64)
    if request.param == "ivfpq":
        monkeypatch.setattr(approximate, "IVFPQ_FROM", 1000)
        monkeypatch.setattr(approximate, "PROBED", 0.5)
    return request.param


@pytest.fixture
def folder(tmp_path: Path, kind: Kind) -> Path:
    place = tmp_path / "collection"
    with create(place, DIMENSIONS) as writer:
        writer.add(batch(VECTORS))
        assert writer.search(QUERIES[0], 5).exact, "the index is built when the writer closes"
    assert list(cache(place).glob(f"items-*.{kind}"))
    return place


def test_it_is_used_and_says_so(folder: Path) -> None:
    """Most of the true best are found; scores are those of the exact search; ``exact=True`` asks it not."""
    with EmbeddedCollection.open(folder) as reader:
        assert reader.verify().ok
        common = 0
        for query in QUERIES:
            found, true = reader.search(query, 10), reader.search(query, 10, exact=True)
            assert (found.exact, true.exact) == (False, True)
            common += len(np.intersect1d(found.ids, true.ids))
            whole = reader.search(query, COUNT)
            assert whole.exact, "so many are compared with every vector"
            np.testing.assert_array_equal(true.ids, whole.ids[:10])
            by_id = dict(zip(whole.ids.tolist(), whole.scores.tolist(), strict=True))
            assert [by_id[each] for each in found.ids.tolist()] == found.scores.tolist()
        assert common >= 0.9 * 10 * len(QUERIES)


def test_the_best_five_are_the_first_of_the_best_fifteen(folder: Path) -> None:
    """For every k up to the most that an index is asked for."""
    with EmbeddedCollection.open(folder) as reader:
        for query in QUERIES[:5]:
            whole = reader.search(query, approximate.MOST)
            assert not whole.exact
            for k in (1, 5, 15, 40):
                np.testing.assert_array_equal(reader.search(query, k).ids, whole.ids[:k])


def test_what_came_and_went_since_is_seen(folder: Path) -> None:
    """New items are found beside the index, removed ones are not, before and after the writer has closed."""
    late = directions(30, DIMENSIONS, seed=43)
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.remove([("/photos", f"{row:05}.jpg") for row in range(100)])
        writer.add(batch(late, "late/"))
        check(writer, late)
    with EmbeddedCollection.open(folder) as reader:
        check(reader, late)
        assert reader.verify().ok


def check(collection: EmbeddedCollection, late: np.ndarray) -> None:
    for row in range(30):
        (item,) = collection.items(collection.search(late[row], 1).ids.tolist())
        assert item.file.path == f"late/{row:05}.jpg"
        hits = collection.search(VECTORS[row], 10)
        assert not hits.exact
        assert len(hits.ids) == 10
        assert all(
            int(item.file.path[-9:-4]) >= 100 or "late" in item.file.path
            for item in collection.items(hits.ids.tolist())
        )


def test_filters_are_kept(folder: Path) -> None:
    """A filter that leaves few is searched exactly, one that leaves most by the index; both find only what passes."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.add(batch(directions(20, DIMENSIONS, seed=44), "few/"))
        hits = writer.search(QUERIES[0], 50, where=Filter(folder="few"))
        assert hits.exact
        assert len(hits.ids) == 20
        hits = writer.search(QUERIES[0], 50, where=Filter(kind="image"))
        assert not hits.exact
        assert len(hits.ids) == 50


def test_it_is_built_anew_when_much_has_come(folder: Path, kind: Kind) -> None:
    """A fifth of the rows may lie beyond the index; then closing builds it over all."""
    (before,) = (path.stat().st_mtime_ns for path in cache(folder).glob(f"items-*.{kind}"))
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.add(batch(VECTORS[:100], "some/"))
    assert [path.stat().st_mtime_ns for path in cache(folder).glob(f"items-*.{kind}")] == [before]
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.add(batch(VECTORS[:500], "many/"))
    with EmbeddedCollection.open(folder) as reader:
        header = reader.caches.lanes["items"].header()
        assert header is not None
        assert header.approximate_rows == header.rows == COUNT + 600
        assert not reader.search(QUERIES[0], 5).exact


def test_a_damaged_index_is_found_and_does_no_harm(folder: Path, kind: Kind) -> None:
    """Searches are exact without it, verify names it, rebuild makes it."""
    (path,) = cache(folder).glob(f"items-*.{kind}")
    path.write_bytes(path.read_bytes()[:1000])
    with EmbeddedCollection.open(folder, write=True) as writer:
        assert writer.search(QUERIES[0], 5).exact
        assert any(kind in line for line in writer.verify().cache_problems)
        writer.rebuild()
        assert writer.verify().ok
        assert not writer.search(QUERIES[0], 5).exact


def test_sizes() -> None:
    """Exact below 200,000 vectors, a graph from there, product codes from five million."""
    sizes = [0, 199_999, 200_000, 4_999_999, 5_000_000]
    assert [approximate.kind_for(size) for size in sizes] == [None, None, "hnsw", "hnsw", "ivfpq"]
    assert approximate.recipe("ivfpq", 5_000_000, 1024) == "IVF8944,PQ64np"
    assert approximate.recipe("ivfpq", 5_000_000, 300) == "IVF8944,PQ4np"

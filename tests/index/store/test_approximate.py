"""Approximate indexes: built from a certain size on, rescored exactly, and never required."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.index.examples import directions
from tests.index.support import Watched, batch, cache, create

from vse.errors import VSEError
from vse.index.filters import Filter
from vse.index.storage import VectorFormat
from vse.index.store import EmbeddedCollection, approximate
from vse.index.store.approximate import Kind
from vse.index.store.checksums import VectorFile, sums_of
from vse.index.store.searcher import Part

COUNT, DIMENSIONS = 1500, 16
VECTORS = directions(COUNT, DIMENSIONS, seed=40)
QUERIES = directions(20, DIMENSIONS, seed=41)


@pytest.fixture(params=["hnsw", "ivfpq"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kind:
    """Lower the thresholds so that small collections get real indexes."""
    monkeypatch.setattr(approximate, "HNSW_FROM", 1000)
    monkeypatch.setattr(approximate, "POOL", 128)
    monkeypatch.setattr(approximate, "MAX_RESULTS", 64)
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


def test_approximate_search_finds_most_and_reports_inexact(folder: Path) -> None:
    """Most of the true best are found; scores equal those of the exact search; ``exact=True`` bypasses the index."""
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
    """For every ``k`` up to the largest that uses an index."""
    with EmbeddedCollection.open(folder) as reader:
        for query in QUERIES[:5]:
            whole = reader.search(query, approximate.MAX_RESULTS)
            assert not whole.exact
            for k in (1, 5, 15, 40):
                np.testing.assert_array_equal(reader.search(query, k).ids, whole.ids[:k])


def test_approximate_search_sees_later_changes(folder: Path) -> None:
    """New items are found beside the index and removed ones are not, before and after the writer closes."""
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


def test_approximate_search_respects_filters(folder: Path) -> None:
    """A narrow filter is searched exactly, a wide one with the index; both return only items that pass."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.add(batch(directions(20, DIMENSIONS, seed=44), "few/"))
        hits = writer.search(QUERIES[0], 50, where=Filter(folder="few"))
        assert hits.exact
        assert len(hits.ids) == 20
        hits = writer.search(QUERIES[0], 50, where=Filter(kind="image"))
        assert not hits.exact
        assert len(hits.ids) == 50


def test_index_is_rebuilt_when_tail_grows(folder: Path, kind: Kind) -> None:
    """Up to a fifth of the rows may lie beyond the index; after that, closing rebuilds it over all rows."""
    (before,) = (path.stat().st_mtime_ns for path in cache(folder).glob(f"items-*.{kind}"))
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.add(batch(VECTORS[:100], "some/"))
    assert [path.stat().st_mtime_ns for path in cache(folder).glob(f"items-*.{kind}")] == [before]
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.add(batch(VECTORS[:500], "many/"))
    with EmbeddedCollection.open(folder) as reader:
        header = reader.caches.by_table["items"].header()
        assert header is not None
        assert header.approximate_rows == header.rows == COUNT + 600
        assert not reader.search(QUERIES[0], 5).exact


def test_corrupt_index_is_reported_and_skipped(folder: Path, kind: Kind) -> None:
    """Searches fall back to exact, ``verify`` names the file, and ``rebuild`` replaces it."""
    (path,) = cache(folder).glob(f"items-*.{kind}")
    path.write_bytes(path.read_bytes()[:1000])
    with EmbeddedCollection.open(folder, write=True) as writer:
        assert writer.search(QUERIES[0], 5).exact
        assert any(kind in line for line in writer.verify().cache_problems)
        writer.rebuild()
        assert writer.verify().ok
        assert not writer.search(QUERIES[0], 5).exact


def stored(path: Path) -> VectorFile:
    path.write_bytes(VECTORS.tobytes())
    return VectorFile(path, COUNT, VectorFormat(DIMENSIONS), sums_of(VECTORS))


def interrupt(stage: str, done: int) -> None:
    """Simulate Ctrl-C in the middle of an index build."""
    if "approximate" in stage and done >= 1000:
        raise KeyboardInterrupt


def test_settle_reports_progress_and_can_be_interrupted(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row is counted; an interrupt keeps the matrices and no partial index, and the next call builds it."""
    monkeypatch.setattr(approximate, "BLOCK", 256)
    place = tmp_path / "collection"
    with create(place, DIMENSIONS) as writer:
        writer.add(batch(VECTORS))
        watched = Watched(interrupt)
        with pytest.raises(KeyboardInterrupt):
            writer.settle(progress=watched)
        assert watched.told("writing") == [(COUNT, COUNT)] * 2
        assert (watched.told("approximate"), watched.running) == ([(COUNT, 1024)], False)
        assert sorted({path.suffix for path in cache(place).iterdir()}) == [".ids", ".json", ".sums1", ".vectors"]
        assert writer.search(QUERIES[0], 5).exact
        watched = Watched()
        writer.settle(progress=watched)
        assert (watched.told("approximate"), watched.running) == ([(COUNT, COUNT)] * 2, False)
        assert not writer.search(QUERIES[0], 5).exact
        again = Watched()
        writer.settle(progress=again)
        assert again.stages == [], "there is nothing left to do"
        writer.rebuild(progress=again)
        assert again.told("writing") == again.told("approximate") == [(COUNT, COUNT)] * 2
    with EmbeddedCollection.open(place) as reader, pytest.raises(VSEError, match="reading only"):
        reader.settle()


def test_whoever_is_interrupted_does_not_wait_for_an_index(tmp_path: Path, kind: Kind) -> None:
    """Closing after an aborted build, or because of an error, updates the matrices and builds no index."""
    place = tmp_path / "collection"
    with create(place, DIMENSIONS) as writer:
        writer.add(batch(VECTORS))
        with pytest.raises(KeyboardInterrupt):
            writer.settle(progress=Watched(interrupt))
        writer.add(batch(VECTORS[:1], "late"))
    assert rows_in_cache(place) == (COUNT + 1, 0)
    with suppress(KeyboardInterrupt), EmbeddedCollection.open(place, write=True) as writer:
        writer.add(batch(VECTORS[:1], "later"))
        raise KeyboardInterrupt
    assert rows_in_cache(place) == (COUNT + 2, 0)
    EmbeddedCollection.open(place, write=True).close()
    assert rows_in_cache(place) == (COUNT + 2, COUNT + 2)


def rows_in_cache(place: Path) -> tuple[int, int]:
    with EmbeddedCollection.open(place) as reader:
        header = reader.caches.by_table["items"].header()
        assert header is not None
        return header.rows, header.approximate_rows


def test_faiss_that_fails_costs_no_answer(tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever FAISS raises: ``settle`` fails with one line, ``close`` stays silent, and searches are exact."""
    place = tmp_path / "collection"
    with monkeypatch.context() as patch:
        patch.setattr(approximate, "recipe", lambda kind, count, dimensions: f"IVF{count * 2},PQ4np")
        with create(place, DIMENSIONS) as writer:
            writer.add(batch(VECTORS))
            with pytest.raises(VSEError, match="cannot be built") as caught:
                writer.settle()
            assert "\n" not in str(caught.value)
        EmbeddedCollection.open(place, write=True).close()
        with pytest.raises(OSError, match="cannot be built"):
            approximate.build(kind, stored(tmp_path / "vectors"), tmp_path / "index")
    with EmbeddedCollection.open(place) as reader:
        assert reader.search(QUERIES[0], 5).exact
        assert reader.verify().ok


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits on the size of files")
def test_an_index_that_does_not_fit_leaves_the_old_one(folder: Path, kind: Kind) -> None:
    """A full disk raises OSError; the index that readers use is unchanged, and the partial file is removed."""
    import resource

    (path,) = cache(folder).glob(f"items-*.{kind}")
    before = path.read_bytes(), sorted(cache(folder).iterdir())
    vectors = stored(folder / "vectors")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="cannot be written"):
            approximate.build(kind, vectors, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (path.read_bytes(), sorted(cache(folder).iterdir())) == before


def test_part_allows_only_live_requested_rows() -> None:
    """Rows with a requested id, ignoring unknown ids, and never a removed row."""
    alive = np.array([True, True, False, True])
    part = Part(np.array([2, 3, 5, 8]), np.eye(4, dtype=np.float32), alive)
    for only, rows in [([1, 2, 4, 5, 8, 9], [0, 3]), ([], []), ([5], []), ([9, 10], [])]:
        mask = part.allowed(np.array(only, np.int64))
        assert mask is not None
        assert np.flatnonzero(mask).tolist() == rows
    assert part.allowed(None) is alive


def test_a_filter_that_is_asked_again_sees_what_changed(folder: Path) -> None:
    """Cached filter results are dropped when items are added or removed; different filters have different results."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        writer.add(batch(directions(20, DIMENSIONS, seed=45), "few/"))
        few, images = Filter(folder="few"), Filter(kind="image")
        for _ in range(2):
            assert len(writer.search(QUERIES[0], 50, where=few).ids) == 20
            best = writer.search(QUERIES[0], 50, where=images)
            assert len(best.ids) == 50
        (item,) = writer.items(best.ids[:1].tolist())
        writer.remove([(item.file.root, item.file.path), ("/photos", "few/00003.jpg")])
        assert len(writer.search(QUERIES[0], 50, where=few).ids) == 19
        assert item.id not in writer.search(QUERIES[0], 50, where=images).ids


def test_index_kind_by_collection_size() -> None:
    """Exact below 200,000 vectors, a graph from there, product codes from a million."""
    sizes = [0, 199_999, 200_000, 999_999, 1_000_000]
    assert [approximate.kind_for(size) for size in sizes] == [None, None, "hnsw", "hnsw", "ivfpq"]
    assert approximate.recipe("ivfpq", 5_000_000, 1024) == "PCAR128,IVF4000,PQ64np"
    assert approximate.recipe("ivfpq", 5_000_000, 96) == "IVF4000,PQ16np"

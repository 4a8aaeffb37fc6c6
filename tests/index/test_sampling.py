"""The sample that represents a collection: uniform, deterministic and stable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import DIMENSIONS, directions
from tests.index.support import batch, create

from vse.index.scoring import FACTORS, hashes, smallest
from vse.index.store import EmbeddedCollection

ids = st.lists(st.integers(1, 2**40), unique=True, max_size=60).map(sorted).map(lambda each: np.array(each, np.int64))


def naive_hash(each: int) -> int:
    for factor in FACTORS:
        each = each * factor % 2**64
        each ^= each >> 32
    return each


@given(ids, st.integers(1, 70))
def test_sample_takes_smallest_hashes(known, count):
    """Ascending positions of the same ids that plain Python chooses."""
    assert hashes(known).tolist() == [naive_hash(each) for each in known.tolist()]
    expected = sorted(sorted(range(len(known)), key=lambda row: naive_hash(int(known[row])))[:count])
    assert smallest(known, count).tolist() == expected


@given(ids, st.integers(0, 60), st.integers(1, 30))
def test_parts_before_the_rest_is_seen(known, cut, count):
    """Sampling can be chunked: sampling a chunk's sample with the rest gives the sample of all."""
    first, rest = known[:cut], known[cut:]
    kept = np.concatenate([first[smallest(first, count)], rest])
    assert kept[smallest(kept, count)].tolist() == known[smallest(known, count)].tolist()


def naive_sample(collection: EmbeddedCollection, count: int) -> np.ndarray:
    """Sample from all embeddings."""
    rows = [pair for some, vectors in collection.all_vectors() for pair in zip(some.tolist(), vectors, strict=True)]
    chosen = sorted(sorted(rows, key=lambda row: naive_hash(row[0]))[:count], key=lambda row: row[0])
    return np.array([vector for _, vector in chosen], np.float32).reshape(len(chosen), DIMENSIONS)


@pytest.mark.parametrize("count", [1, 40, 290, 1000])
def test_the_sample_of_a_collection(tmp_path, count):
    """It never holds a removed embedding, and covers both cached and newer ones."""

    def agree() -> None:
        np.testing.assert_array_equal(collection.sample(count), naive_sample(collection, count))

    with create(tmp_path / "c") as collection:
        assert collection.sample(count).shape == (0, DIMENSIONS)
        collection.add(batch(directions(300, seed=9)))
        agree()
        collection.remove([("/photos", f"{row:05}.jpg") for row in range(0, 30, 3)])
        agree()
    with EmbeddedCollection.open(tmp_path / "c", write=True) as collection:
        agree()
        collection.add(batch(directions(50, seed=10), "new"))
        agree()
        collection.remove([("/photos", "new00003.jpg"), ("/photos", "00100.jpg")])
        agree()
    with EmbeddedCollection.open(tmp_path / "c") as collection:
        agree()


def test_few_changes_change_few_of_the_sample(tmp_path):
    """One removal and one addition change at most two elements."""
    with create(tmp_path / "c") as collection:
        collection.add(batch(directions(300, seed=9)))
        kept = {row.tobytes() for row in collection.sample(40)}
        assert len(kept) == 40
        collection.remove([("/photos", "00007.jpg")])
        collection.add(batch(directions(1, seed=10), "new"))
        assert len(kept & {row.tobytes() for row in collection.sample(40)}) >= 38


def test_the_sample_is_spread_over_the_ids():
    """Every tenth of the ids provides about a tenth of the sample."""
    counts = np.bincount(smallest(np.arange(1, 20_001), 1000) // 2000, minlength=10)
    assert counts.min() > 70
    assert counts.max() < 130

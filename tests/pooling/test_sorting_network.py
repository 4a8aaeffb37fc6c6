"""The sorting network: it sorts, as the 0-1 principle proves, and it stays within its bounds."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from vse.pooling.kernels.sorted_sum import comparator_bound, comparators, write_comparators

EXHAUSTIVE = range(1, 17)
LARGER = [*range(17, 71), 96, 100, 127, 128, 129, 200, 255, 257, 500, 1000, 1023, 1024]


def run(size: int, values: np.ndarray) -> np.ndarray:
    """Apply the comparators to the rows of ``values (size, cases)``, the larger value to the first row."""
    rows = list(values)
    for i, j in comparators(size):
        rows[i], rows[j] = np.maximum(rows[i], rows[j]), np.minimum(rows[i], rows[j])
    return np.stack(rows)


def descends(values: np.ndarray) -> bool:
    return bool((values[:-1] >= values[1:]).all())


@pytest.mark.parametrize("size", EXHAUSTIVE)
def test_network_sorts_every_small_input(size):
    """All 2^n inputs of zeros and ones come out in descending order, so by the 0-1 principle every input does."""
    values = (np.arange(2**size) >> np.arange(size)[:, None]) & 1
    assert descends(run(size, values.astype(np.int8)))


@pytest.mark.parametrize("size", LARGER)
def test_network_sorts_large_random_inputs(size):
    """Inputs of zeros and ones with every number of ones, strewn at random, come out in descending order."""
    ones = np.resize(np.arange(size + 1), max(500, size + 1))
    values = (np.arange(size)[:, None] < ones).astype(np.int8)
    assert descends(run(size, np.random.default_rng(size).permuted(values, axis=0)))


@pytest.mark.parametrize("size", [*EXHAUSTIVE, *LARGER])
def test_every_comparator_points_down_within_the_set(size):
    """A comparator (i, j) has 0 <= i < j < size."""
    pairs = comparators(size).reshape(-1, 2)
    assert (pairs[:, 0] >= 0).all()
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert (pairs[:, 1] < size).all()


def test_the_bound_holds_for_every_size():
    """No network up to 1,100 rows writes past its bound."""
    canary = -7
    for size in range(1, 1101):
        bound = int(comparator_bound(size))
        pairs = np.full((bound + 8, 2), canary, np.int32)
        count = write_comparators(size, pairs)
        assert count <= bound
        assert (pairs[count:] == canary).all()
        assert (pairs[:count] != canary).all()


def test_the_number_of_comparators_is_batchers():
    """For powers of two it is (p^2 - p + 4) 2^(p-2) - 1, the known size of odd-even merge sort."""
    for power in range(1, 11):
        assert len(comparators(2**power)) == (power**2 - power + 4) * 2**power // 4 - 1

"""The sorting network: it sorts, as the 0-1 principle proves, and it stays within its bounds."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from vse.pooling.kernels.sorting_network import (  # noqa: E402
    MERGE,
    PAIR,
    SORT,
    step_bound,
    steps_for,
    write_comparators,
    write_steps,
)

EXHAUSTIVE = range(1, 17)
LARGER = [*range(17, 71), 96, 100, 127, 128, 129, 200, 255, 257, 500, 1000, 1023, 1024]
COMPARATORS = {
    PAIR: [(0, 1)],
    MERGE: [(0, 2), (1, 3), (1, 2)],
    SORT: [(0, 1), (2, 3), (0, 2), (1, 3), (1, 2)],
}


def of_steps(size: int) -> list[tuple[int, int]]:
    """The comparators of the documented meaning of each step."""
    return [(int(row[1 + i]), int(row[1 + j])) for row in steps_for(size) for i, j in COMPARATORS[int(row[0])]]


def of_pairs(size: int) -> list[tuple[int, int]]:
    pairs = np.zeros((int(step_bound(size)), 2), np.int32)
    return [(int(i), int(j)) for i, j in pairs[: write_comparators(size, pairs)]]


def run(comparators: list[tuple[int, int]], values: np.ndarray) -> np.ndarray:
    """Apply the comparators to the rows of ``values (size, cases)``, the larger value to the first row."""
    rows = list(values)
    for i, j in comparators:
        rows[i], rows[j] = np.maximum(rows[i], rows[j]), np.minimum(rows[i], rows[j])
    return np.stack(rows)


def descends(values: np.ndarray) -> bool:
    return bool((values[:-1] >= values[1:]).all())


@pytest.mark.parametrize("size", EXHAUSTIVE)
def test_sorts_every_input_of_small_sizes(size):
    """All 2^n inputs of zeros and ones come out in descending order, so by the 0-1 principle every input does."""
    values = (np.arange(2**size) >> np.arange(size)[:, None]) & 1
    assert descends(run(of_steps(size), values.astype(np.int8)))


@pytest.mark.parametrize("size", LARGER)
def test_sorts_random_inputs_of_larger_sizes(size):
    """Inputs of zeros and ones with every number of ones, strewn at random, come out in descending order."""
    random = np.random.default_rng(size)
    ones = np.resize(np.arange(size + 1), max(500, size + 1))
    values = (np.arange(size)[:, None] < ones).astype(np.int8)
    values = random.permuted(values, axis=0)
    assert descends(run(of_steps(size), values))


@pytest.mark.parametrize("size", [*EXHAUSTIVE, *LARGER])
def test_steps_and_single_comparators_are_one_network(size):
    """The list for the backward pass is the list of steps written out, comparator by comparator."""
    assert of_pairs(size) == of_steps(size)


@pytest.mark.parametrize("size", [*EXHAUSTIVE, *LARGER])
def test_every_comparator_points_down_within_the_set(size):
    """A comparator (i, j) has 0 <= i < j < size."""
    comparators = np.array(of_steps(size)).reshape(-1, 2)
    assert (comparators[:, 0] >= 0).all()
    assert (comparators[:, 0] < comparators[:, 1]).all()
    assert (comparators[:, 1] < size).all()


@pytest.mark.parametrize("size", [4, 5, 7, 8, 37, 1023])
def test_sorts_of_four_come_first(size):
    """The first n // 4 steps sort the rows 0..3, 4..7 and so on, and no step after them is one."""
    steps = steps_for(size)
    fours = size // 4
    np.testing.assert_array_equal(steps[:fours, 0], SORT)
    np.testing.assert_array_equal(steps[:fours, 1:].ravel(), np.arange(4 * fours))
    assert (steps[fours:, 0] != SORT).all()


def test_the_bound_holds_for_every_size():
    """No network up to 1,100 rows writes past the bound, in steps or in comparators."""
    canary = -7
    for size in range(1, 1101):
        bound = int(step_bound(size))
        steps = np.full((bound + 8, 5), canary, np.int32)
        pairs = np.full((bound + 8, 2), canary, np.int32)
        counts = write_steps(size, steps), write_comparators(size, pairs)
        assert max(counts) <= bound
        for rows, count in zip((steps, pairs), counts, strict=True):
            assert (rows[count:] == canary).all()
            assert (rows[:count] != canary).all()

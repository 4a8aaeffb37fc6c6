"""Batcher's odd-even merge sort as a list of steps for the kernels of the sorted weighted sum.

A step is a row ``(kind, a, b, c, d)``: which rows of the scratch it loads, compares and stores. Two levels of the
network are done in one step wherever four rows meet only each other, which halves the loads and stores:

- ``SORT``: sort the four rows a < b < c < d: (a,b) (c,d) (a,c) (b,d) (b,c);
- ``MERGE``: (a,c) (b,d) (b,c);
- ``PAIR``: (a,b).

A comparator (i, j) moves the larger value to row i, so a set comes out in descending order. The steps of ``SORT``
come first and cover the rows 0..3, 4..7 and so on, so that a kernel can do them while it loads the features.
"""

import numpy as np
from numba import njit

PAIR, MERGE, SORT = 2, 3, 4


@njit(nogil=True, cache=True)
def step_bound(size):
    """An upper bound of the comparators, and so of the steps: half a row in each of log2 (log2 + 1) / 2 levels."""
    levels = 0
    merged = 1
    while merged < size:
        merged *= 2
        levels += 1
    return size * levels * (levels + 1) // 4 + 4


@njit(nogil=True, cache=True)
def _put(steps, count, kind, a, b, c, d):
    steps[count, 0], steps[count, 1], steps[count, 2], steps[count, 3], steps[count, 4] = kind, a, b, c, d
    return count + 1


@njit(nogil=True, cache=True)
def write_steps(size, steps):
    """Write the steps that sort ``size`` rows into ``steps (S, 5)``; return how many."""
    count = 0
    fours = size // 4 * 4
    for i in range(0, fours, 4):
        count = _put(steps, count, SORT, i, i + 1, i + 2, i + 3)
    if size - fours >= 2:
        count = _put(steps, count, PAIR, fours, fours + 1, 0, 0)
    if size - fours == 3:
        count = _put(steps, count, PAIR, fours, fours + 2, 0, 0)
        count = _put(steps, count, PAIR, fours + 1, fours + 2, 0, 0)
    merged = 4  # sorted runs of this many rows are merged two by two
    while merged < size:
        step = merged
        while step >= 1:
            count = _two_levels(size, merged, step, steps, count)
            step //= 4
        merged *= 2
    return count


@njit(nogil=True, cache=True)
def _two_levels(size, merged, step, steps, count):
    """The levels that compare rows ``step`` and ``step // 2`` apart, within blocks of ``2 * merged`` rows."""
    half = step // 2
    span = 2 * merged
    for start in range(step % merged, size - step, 2 * step):
        for i in range(start, min(start + max(half, 1), size - step)):
            if i // span != (i + step) // span:
                continue
            if half == 0:
                count = _put(steps, count, PAIR, i, i + 1, 0, 0)
            elif i + step + half < size:
                count = _put(steps, count, MERGE, i, i + half, i + step, i + step + half)
            else:  # the fourth row would lie past the end
                count = _put(steps, count, PAIR, i, i + step, 0, 0)
                count = _put(steps, count, PAIR, i + half, i + step, 0, 0)
    if half and step < merged:
        # Comparators of the second level between two groups of four.
        for start in range(half, size - half, 4 * half):
            for i in range(start, min(start + half, size - half)):
                if i // span == (i + half) // span:
                    count = _put(steps, count, PAIR, i, i + half, 0, 0)
    return count


@njit(nogil=True, cache=True)
def write_comparators(size, pairs):
    """Write the same network as single comparators ``(i, j)`` into ``pairs (P, 2)``; return how many."""
    steps = np.empty((step_bound(size), 5), np.int32)
    count = 0
    for s in range(write_steps(size, steps)):
        kind, a, b, c, d = steps[s, 0], steps[s, 1], steps[s, 2], steps[s, 3], steps[s, 4]
        if kind == PAIR:
            pairs[count, 0], pairs[count, 1] = a, b
            count += 1
            continue
        if kind == SORT:
            pairs[count, 0], pairs[count, 1] = a, b
            pairs[count + 1, 0], pairs[count + 1, 1] = c, d
            count += 2
        pairs[count, 0], pairs[count, 1] = a, c
        pairs[count + 1, 0], pairs[count + 1, 1] = b, d
        pairs[count + 2, 0], pairs[count + 2, 1] = b, c
        count += 3
    return count


def steps_for(size: int) -> np.ndarray:
    """The steps as an array, for looking at and for tests."""
    steps = np.zeros((int(step_bound(size)), 5), np.int32)
    return steps[: write_steps(size, steps)]

"""Batcher's odd-even merge sort for any number of rows, as a list of comparators."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def comparator_bound(size):
    """An upper bound of the number of comparators: half a row in each of log2 (log2 + 1) / 2 levels."""
    levels = 0
    merged = 1
    while merged < size:
        merged *= 2
        levels += 1
    return size * levels * (levels + 1) // 4 + 1


@njit(nogil=True, cache=True)
def write_comparators(size, pairs):
    """Write the comparators that sort ``size`` rows into ``pairs (P, 2)``; return how many.

    A pair (i, j) has i < j and moves the larger value to row i, so a set comes out in descending order.
    """
    count = 0
    merged = 1  # sorted runs of this many rows are merged two by two
    while merged < size:
        step = merged
        while step >= 1:
            for start in range(step % merged, size - step, 2 * step):
                for i in range(start, min(start + step, size - step)):
                    if i // (2 * merged) == (i + step) // (2 * merged):
                        pairs[count, 0] = i
                        pairs[count, 1] = i + step
                        count += 1
            step //= 2
        merged *= 2
    return count


def comparators(size: int) -> np.ndarray:
    """The comparators as an array ``(P, 2)``, for looking at and for tests."""
    pairs = np.zeros((int(comparator_bound(size)), 2), np.int32)
    return pairs[: write_comparators(size, pairs)]

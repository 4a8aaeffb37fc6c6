"""How often a feature file repeats each image, found by looking at a few of its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

COMPLETE_BYTES = 64 << 20
"""Files up to this size are looked at completely."""
WINDOWS = 17
WINDOW_ROWS = 16
_PREFIX = 256  # values that are compared first: two images nearly always differ there, and it is one page of the file


@dataclass(frozen=True)
class Neighbours:
    """Which of the rows that were looked at equal the row before them."""

    rows: int
    equal: NDArray[np.bool_]
    positions: NDArray[np.int64]
    complete: bool

    @property
    def changes(self) -> NDArray[np.int64]:
        """Rows that differ from the row before them, ascending."""
        return self.positions[~self.equal]

    @property
    def factor(self) -> int | None:
        """The largest M for which all changes are at multiples of M; None if no change was seen in a part of the file.

        M divides the number of rows. Counting one run would not do: two equal images side by side make a run of 2M.
        """
        if not self.complete and not self.changes.size:
            return None
        return math.gcd(self.rows, *self.changes.tolist())

    @property
    def mostly_equal(self) -> bool:
        """Whether more than half of the rows equal the row before them."""
        return 2 * int(self.equal.sum()) > len(self.equal)


def compare_neighbours(array: NDArray[Any]) -> Neighbours:
    """Compare rows with the row before them: all rows of a small file, 17 windows of 16 rows of a large one."""
    complete = array.nbytes <= COMPLETE_BYTES or len(array) <= WINDOWS * WINDOW_ROWS
    positions = np.array(list(range(1, len(array)) if complete else _windows(len(array))), dtype=np.int64)
    equal = np.array([_same(array[i - 1], array[i]) for i in positions.tolist()], dtype=np.bool_)
    return Neighbours(len(array), equal, positions, complete)


def _windows(rows: int) -> Iterator[int]:
    """Windows at the first row, at the last and evenly in between."""
    last = 0
    for k in range(WINDOWS):
        start = k * (rows - WINDOW_ROWS) // (WINDOWS - 1)
        for position in range(max(start, last) + 1, start + WINDOW_ROWS):
            yield position
            last = position


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two rows are copies: bytes are compared, since NaN differs from itself."""
    first, second = np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1)
    bits = np.dtype(f"u{first.itemsize}")
    first, second = first.view(bits), second.view(bits)
    return np.array_equal(first[:_PREFIX], second[:_PREFIX]) and np.array_equal(first, second)

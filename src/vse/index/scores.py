"""Scores that are the same however they were found.

A score is the dot product summed in double precision and rounded to float32 once. It depends on the two vectors alone
and not on their row, on the way they were found or on what is searched beside them, so that equal vectors have equal
scores and the order (score descending, id ascending) is the same for every ``k``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vse.index.collection import Vectors

BLOCK = 8192


def exact_scores(matrix: Vectors, rows: NDArray[np.int64], query: Vectors) -> NDArray[np.float32]:
    """Scores of some rows against ``query (D,)``, NaN for rows that are zero, as those of purged vectors are.

    Products of float32 are exact in double precision, and their sums nearly so.
    """
    scores = np.empty(len(rows), np.float32)
    wide = query.astype(np.float64)
    for start in range(0, len(rows), BLOCK):
        block = matrix[rows[start : start + BLOCK]]
        values = (block.astype(np.float64) * wide).sum(axis=1)
        scores[start : start + BLOCK] = np.where(block.any(axis=1), values, np.nan)
    return scores


def rounding(dimensions: int) -> float:
    """How far two float32 sums of a dot product of unit vectors can be apart, whatever their order."""
    return 2.1 * (dimensions + 1) * 2.0**-24

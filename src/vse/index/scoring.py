"""Exact scores of a query against rows of embeddings, and deterministic samples of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vse.index.storage import Rows, decode
from vse.index.types import Vectors

BLOCK = 8192


def exact_scores(matrix: Rows, rows: NDArray[np.int64], query: Vectors) -> NDArray[np.float32]:
    """Return the scores of stored ``rows`` against ``query (D,)``; NaN for zero rows, which are purged embeddings.

    Products of float32 are exact in double precision, and their sums nearly so.
    """
    scores = np.empty(len(rows), np.float32)
    wide = query.astype(np.float64)
    for start in range(0, len(rows), BLOCK):
        block = decode(matrix[rows[start : start + BLOCK]])
        values = (block.astype(np.float64) * wide).sum(axis=1)
        scores[start : start + BLOCK] = np.where(block.any(axis=1), values, np.nan)
    return scores


def rounding(dimensions: int) -> float:
    """Return how much two float32 dot products of the same unit vectors can differ, in any summation order."""
    return 2.1 * (dimensions + 1) * 2.0**-24


FACTORS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)


def hashes(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash ids with a fixed bijection of 64 bits: multiply and shift, twice."""
    bits = ids.astype(np.uint64)
    for factor in FACTORS:
        bits = bits * np.uint64(factor)  # modulo 2^64
        bits ^= bits >> np.uint64(32)
    return bits


def smallest(ids: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the positions, ascending, of the ``count`` ids with the smallest hashes, or of all if there are fewer."""
    if len(ids) <= count:
        return np.arange(len(ids))
    return np.sort(np.argpartition(hashes(ids), count)[:count])

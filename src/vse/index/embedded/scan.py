"""Exact search over a matrix of unit vectors.

A score that is returned is the dot product summed in double precision and rounded to float32 once. It depends on the
two vectors alone and not on their row, on the way they were found or on what is searched beside them, so that equal
vectors have equal scores and the order (score descending, id ascending) is the same for every ``k``. FAISS sums in
single precision; it only proposes, with room for its rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vse.index.collection import Vectors
from vse.index.embedded.faiss_library import library, selector

Rows = NDArray[np.int64]
SPARE = 16
"""How many rows more than asked for are proposed at first."""
DENSE_PART = 8
"""From an eighth of all rows on, computing every score is faster than keeping the best in order."""
BLOCK = 8192


def exact_scores(matrix: Vectors, rows: Rows, query: Vectors) -> NDArray[np.float32]:
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


def propose(matrix: Vectors, query: Vectors, k: int, allowed: NDArray[np.bool_] | None) -> Rows:
    """Rows among which the best ``k`` are, with every row that could tie with the last of them.

    ``allowed (rows,)`` says which rows may be found; None allows all.
    """
    count = len(matrix) if allowed is None else int(allowed.sum())
    room = rounding(matrix.shape[1])
    ask = k + SPARE
    while ask * DENSE_PART < count:
        scores, rows = _best(matrix, query, ask, allowed)
        enough = float(scores[k - 1]) - room
        if scores[-1] < enough:
            return rows[scores >= enough]
        ask *= 4
    rows = np.arange(len(matrix)) if allowed is None else np.flatnonzero(allowed)
    return _dense(matrix, query, k, rows, room)


def _best(
    matrix: Vectors, query: Vectors, k: int, allowed: NDArray[np.bool_] | None
) -> tuple[NDArray[np.float32], Rows]:
    faiss = library()
    scores, rows = np.empty(k, np.float32), np.empty(k, np.int64)
    faiss.knn_inner_product(
        faiss.swig_ptr(query), faiss.swig_ptr(matrix), matrix.shape[1], 1, len(matrix), k,
        faiss.swig_ptr(scores), faiss.swig_ptr(rows), selector(allowed),
    )  # fmt: skip
    return scores, rows


def _dense(matrix: Vectors, query: Vectors, k: int, rows: Rows, room: float) -> Rows:
    if len(rows) <= k:
        return rows
    whole = len(rows) == len(matrix)
    scores = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), BLOCK):
        stop = start + BLOCK
        scores[start:stop] = (matrix[start:stop] if whole else matrix[rows[start:stop]]) @ query
    last = np.partition(scores, len(rows) - k)[len(rows) - k]
    return rows[scores >= last - room]

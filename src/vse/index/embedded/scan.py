"""Exact search over a matrix of unit vectors.

The scores that are returned are those of :mod:`vse.index.scores`. FAISS sums in single precision; it only proposes,
with room for its rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vse.index.collection import Vectors
from vse.index.embedded.faiss_library import library, selector
from vse.index.scores import BLOCK, rounding

Rows = NDArray[np.int64]
SPARE = 16
"""How many rows more than asked for are proposed at first."""
DENSE_PART = 8
"""From an eighth of all rows on, computing every score is faster than keeping the best in order."""
SMALL = 32_768
"""Up to so many rows all scores are computed whatever is asked for: loading FAISS would take longer."""


def propose(matrix: Vectors, query: Vectors, k: int, allowed: NDArray[np.bool_] | None) -> Rows:
    """Rows among which the best ``k`` are, with every row that could tie with the last of them.

    ``allowed (rows,)`` says which rows may be found; None allows all.
    """
    count = len(matrix) if allowed is None else int(np.count_nonzero(allowed))
    room = rounding(matrix.shape[1])
    ask = k + SPARE
    while len(matrix) > SMALL and ask * DENSE_PART < count:
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

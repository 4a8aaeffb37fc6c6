"""Exact search through a matrix of stored embeddings: proposes rows, which are then scored in double precision.

float32 is searched by FAISS where it lies. float16 is copied block by block into a FAISS index, which converts it in
registers, and int8 is converted by NumPy block by block: in memory they take about 1.2 and 1.9 times as long, and they
read half and a quarter of the bytes. No decoded copy of the matrix exists at any time. A file that is too large for the
memory is read in small parts, and every score is computed, of float16 by the same index.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.index.scoring import BLOCK, rounding
from vse.index.storage import Rows
from vse.index.store.approximate import library, selector
from vse.index.store.checksums import StoredRows
from vse.index.types import Vectors

Numbers = NDArray[np.int64]
Scores = NDArray[np.float32]
SPARE = 16
"""Rows proposed at first beyond those requested."""
DENSE_PART = 8
"""From an eighth of all rows on, computing every score is faster than a top-k search."""
FEW_PART = 16
"""Of a file that is not in memory only the allowed rows are read if they are less than one in so many."""
SMALL = 32_768
"""Up to this many rows all scores are computed: loading FAISS would take longer."""
SCAN_BLOCK = 16_384
"""Rows of float16 or int8 that are searched at a time."""
PART_BYTES = 262_144
"""Read at a time from a file that is not in memory: less than the processor's cache."""


def propose(matrix: Rows | StoredRows, query: Vectors, k: int, allowed: NDArray[np.bool_] | None) -> Numbers:
    """Return rows that include the best ``k``, and every row that could tie with the last of them.

    Args:
        matrix: Vectors ``(rows, D)`` as stored.
        query: The query ``(D,)``.
        k: How many rows are wanted.
        allowed: Mask ``(rows,)`` of the rows that may be returned; None allows all.

    Returns:
        Row numbers, in any order.
    """
    count = len(matrix) if allowed is None else int(np.count_nonzero(allowed))
    room = rounding(matrix.shape[1]) * (2 if matrix.dtype == np.int8 else 1)  # int8: the length is rounded too
    small = SMALL // 4 if matrix.dtype == np.float16 else SMALL  # NumPy converts float16 slowly
    ask = k + SPARE
    if isinstance(matrix, StoredRows):
        return _from_file(matrix, query, k, allowed, room)
    while len(matrix) > small and ask * DENSE_PART < count:
        scores, rows = _best(matrix, query, ask, allowed)
        enough = float(scores[k - 1]) - room
        if scores[-1] < enough:
            return rows[scores >= enough]
        ask *= 4
    rows = np.arange(len(matrix)) if allowed is None else np.flatnonzero(allowed)
    return _dense(matrix, query, k, rows, room)


def _from_file(matrix: StoredRows, query: Vectors, k: int, allowed: NDArray[np.bool_] | None, room: float) -> Numbers:
    count = len(matrix) if allowed is None else int(np.count_nonzero(allowed))
    if allowed is not None and (count <= k or count * FEW_PART < len(matrix)):
        rows = np.flatnonzero(allowed)
        return rows if count <= k else _dense(matrix, query, k, rows, room)
    if count <= k:
        return np.arange(count)
    scores = np.empty(len(matrix), np.float32)
    half = _half_index(matrix.shape[1]) if matrix.dtype == np.float16 else None
    for start, part in matrix.parts(PART_BYTES):
        scores[start : start + len(part)] = _scores(part, query) if half is None else _half_scores(half, part, query)
    if allowed is not None:
        scores[~allowed] = -np.inf
    last = np.partition(scores, len(scores) - k)[len(scores) - k]
    return np.flatnonzero(scores >= last - room)


def _best(matrix: Rows, query: Vectors, k: int, allowed: NDArray[np.bool_] | None) -> tuple[Scores, Numbers]:
    """Return the best ``k`` allowed rows and their scores, descending; at least ``k`` rows are allowed."""
    scores, rows = np.empty(k, np.float32), np.empty(k, np.int64)
    if matrix.dtype == np.float32:
        faiss = library()
        faiss.knn_inner_product(
            faiss.swig_ptr(query), faiss.swig_ptr(matrix), matrix.shape[1], 1, len(matrix), k,
            faiss.swig_ptr(scores), faiss.swig_ptr(rows), selector(allowed),
        )  # fmt: skip
        return scores, rows
    find = _best_half if matrix.dtype == np.float16 else _best_bytes
    scores, rows = np.empty(0, np.float32), np.empty(0, np.int64)
    for start in range(0, len(matrix), SCAN_BLOCK):
        stop = start + SCAN_BLOCK
        some, places = find(matrix[start:stop], query, k, None if allowed is None else allowed[start:stop])
        scores, rows = np.concatenate([scores, some]), np.concatenate([rows, start + places])
        if len(scores) > k:
            best = np.argpartition(scores, len(scores) - k)[len(scores) - k :]
            scores, rows = scores[best], rows[best]
    order = np.argsort(-scores, kind="stable")
    return scores[order], rows[order]


def _best_half(block: Rows, query: Vectors, k: int, allowed: NDArray[np.bool_] | None) -> tuple[Scores, Numbers]:
    index = _half_index(block.shape[1])
    index.add_sa_codes(np.ascontiguousarray(block).view(np.uint8))
    parameters = None if allowed is None else library().SearchParameters(sel=selector(allowed))
    scores, rows = index.search(query[None], min(k, len(block)), params=parameters)
    found = rows[0] >= 0
    return scores[0][found], rows[0][found]


def _half_scores(index: Any, block: Rows, query: Vectors) -> Scores:
    """Return the scores of all rows of float16, several times as fast as NumPy, which converts them one by one."""
    index.reset()
    index.add_sa_codes(block.view(np.uint8))
    found, rows = index.search(query[None], len(block))
    scores = np.full(len(block), -np.inf, np.float32)
    known = rows[0] >= 0  # what is not a number has no row
    scores[rows[0][known]] = found[0][known]
    return scores


def _half_index(dimensions: int) -> Any:
    """Return an empty index of float16."""
    faiss = library()
    return faiss.IndexScalarQuantizer(dimensions, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)


def _best_bytes(block: Rows, query: Vectors, k: int, allowed: NDArray[np.bool_] | None) -> tuple[Scores, Numbers]:
    rows = np.arange(len(block)) if allowed is None else np.flatnonzero(allowed)
    scores = _scores(block if allowed is None else block[rows], query)
    if len(rows) > k:
        best = np.argpartition(scores, len(rows) - k)[len(rows) - k :]
        scores, rows = scores[best], rows[best]
    return scores, rows


def _dense(matrix: Rows | StoredRows, query: Vectors, k: int, rows: Numbers, room: float) -> Numbers:
    if len(rows) <= k:
        return rows
    whole = isinstance(matrix, np.ndarray) and len(rows) == len(matrix)
    scores = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), BLOCK):
        stop = start + BLOCK
        block = matrix[start:stop] if whole and isinstance(matrix, np.ndarray) else matrix[rows[start:stop]]
        scores[start:stop] = _scores(block, query)
    last = np.partition(scores, len(rows) - k)[len(rows) - k]
    return rows[scores >= last - room]


def _scores(block: Rows, query: Vectors) -> Scores:
    """Return the scores of all rows of a block, in float32."""
    if block.dtype != np.int8:
        return block.astype(np.float32, copy=False) @ query
    scores = np.empty(len(block), np.float32)
    for start in range(0, len(block), 1024):  # what is converted stays in the processor's cache
        codes = block[start : start + 1024].astype(np.float32)
        squares = np.einsum("ij,ij->i", codes, codes)
        scores[start : start + 1024] = (codes @ query) / np.sqrt(np.where(squares > 0, squares, 1))
    return scores

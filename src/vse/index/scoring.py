"""Exact scores of a query against rows of embeddings, deterministic samples of them, and files ranked by words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from vse.index.storage import Rows, decode
from vse.index.types import NO_WORD_HITS, Hits, Vectors, WordHits

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


Ids = NDArray[np.int64]


def best_by_share(
    files: Ids, shares: NDArray[np.float64], k: int, best: Callable[[Ids, int], tuple[Hits, NDArray[np.int64]]]
) -> WordHits:
    """Return ``k`` files by descending share, then score, then id; see ``Collection.search_words``.

    Embeddings of at most ``k`` files are compared, and of those that share the last place.

    Args:
        files: Files that hold enough of the words.
        shares: The share of each.
        k: How many files.
        best: Returns the best item of each of the best so many of some files, and the rows of the files they belong to.
    """
    order = np.argsort(-shares, kind="stable")
    files, shares = files[order], shares[order]
    columns: list[tuple[Ids, NDArray[np.float32], NDArray[np.float64]]] = []
    missing = k
    for start, stop in _spans(shares, k):
        equal = shares[start] == shares[stop - 1]  # then only the best of these files are needed
        hits, rows = best(files[start:stop], missing if equal else stop - start)
        held = shares[start:stop][rows]
        rank = np.lexsort((hits.ids, -hits.scores, -held))[:missing]
        columns.append((hits.ids[rank], hits.scores[rank], held[rank]))
        missing -= len(rank)
        if not missing:
            break
    if not columns:
        return NO_WORD_HITS
    ids, scores, held = (np.concatenate(column) for column in zip(*columns, strict=True))
    return WordHits(ids, scores, held)


def _spans(shares: NDArray[np.float64], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of descending shares: those of one value, or several that have at most ``most`` rows together."""
    ends = [*(np.flatnonzero(np.diff(shares)) + 1).tolist(), len(shares)]
    start = 0
    for here, following in zip(ends, [*ends[1:], None], strict=True):
        if here > start and (following is None or following - start > most):
            yield start, here
            start = here


def best_of_files(
    files: Ids, items: Ids, owners: Ids, count: int, nearest: Callable[[int], Hits]
) -> tuple[Hits, NDArray[np.int64]]:
    """Return the best item of each of the best ``count`` files, and the rows of ``files`` they belong to.

    Args:
        files: The files.
        items: Their items, ascending.
        owners: The file of each item.
        count: How many files.
        nearest: Returns the best so many of these items.
    """
    sorting = np.argsort(files)
    ask = max(1, min(len(items), count))
    while True:
        hits = nearest(ask)
        of_hits = owners[np.searchsorted(items, hits.ids)]
        _, firsts = np.unique(of_hits, return_index=True)
        firsts = np.sort(firsts)[:count]
        if len(firsts) == count or len(hits.ids) < ask or ask >= len(items):
            rows = sorting[np.searchsorted(files, of_hits[firsts], sorter=sorting)]
            return Hits(hits.ids[firsts], hits.scores[firsts], hits.exact), rows
        ask = min(len(items), 4 * ask)  # the best items are moments of few videos

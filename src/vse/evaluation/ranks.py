"""The rank of the first right candidate, counted in blocks and exactly equal to that of float64.

    rank(q) = 1 + |{ c wrong for q : s(q, c) >= max over right p of s(q, p) }|

The score of the best right candidate is computed in float64. Blocks of scores are float32, with a bounded error; a
candidate closer to the threshold than this bound is scored again in float64. Memory is one block for any size.

Ties are pessimistic by default: a wrong candidate with the same score comes first. ``ties="optimistic"`` puts it last.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, unknown_choice
from vse.evaluation.positives import Indices, Positives
from vse.evaluation.scores import Scores
from vse.progress import ProgressReporter, SilentProgress

Ties = Literal["pessimistic", "optimistic"]
Ranks = NDArray[np.int64]
TIES: tuple[Ties, ...] = ("pessimistic", "optimistic")
NO_POSITIVE = 0
BLOCK_ROWS, BLOCK_COLUMNS = 1024, 4096
CROWDED = 0.005  # share of a block near its thresholds from which on a float64 block is quicker than single scores
DENSE = 0.02  # share of a block above its thresholds from which on sums are quicker than lists


def ranks(
    scores: Scores,
    positives: Positives,
    *,
    exclude_self: bool = False,
    ties: Ties = "pessimistic",
    progress: ProgressReporter | None = None,
) -> Ranks:
    """Return the rank of the first right candidate of each row, from 1; 0 for a row without any.

    Args:
        scores: ``(queries, candidates)``.
        positives: the right candidates of each query.
        exclude_self: leave out the candidate with the index of the query, for image-to-image retrieval.
        ties: whether a wrong candidate with the score of the best right one comes before or after it.
        progress: shows the work.
    """
    check_positives(scores, positives)
    rows, columns = positives.rows, positives.columns
    side = Side(scores, rows, scores.exact(rows, columns), ties)
    if exclude_self:
        size, candidates = scores.shape
        if size != candidates:
            raise InputError(f"exclude_self needs queries that are the candidates, got {size} and {candidates}")
        if (rows == columns).any():
            raise InputError("a query is among its own right candidates and is to be left out: drop it there first")
        everyone = np.arange(size)
        rows, columns = np.concatenate((rows, everyone)), np.concatenate((columns, everyone))
    _sweep(scores, side, None, ExcludedPairs(rows, columns, scores.shape), progress or SilentProgress())
    return side.ranks()


def ranks_both_ways(
    scores: Scores,
    positives: Positives,
    *,
    ties: Ties = "pessimistic",
    progress: ProgressReporter | None = None,
) -> tuple[Ranks, Ranks]:
    """Return the ranks of rows among columns and of columns among rows, from one pass over the scores."""
    check_positives(scores, positives)
    rows, columns = positives.rows, positives.columns
    own = scores.exact(rows, columns)
    row, column = Side(scores, rows, own, ties), Side(scores.T, columns, own, ties)
    _sweep(scores, row, column, ExcludedPairs(rows, columns, scores.shape), progress or SilentProgress())
    return row.ranks(), column.ranks()


class Side:
    """One direction of retrieval: thresholds of its queries, and how many wrong candidates reach them."""

    def __init__(self, scores: Scores, queries: Indices, own: NDArray[np.float64], ties: Ties) -> None:
        """``own[k]`` is the exact score of a right candidate of ``queries[k]``."""
        if ties not in TIES:
            raise InputError(unknown_choice("tie rule", ties, TIES))
        self.scores = scores
        best = np.full(scores.shape[0], -np.inf)
        np.maximum.at(best, queries, own)
        self.has_positive = best > -np.inf
        # What reaches the threshold comes before the best right candidate.
        self.threshold = best - scores.resolution if ties == "pessimistic" else best + scores.resolution
        self.threshold[~self.has_positive] = np.inf
        self.strict = ties == "optimistic"
        self.low, self.high = _rounded(self.threshold, scores.tolerance)
        self.counts = np.zeros(len(best), dtype=np.int64)

    def add(self, block: NDArray[np.float32], first_query: int, first_candidate: int, axis: int) -> None:
        """Count the candidates of a block of scores; ``axis`` 0 has the queries in its rows, 1 in its columns."""
        part = slice(first_query, first_query + block.shape[axis])
        low, high = (bound[part, None] if axis == 0 else bound[None, part] for bound in (self.low, self.high))
        above = block >= low
        found = int(np.count_nonzero(above))
        if found == 0:
            return
        if found > DENSE * block.size:
            certain = block >= high
            self.counts[part] += certain.view(np.uint8).sum(axis=1 - axis, dtype=np.int64)
            np.logical_xor(above, certain, out=above)
            if np.count_nonzero(above) > CROWDED * block.size:
                self._add_wide(above if axis == 0 else above.T, first_query, first_candidate)
                return
            near = np.flatnonzero(above)
        else:
            near = np.flatnonzero(above)
            place = near // block.shape[1] if axis == 0 else near % block.shape[1]
            certain = block.ravel()[near] >= self.high[part][place]
            self.counts[part] += np.bincount(place[certain], minlength=block.shape[axis])
            near = near[~certain]
        if near.size:
            rows, columns = np.divmod(near, block.shape[1])
            queries, candidates = (rows, columns) if axis == 0 else (columns, rows)
            queries, candidates = queries + first_query, candidates + first_candidate
            exact, threshold = self.scores.exact(queries, candidates), self.threshold[queries]
            reached = exact > threshold if self.strict else exact >= threshold
            np.add.at(self.counts, queries[reached], 1)

    def _add_wide(self, near: NDArray[np.bool_], first_query: int, first_candidate: int) -> None:
        """Decide the marked pairs ``(queries, candidates)`` by a float64 block; collapsed embeddings have many."""
        queries, candidates = near.shape
        part = slice(first_query, first_query + queries)
        block = self.scores.wide(part, slice(first_candidate, first_candidate + candidates))
        threshold = self.threshold[part, None]
        reached = (block > threshold if self.strict else block >= threshold) & near
        self.counts[part] += reached.sum(axis=1)

    def ranks(self) -> Ranks:
        """Return the ranks after every block was added."""
        return np.where(self.has_positive, self.counts + 1, NO_POSITIVE)


class ExcludedPairs:
    """Pairs that are not counted (positives, a query itself), grouped by block."""

    def __init__(self, rows: Indices, columns: Indices, shape: tuple[int, int]) -> None:
        self._across = -(-shape[1] // BLOCK_COLUMNS)
        blocks = (rows // BLOCK_ROWS) * self._across + columns // BLOCK_COLUMNS
        order = np.argsort(blocks, kind="stable")
        self._rows, self._columns = rows[order] % BLOCK_ROWS, columns[order] % BLOCK_COLUMNS
        self._starts = np.searchsorted(blocks[order], np.arange(self._across * -(-shape[0] // BLOCK_ROWS) + 1))

    def exclude(self, block: NDArray[np.float32], row: int, column: int) -> None:
        """Set the pairs of the block that begins at ``row`` and ``column`` below every threshold."""
        number = (row // BLOCK_ROWS) * self._across + column // BLOCK_COLUMNS
        part = slice(self._starts[number], self._starts[number + 1])
        block[self._rows[part], self._columns[part]] = -np.inf


def check_positives(scores: Scores, positives: Positives) -> None:
    """Refuse positives of another size than the scores."""
    if (positives.queries, positives.candidates) != scores.shape:
        found = f"{positives.queries} queries and {positives.candidates} candidates"
        raise InputError(f"the positives are for {found}, the scores for {scores.shape[0]} and {scores.shape[1]}")


def _sweep(scores: Scores, row: Side, column: Side | None, excluded: ExcludedPairs, progress: ProgressReporter) -> None:
    rows, columns = scores.shape
    progress.start(-(-rows // BLOCK_ROWS), "ranking")
    # Both directions are counted at once: numpy releases the GIL while it compares.
    with ThreadPoolExecutor(1) as other:
        for i in range(0, rows, BLOCK_ROWS):
            for j in range(0, columns, BLOCK_COLUMNS):
                block = scores.block(slice(i, i + BLOCK_ROWS), slice(j, j + BLOCK_COLUMNS))
                excluded.exclude(block, i, j)
                beside = other.submit(column.add, block, j, i, 1) if column is not None else None
                row.add(block, i, j, 0)
                if beside is not None:
                    beside.result()
            progress.advance()
    progress.finish()


def _rounded(threshold: NDArray[np.float64], tolerance: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return float32 bounds around the thresholds: below the first none is reached, from the second on all are."""
    low = (threshold - tolerance).astype(np.float32)
    high = (threshold + tolerance).astype(np.float32)
    return np.nextafter(low, np.float32(-np.inf)), np.nextafter(high, np.float32(np.inf))

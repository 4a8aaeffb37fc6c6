"""Re-rank the first K candidates of every query with the scores of pairs; ranks of both directions, exact.

The order of a query's candidates is: the first K of the first stage, by their pair score; then all others, in the order
of the first stage. Candidates with equal pair scores keep the order of the first stage. Candidates that the first stage
cannot tell apart are ordered by the tie rule: with ``pessimistic``, wrong ones come first, also across the K-th place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, unknown_choice
from vse.evaluation.positives import Indices, Positives
from vse.evaluation.ranks import TIES, Ranks, Ties, check_positives, ranks_both_ways
from vse.evaluation.scores import Scores
from vse.models.protocols import CandidateScorer, Items, PairScorer
from vse.progress import ProgressReporter, SilentProgress

PairScores: TypeAlias = Callable[[Indices, Indices], NDArray[Any]]
"""The scores ``(n,)`` of pairs, given as rows ``(n,)`` and columns ``(n,)``."""
MAX_DEPTH = 5000
"""Candidates of a query that may be scored again."""
BLOCK = 1 << 22  # entries of the score matrix that are looked at together


def check_depth(depth: Any, largest: int = MAX_DEPTH) -> int:
    """Return a depth; raise InputError unless it is a whole number from 0 to ``largest``."""
    if isinstance(depth, bool) or not isinstance(depth, int | np.integer) or not 0 <= depth <= largest:
        raise InputError(f"depth {str(depth)[:60]}: expected a whole number from 0 to {largest:,}")
    return int(depth)


def rerank(
    first_scores: Scores,
    pair_scores: PairScores,
    depth: int,
    positives: Positives,
    *,
    ties: Ties = "pessimistic",
    progress: ProgressReporter | None = None,
) -> tuple[Ranks, Ranks]:
    """Return the rank of the first right candidate after re-ranking, for each row and for each column.

    A query without a right candidate among its first ``depth`` keeps its rank. ``pair_scores`` is asked once, for the
    pairs that either direction needs.

    Args:
        first_scores: ``(rows, columns)`` of the first stage.
        pair_scores: scores of single pairs by the re-ranker.
        depth: K, how many candidates of each query are re-ranked; 0 leaves the order of the first stage.
        positives: the right columns of each row.
        ties: the rule for candidates that the first stage cannot tell apart.
        progress: shows the work.

    Returns:
        Ranks from 1 as :func:`vse.evaluation.ranks.ranks_both_ways` returns them; 0 for a query without right ones.

    Raises:
        InputError: the sizes do not fit, the depth is out of range, or a pair score is not finite.
    """
    depth, report = check_depth(depth), progress or SilentProgress()
    row_ranks, column_ranks = ranks_both_ways(first_scores, positives, ties=ties, progress=report)
    if depth == 0:
        return row_ranks, column_ranks
    row_candidates = top_candidates(first_scores, positives, depth, ties=ties)
    column_candidates = top_candidates(first_scores.T, positives.T, depth, ties=ties)
    count, width = first_scores.shape
    row_keys = np.arange(count)[:, None] * width + row_candidates
    column_keys = column_candidates * width + np.arange(width)[:, None]
    keys, place = np.unique(np.concatenate((row_keys.ravel(), column_keys.ravel())), return_inverse=True)
    found = np.asarray(pair_scores(keys // width, keys % width), dtype=np.float64)
    if found.shape != keys.shape:
        raise InputError(f"the re-ranker returned scores of shape {found.shape} for {len(keys)} pairs")
    if not np.isfinite(found).all():
        wrong = int(keys[~np.isfinite(found)][0])
        raise InputError(f"the re-ranker's score of row {wrong // width} and column {wrong % width} is not finite")
    own, other = np.split(found[place], [row_keys.size])
    return (
        _ranks(row_ranks, row_candidates, own.reshape(row_keys.shape), positives),
        _ranks(column_ranks, column_candidates, other.reshape(column_keys.shape), positives.T),
    )


def top_candidates(
    scores: Scores, positives: Positives, depth: int, *, ties: Ties = "pessimistic"
) -> NDArray[np.int64]:
    """Return the first ``depth`` candidates of each row in order, ``(rows, min(depth, columns))``.

    Blocks are float32. Candidates closer to the last place than the error of a block are scored again in float64, and
    so is the order of the candidates that remain. Of those that are equal then, ``ties`` decides; what it leaves open
    goes by number.
    """
    check_positives(scores, positives)
    if ties not in TIES:
        raise InputError(unknown_choice("tie rule", ties, TIES))
    rows, columns = scores.shape
    depth = min(depth, columns)
    found = np.empty((rows, depth), dtype=np.int64)
    step = max(1, BLOCK // max(1, columns))
    margin = 2 * (scores.tolerance + scores.resolution)
    for start in range(0, rows if depth else 0, step):
        block = scores.block(slice(start, start + step), slice(0, columns))
        last = np.partition(block, columns - depth, axis=1)[:, columns - depth].astype(np.float64)
        near = block >= np.nextafter((last - margin).astype(np.float32), np.float32(-np.inf))[:, None]
        queries, candidates = np.nonzero(near)
        exact = scores.exact(queries + start, candidates)
        for row in range(len(block)):
            part = slice(*np.searchsorted(queries, [row, row + 1]))
            right = np.isin(candidates[part], positives.of(start + row))
            order = _first_order(exact[part], right, scores.resolution, ties)
            found[start + row] = candidates[part][order[:depth]]
    return found


def _first_order(
    scores: NDArray[np.float64], right: NDArray[np.bool_], resolution: float, ties: Ties
) -> NDArray[np.int64]:
    """Return the order of candidates by score; those within ``resolution`` of each other by the tie rule."""
    falling = np.argsort(-scores, kind="stable")
    gaps = -np.diff(scores[falling]) > resolution
    group = np.empty(len(scores), dtype=np.int64)
    group[falling] = np.concatenate(([0], np.cumsum(gaps)))
    return np.lexsort((right if ties == "pessimistic" else ~right, group))


def _ranks(before: Ranks, candidates: NDArray[np.int64], scores: NDArray[np.float64], positives: Positives) -> Ranks:
    """Return the ranks of queries whose ``candidates (Q, K)``, in the order of the first stage, have new scores."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranks = before.copy()
    for query in np.flatnonzero((before > 0) & (before <= candidates.shape[1])):
        right = np.isin(candidates[query][order[query]], positives.of(int(query)))
        if right.any():
            ranks[query] = int(right.argmax()) + 1
    return ranks


def score_pairs_of(
    model: PairScorer, images: Items, texts: Sequence[str], *, progress: ProgressReporter | None = None
) -> PairCache:
    """Return how a model scores pairs of ``images`` and ``texts``.

    A :class:`~vse.models.protocols.CandidateScorer` computes what it is asked for. Any other model computes the whole
    matrix when it is first asked, in blocks of its own.
    """
    if isinstance(model, CandidateScorer):
        scorer = model
        return PairCache(lambda r, c: scorer.score_candidates(images, texts, r, c, progress=progress), len(texts))
    whole: list[NDArray[np.float32]] = []

    def look_up(rows: Indices, columns: Indices) -> NDArray[np.float32]:
        if not whole:
            whole.append(model.score_pairs(images, texts, progress=progress, unknown="allow"))
        return whole[0][rows, columns]

    return PairCache(look_up, len(texts))


@dataclass(eq=False)
class PairCache:
    """Scores of pairs that are computed once, whatever galleries ask for them.

    Attributes:
        score: computes the scores of pairs of the whole test.
        width: columns of the whole test.
        pairs: how many pairs were scored.
    """

    score: PairScores
    width: int
    _keys: Indices = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    _values: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)

    @property
    def pairs(self) -> int:
        return len(self._keys)

    def __call__(self, rows: Indices, columns: Indices) -> NDArray[np.float64]:
        keys = rows * self.width + columns
        new = np.setdiff1d(keys, self._keys)
        if len(new):
            scored = np.asarray(self.score(new // self.width, new % self.width), dtype=np.float64)
            keys_now, values = np.concatenate((self._keys, new)), np.concatenate((self._values, scored))
            order = np.argsort(keys_now)
            self._keys, self._values = keys_now[order], values[order]
        return self._values[np.searchsorted(self._keys, keys)]


@dataclass(frozen=True, eq=False)
class RerankedScores:
    """The scores of a first stage, and a re-ranker of its first ``depth`` candidates in either direction.

    It is no matrix: a pair may be among the first candidates of its row and not of its column.
    :meth:`vse.evaluation.retrieval_test.RetrievalTest.rank` ranks it.
    """

    first: Scores
    pairs: PairScores
    depth: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.first.shape

    def select(self, rows: Indices, columns: Indices) -> RerankedScores:
        """Return those of some rows and columns."""
        pairs = self.pairs
        return RerankedScores(self.first.select(rows, columns), lambda r, c: pairs(rows[r], columns[c]), self.depth)

    def ranks_both_ways(
        self, positives: Positives, *, ties: Ties = "pessimistic", progress: ProgressReporter | None = None
    ) -> tuple[Ranks, Ranks]:
        """Return :func:`rerank` of these scores."""
        return rerank(self.first, self.pairs, self.depth, positives, ties=ties, progress=progress)

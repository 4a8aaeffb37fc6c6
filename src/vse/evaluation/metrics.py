"""Recall, median and mean rank in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vse.errors import InputError
from vse.evaluation.positives import Positives, text_positives
from vse.evaluation.ranks import NO_POSITIVE, Ranks, Ties, ranks_both_ways
from vse.evaluation.scores import DotScores, Scores
from vse.progress import ProgressReporter

CUTOFFS = (1, 5, 10)


@dataclass(frozen=True)
class DirectionMetrics:
    """One direction of retrieval. Recall is in percent; ranks count from 1; queries without positives are left out.

    ``R@K`` is the share of queries with at least one right candidate among the first K; with fewer than K candidates
    it is 100.
    """

    r1: float
    r5: float
    r10: float
    median_rank: float
    mean_rank: float
    queries: int

    @classmethod
    def of(cls, ranks: Ranks) -> DirectionMetrics:
        """Return the metrics of the ranks of the first right candidates."""
        found = ranks[ranks != NO_POSITIVE]
        if not found.size:
            raise InputError("no query has a right candidate: there is nothing to measure")
        r1, r5, r10 = (100.0 * float((found <= cutoff).mean()) for cutoff in CUTOFFS)
        return cls(r1, r5, r10, float(np.median(found)), float(found.mean()), len(found))

    @property
    def recalls(self) -> tuple[float, float, float]:
        """R@1, R@5, R@10."""
        return self.r1, self.r5, self.r10

    def to_json(self) -> dict[str, float]:
        """Return the figures by name."""
        return {
            "r1": self.r1,
            "r5": self.r5,
            "r10": self.r10,
            "median_rank": self.median_rank,
            "mean_rank": self.mean_rank,
            "queries": self.queries,
        }


@dataclass(frozen=True)
class RetrievalMetrics:
    """Image to text and text to image; ``rsum`` adds their six recalls."""

    i2t: DirectionMetrics
    t2i: DirectionMetrics

    @property
    def rsum(self) -> float:
        """The sum of the six recalls, at most 600."""
        return sum(self.i2t.recalls) + sum(self.t2i.recalls)

    def to_json(self) -> dict[str, Any]:
        """Return both directions and rsum."""
        return {"i2t": self.i2t.to_json(), "t2i": self.t2i.to_json(), "rsum": self.rsum}

    def figures(self) -> dict[str, float]:
        """Return every figure by name, ``i2t_r1`` to ``rsum``."""
        flat = {
            f"{way}_{name}": value
            for way, side in (("i2t", self.i2t), ("t2i", self.t2i))
            for name, value in side.to_json().items()
            if name != "queries"
        }
        return flat | {"rsum": self.rsum}


def retrieval_metrics(
    images: Any,
    texts: Any,
    text_to_image: Any,
    *,
    ties: Ties = "pessimistic",
    progress: ProgressReporter | None = None,
) -> RetrievalMetrics:
    """Return recall and ranks of embeddings, in both directions.

    Scores are dot products, the cosine of unit vectors. Ranks are exactly those of float64, and the score matrix is
    never held in memory.

    Args:
        images: ``(I, D)``, an array or a tensor.
        texts: ``(T, D)``, an array or a tensor.
        text_to_image: the row of the image that each text describes; an image without texts is a candidate but no
            query.
        ties: whether a wrong candidate with the score of the best right one comes before or after it.
        progress: shows the work.

    Raises:
        InputError: sizes do not fit, or there is nothing to rank.

    >>> import numpy as np
    >>> retrieval_metrics(np.eye(3), np.eye(3), [0, 1, 2]).rsum
    600.0
    """
    scores = DotScores(images, texts, ("images", "texts"))
    if not min(scores.shape):
        raise InputError(f"{scores.shape[0]} images and {scores.shape[1]} texts: there is nothing to rank")
    positives = text_positives(text_to_image, scores.shape[0])
    if positives.queries != scores.shape[1]:
        raise InputError(f"text_to_image has {positives.queries} entries for {scores.shape[1]} texts")
    return metrics_of_scores(scores, positives.T, ties=ties, progress=progress)


def metrics_of_scores(
    scores: Scores,
    positives: Positives,
    *,
    ties: Ties = "pessimistic",
    progress: ProgressReporter | None = None,
) -> RetrievalMetrics:
    """Return recall and ranks for any scores ``(images, texts)`` and any right pairs."""
    rows, columns = ranks_both_ways(scores, positives, ties=ties, progress=progress)
    return RetrievalMetrics(DirectionMetrics.of(rows), DirectionMetrics.of(columns))


def mean_metrics(parts: list[RetrievalMetrics]) -> RetrievalMetrics:
    """Return the mean of each figure over folds; queries are summed."""
    if not parts:
        raise InputError("no folds to take the mean of")

    def mean(side: str) -> DirectionMetrics:
        sides = [getattr(part, side) for part in parts]
        table = np.array([[each.r1, each.r5, each.r10, each.median_rank, each.mean_rank] for each in sides])
        r1, r5, r10, median, mean_rank = map(float, table.mean(axis=0))
        return DirectionMetrics(r1, r5, r10, median, mean_rank, sum(each.queries for each in sides))

    return RetrievalMetrics(mean("i2t"), mean("t2i"))

"""Confidence intervals by bootstrap: images are resampled with all their captions.

Gallery and ranks stay fixed; the queries are drawn with replacement, an image with all captions that belong to it.
Each fold is resampled separately. Two models are compared on the same draws, so that what is hard for both cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.evaluation.metrics import CUTOFFS, DirectionMetrics, RetrievalMetrics
from vse.evaluation.positives import Positives
from vse.evaluation.ranks import NO_POSITIVE, Ranks

FIGURES = (
    *(f"{way}_{name}" for way in ("i2t", "t2i") for name in ("r1", "r5", "r10", "median_rank", "mean_rank")),
    "rsum",
)
SAMPLES = 1000
LEVEL = 0.95
CHUNK_VALUES = 1 << 22  # weights held at once
ROUNDING = 1e-9  # of a sum of weights, relative


@dataclass(frozen=True, eq=False)
class FoldRanks:
    """Ranks of the images and texts of one gallery.

    Attributes:
        images: the ranks of the images.
        texts: the ranks of the texts.
        owners: the image (from 0) of each text, or :class:`Positives` where several images share texts. A shared text
            is drawn as often as its images are on average.
    """

    images: Ranks
    texts: Ranks
    owners: NDArray[np.int64] | Positives

    @property
    def metrics(self) -> RetrievalMetrics:
        """Recall and ranks in both directions."""
        return RetrievalMetrics(DirectionMetrics.of(self.images), DirectionMetrics.of(self.texts))


@dataclass(frozen=True)
class Interval:
    """The central 95 % of the resampled values."""

    low: float
    high: float

    def to_json(self) -> list[float]:
        """Return both ends."""
        return [self.low, self.high]


@dataclass(frozen=True)
class Difference:
    """One model's figure minus another's on the same draws; ``real`` when the interval excludes zero."""

    value: float
    interval: Interval

    @property
    def real(self) -> bool:
        """Whether the difference is larger than the choice of test images explains."""
        return self.interval.low > 0 or self.interval.high < 0


def resample(folds: Sequence[FoldRanks], *, samples: int = SAMPLES, seed: int = 0) -> NDArray[np.float64]:
    """Return resampled figures ``(samples, len(FIGURES))``, averaged over the folds.

    Args:
        folds: the ranks of each gallery.
        samples: the number of draws.
        seed: the same seed gives the same draws.
    """
    if samples < 1:
        raise InputError(f"samples must be at least 1, got {samples}")
    out = np.zeros((samples, len(FIGURES)))
    for number, fold in enumerate(folds):
        images = len(fold.images)
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
        pairs = len(fold.owners.columns) if isinstance(fold.owners, Positives) else len(fold.owners)
        step = max(1, CHUNK_VALUES // max(images, pairs))
        for start in range(0, samples, step):
            count = min(step, samples - start)
            drawn = generator.integers(0, images, size=(count, images))
            weights = np.stack([np.bincount(row, minlength=images) for row in drawn])  # (count, images)
            out[start : start + count] += _figures(fold, weights)
    return out / len(folds)


def intervals(values: NDArray[np.float64]) -> dict[str, Interval]:
    """Return the interval of each figure."""
    edges = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return {name: Interval(float(edges[0, i]), float(edges[1, i])) for i, name in enumerate(FIGURES)}


def differences(
    first: RetrievalMetrics,
    second: RetrievalMetrics,
    draws_first: NDArray[np.float64],
    draws_second: NDArray[np.float64],
) -> dict[str, Difference]:
    """Return ``first`` minus ``second`` for each figure, with the interval of the paired draws."""
    spread = intervals(draws_first - draws_second)
    ours, theirs = first.figures(), second.figures()
    return {name: Difference(ours[name] - theirs[name], spread[name]) for name in FIGURES}


def _figures(fold: FoldRanks, weights: NDArray[np.int64]) -> NDArray[np.float64]:
    image_side = _side(fold.images, weights)
    text_side = _side(fold.texts, _text_weights(weights, fold.owners))
    recalls = len(CUTOFFS)
    rsum = image_side[:, :recalls].sum(axis=1) + text_side[:, :recalls].sum(axis=1)
    return np.column_stack((image_side, text_side, rsum))


def _text_weights(weights: NDArray[np.int64], owners: NDArray[np.int64] | Positives) -> NDArray[Any]:
    """Return how often each text is drawn, ``(draws, texts)``, when its images are drawn ``weights`` times."""
    if isinstance(owners, Positives):
        return np.add.reduceat(weights[:, owners.columns], owners.starts[:-1], axis=1) / owners.counts
    return weights[:, owners]


def _side(ranks: Ranks, weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return R@1, 5, 10, median and mean rank ``(draws, 5)`` of weighted queries."""
    valid = ranks != NO_POSITIVE
    ranks, weights = ranks[valid], weights[:, valid]
    total = weights.sum(axis=1)
    if (total == 0).any():  # a draw without any image that has captions: each query once instead
        weights = np.where((total == 0)[:, None], 1, weights)
        total = weights.sum(axis=1)
    measured = np.stack([*(100.0 * (ranks <= cutoff) for cutoff in CUTOFFS), ranks.astype(np.float64)], axis=1)
    means = (weights @ measured) / total[:, None]
    order = np.argsort(ranks, kind="stable")
    running = np.cumsum(weights[:, order], axis=1)
    half, rounding = total[:, None] / 2, ROUNDING * total[:, None]  # sums of thirds are not exact
    lower = ranks[order][(running >= half - rounding).argmax(axis=1)]
    upper = ranks[order][(running > half + rounding).argmax(axis=1)]
    return np.column_stack((means[:, :3], (lower + upper) / 2, means[:, 3]))

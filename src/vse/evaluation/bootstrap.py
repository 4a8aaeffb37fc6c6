"""Confidence intervals by bootstrap: images are resampled with all their captions.

Gallery and ranks stay fixed; the queries are drawn with replacement, an image with all captions that belong to it.
Each fold is resampled separately. Two models are compared on the same draws, so that what is hard for both cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    _check_samples(samples)
    out = np.zeros((samples, len(FIGURES)))
    for number, fold in enumerate(folds):
        pairs = len(fold.owners.columns) if isinstance(fold.owners, Positives) else len(fold.owners)
        for start, weights in _draws(len(fold.images), pairs, samples, (seed, number)):
            out[start : start + len(weights)] += _figures(fold, weights)
    return out / len(folds)


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries of one task and the figures to resample.

    Attributes:
        owners: the image (from 0) of each query; of a caption, the image it belongs to.
        names: the figures.
        measure: weights ``(draws, queries)`` to the figures ``(draws, len(names))``.
    """

    owners: NDArray[np.int64]
    names: tuple[str, ...]
    measure: Callable[[NDArray[Any]], NDArray[np.float64]]

    @classmethod
    def of_ranks(cls, ranks: Ranks, owners: NDArray[np.int64]) -> Queries:
        """Return R@1, 5, 10, median and mean rank of the ranks of the first right candidates."""
        return cls(owners, ("r1", "r5", "r10", "median_rank", "mean_rank"), lambda weights: _side(ranks, weights))

    @classmethod
    def of_means(cls, values: NDArray[np.float64], names: Sequence[str], owners: NDArray[np.int64]) -> Queries:
        """Return means of ``values (queries, len(names))``."""
        return cls(owners, tuple(names), lambda weights: _weighted_means(values, weights))


def query_intervals(
    tasks: Mapping[str, Queries], images: int, *, samples: int = SAMPLES, seed: int = 0
) -> dict[str, Interval]:
    """Return the interval of each figure, ``{task}_{figure}``, of any tasks on the same images.

    Every task sees the same draws. An image without a query of a task does not count in it.

    Args:
        tasks: the queries of each task.
        images: the images to draw from, those without any query included.
        samples: the number of draws.
        seed: the same seed gives the same draws, those of :func:`resample` for one fold.
    """
    _check_samples(samples)
    found: dict[str, Interval] = {}
    for task, queries in tasks.items():
        chunks = _draws(images, len(queries.owners), samples, (seed, 0))
        values = np.concatenate([queries.measure(weights[:, queries.owners]) for _, weights in chunks])
        found |= {f"{task}_{name}": each for name, each in _spread(values, queries.names).items()}
    return found


def intervals(values: NDArray[np.float64]) -> dict[str, Interval]:
    """Return the interval of each figure."""
    return _spread(values, FIGURES)


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


def _check_samples(samples: int) -> None:
    if samples < 1:
        raise InputError(f"samples must be at least 1, got {samples}")


def _draws(images: int, queries: int, samples: int, key: tuple[int, int]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the first draw of each chunk, and how often each image is drawn, ``(draws, images)``."""
    generator = np.random.Generator(np.random.Philox(key=np.array(key, dtype=np.uint64)))
    step = max(1, CHUNK_VALUES // max(images, queries))
    for start in range(0, samples, step):
        drawn = generator.integers(0, images, size=(min(step, samples - start), images))
        yield start, np.stack([np.bincount(row, minlength=images) for row in drawn])


def _spread(values: NDArray[np.float64], names: Sequence[str]) -> dict[str, Interval]:
    edges = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return {name: Interval(float(edges[0, i]), float(edges[1, i])) for i, name in enumerate(names)}


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
    ranks, weights = ranks[valid], _never_empty(weights[:, valid])
    total = weights.sum(axis=1)
    measured = np.stack([*(100.0 * (ranks <= cutoff) for cutoff in CUTOFFS), ranks.astype(np.float64)], axis=1)
    means = _weighted_means(measured, weights)
    order = np.argsort(ranks, kind="stable")
    running = np.cumsum(weights[:, order], axis=1)
    half, rounding = total[:, None] / 2, ROUNDING * total[:, None]  # sums of thirds are not exact
    lower = ranks[order][(running >= half - rounding).argmax(axis=1)]
    upper = ranks[order][(running > half + rounding).argmax(axis=1)]
    return np.column_stack((means[:, :3], (lower + upper) / 2, means[:, 3]))


def _weighted_means(values: NDArray[np.float64], weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return the means ``(draws, figures)`` of values ``(queries, figures)``."""
    weights = _never_empty(weights)
    return np.asarray((weights @ values) / weights.sum(axis=1)[:, None], dtype=np.float64)


def _never_empty(weights: NDArray[Any]) -> NDArray[Any]:
    """Return the weights; a draw without any query gets each query once."""
    empty = weights.sum(axis=1) == 0
    return np.where(empty[:, None], 1, weights) if empty.any() else weights

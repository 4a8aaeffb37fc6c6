"""How likely a result is what was asked for, judged against the collection's own scores.

A cosine means little by itself: one model's cosines spread twice as far as another's, one query scores 0.3 on
everything and another on its image alone, and among more items the best is higher by chance. Let

    n       number of items in the collection
    m, s    mean and deviation of the query's scores on a fixed sample of the collection
    μ, σ    mean and deviation of the cosines of the sample's items with each other

The best twentieth of the query's scores, one at least, is held at the value below it, since these may be relevant
themselves, and a burst of like images should not count against each of them. All four begin from :data:`PRIOR`
imagined scores, which decide where a collection is too small to tell. A result with score c has two features, where it
lies among the cosines of the collection and among those of the query,

    k = (c - μ) / σ        z = (c - m) / s

and with x⁺ = ln(1 + exp x), which is x where x is large and stays positive where it is not, its confidence is p with

    p / (1 - p) = exp(a) · k⁺^b · z⁺^d / n^e

The coefficients are in ``confidence.json``, from :func:`vse.index.calibration.fit`: the package has such a file, and
a model's folder may have its own, which ``vse calibrate`` writes. None of b, d and e is negative: for one query the
confidence rises with the score. A filter does not change it. It is the chance that the best result is the one image
that was meant, for a query whose image is in the collection as often as not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from vse.models.coefficients import Coefficients, shipped_coefficients

if TYPE_CHECKING:
    from vse.index.types import Collection, CollectionInfo, Vectors

SAMPLE = 2048
PAIRED = 256
"""So many items of the sample are compared with each other."""
PRIOR = 8
PRIOR_MEAN, PRIOR_DEVIATION = 0.0, 0.12
HELD = 20
"""One in so many of a query's scores is held at the value below."""
STALE = 0.1
"""The sample is redrawn when items that are as many as this part of the collection have come or gone."""
LINEAR_BELOW = -30.0
"""There ln(ln(1 + exp x)) is x in double precision."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Mean and deviation of some cosines."""

    mean: float
    deviation: float

    def position(self, scores: NDArray[Any]) -> Floats:
        """How many deviations above the mean."""
        return (np.asarray(scores, np.float64) - self.mean) / self.deviation


@dataclass(frozen=True)
class Background:
    """``sample (S, D)`` of a collection that has so many ``items`` in this ``generation``."""

    sample: Vectors
    items: int
    generation: int

    @cached_property
    def among_items(self) -> Spread:
        """μ and σ."""
        some = self.sample[:: max(1, -(-len(self.sample) // PAIRED))]
        cosines = (some @ some.T)[np.triu_indices(len(some), 1)]
        return spread_of(cosines.astype(np.float64), len(some) if len(some) > 1 else 0)

    def among(self, items: int) -> Background:
        """The same sample, of so many items."""
        if items == self.items:
            return self
        other = replace(self, items=items)
        vars(other)["among_items"] = self.among_items  # of the sample alone, and slow to find
        return other

    def of_query(self, vector: Vectors) -> Spread:
        """m and s."""
        return spread_of_query(self.sample @ vector)

    def features(self, vector: Vectors, scores: NDArray[Any]) -> Floats:
        """Rows (ln k⁺, ln z⁺, -ln n) of results with these ``scores (r,)`` for the query with this vector."""
        return self.features_among(self.of_query(vector), scores)

    def features_among(self, query: Spread, scores: NDArray[Any]) -> Floats:
        """:meth:`features`, where m and s are known."""
        k, z = self.among_items.position(scores), query.position(scores)
        size = np.full(len(k), -np.log(max(self.items, 1)))
        return np.stack([log_softplus(k), log_softplus(z), size], axis=1)


def confidences(
    background: Background, vector: Vectors, scores: NDArray[Any], coefficients: Coefficients | None = None
) -> Floats:
    """The confidence of results with these ``scores (n,)`` for the query with this vector; None: as shipped."""
    return (coefficients or shipped_coefficients()).probability(background.features(vector, scores))


def spread_of_query(scores: NDArray[Any]) -> Spread:
    """m and s of a query with these scores ``(S,)`` on the sample."""
    held, count = np.asarray(scores, np.float64), len(scores)
    if count > 1:
        last = count - max(1, count // HELD) - 1
        held = np.minimum(held, np.partition(held, last)[last])
    return spread_of(held, count)


def spread_of(cosines: Floats, weight: int) -> Spread:
    """Mean and deviation of cosines that count as much as ``weight`` scores, the imagined ones included."""
    if not weight:
        return Spread(PRIOR_MEAN, PRIOR_DEVIATION)
    mean = (weight * float(cosines.mean()) + PRIOR * PRIOR_MEAN) / (weight + PRIOR)
    variance = (weight * float(cosines.var()) + PRIOR * PRIOR_DEVIATION**2) / (weight + PRIOR)
    return Spread(mean, variance**0.5)


@dataclass(frozen=True)
class _Drawn:
    """A background, and what the collection was when its sample was drawn."""

    background: Background
    when: CollectionInfo

    def serves(self, now: CollectionInfo) -> bool:
        """Whether it is much the same collection."""
        moved = abs(now.changes - self.when.changes)
        return now.generation == self.when.generation and moved <= STALE * self.when.items


_known: WeakKeyDictionary[Collection, _Drawn] = WeakKeyDictionary()


def background_of(collection: Collection) -> Background:
    """The background of a collection as of now; its sample is from memory while few items have come or gone."""
    info = collection.info()
    known = _known.get(collection)
    if known is None or not known.serves(info):
        known = _Drawn(Background(collection.sample(SAMPLE), info.items, info.generation), info)
        _known[collection] = known
    return known.background.among(info.items)


def log_softplus(values: Floats) -> Floats:
    """ln(ln(1 + exp x)), at any x."""
    return np.where(values < LINEAR_BELOW, values, np.log(np.logaddexp(0, np.maximum(values, LINEAR_BELOW))))

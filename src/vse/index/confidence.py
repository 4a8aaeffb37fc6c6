"""How likely a result is what the query meant, judged against the scores within the collection.

A raw cosine means little: its spread differs between models by a factor of two, one query scores 0.3 on everything and
another only on its image, and the maximum over more items is higher by chance. Let

    n       number of items in the collection
    m, s    mean and standard deviation of the query's scores on a fixed sample of the collection
    μ, σ    mean and standard deviation of the cosines between the sample's items

The top twentieth of the query's scores, at least one, is clipped to the value below it: these may be relevant
themselves, and a burst of similar images should not count against each of them. All four statistics start from
:data:`PRIOR` pseudo-scores, which dominate in a collection too small to estimate them. A result with score c has two
features, its position among the cosines of the collection and among those of the query,

    k = (c - μ) / σ        z = (c - m) / s

and with the softplus x⁺ = ln(1 + exp x) its confidence is p with

    p / (1 - p) = exp(a) · k⁺^b · z⁺^d / n^e

The coefficients come from :func:`vse.index.calibration.fit` and are stored in ``confidence.json``: one is bundled with
the package, and ``vse calibrate`` writes one into a model's folder. None of b, d and e is negative: for one query the
confidence rises with the score. Filters do not change it. It is the probability that the top result is the one image
that was meant, for a query whose image is in the collection half of the time.
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
"""Items of the sample that are compared with each other."""
PRIOR = 8
PRIOR_MEAN, PRIOR_DEVIATION = 0.0, 0.12
HELD = 20
"""One in this many of a query's scores is clipped to the value below."""
STALE = 0.1
"""The sample is redrawn once items added and removed exceed this fraction of the collection."""
LINEAR_BELOW = -30.0
"""Below this, ln(ln(1 + exp x)) equals x in double precision."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a set of cosines."""

    mean: float
    deviation: float

    def position(self, scores: NDArray[Any]) -> Floats:
        """Return the z-scores: standard deviations above the mean."""
        return (np.asarray(scores, np.float64) - self.mean) / self.deviation


@dataclass(frozen=True)
class Background:
    """A ``sample (S, D)`` of a collection with ``items`` items in this ``generation``."""

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
        """Return the same sample for another number of items."""
        if items == self.items:
            return self
        other = replace(self, items=items)
        vars(other)["among_items"] = self.among_items  # depends on the sample only, and slow to compute
        return other

    def of_query(self, vector: Vectors) -> Spread:
        """m and s."""
        return spread_of_query(self.sample @ vector)

    def features(self, vector: Vectors, scores: NDArray[Any]) -> Floats:
        """Return the feature rows (ln k⁺, ln z⁺, -ln n) of results with ``scores (r,)`` for the query ``vector``."""
        return self.features_among(self.of_query(vector), scores)

    def features_among(self, query: Spread, scores: NDArray[Any]) -> Floats:
        """Return :meth:`features` for known m and s."""
        k, z = self.among_items.position(scores), query.position(scores)
        size = np.full(len(k), -np.log(max(self.items, 1)))
        return np.stack([log_softplus(k), log_softplus(z), size], axis=1)


def confidences(
    background: Background, vector: Vectors, scores: NDArray[Any], coefficients: Coefficients | None = None
) -> Floats:
    """Return the confidence of each result.

    Args:
        background: The background of the collection.
        vector: Embedding of the query.
        scores: Scores of the results ``(n,)``.
        coefficients: Default: the bundled ones.
    """
    return (coefficients or shipped_coefficients()).probability(background.features(vector, scores))


def spread_of_query(scores: NDArray[Any]) -> Spread:
    """Return m and s of a query with these scores ``(S,)`` on the sample."""
    held, count = np.asarray(scores, np.float64), len(scores)
    if count > 1:
        last = count - max(1, count // HELD) - 1
        held = np.minimum(held, np.partition(held, last)[last])
    return spread_of(held, count)


def spread_of(cosines: Floats, weight: int) -> Spread:
    """Return mean and deviation of cosines that weigh as much as ``weight`` scores, combined with the prior."""
    if not weight:
        return Spread(PRIOR_MEAN, PRIOR_DEVIATION)
    mean = (weight * float(cosines.mean()) + PRIOR * PRIOR_MEAN) / (weight + PRIOR)
    variance = (weight * float(cosines.var()) + PRIOR * PRIOR_DEVIATION**2) / (weight + PRIOR)
    return Spread(mean, variance**0.5)


@dataclass(frozen=True)
class _Drawn:
    """A background, with the collection's info when its sample was drawn."""

    background: Background
    when: CollectionInfo

    def serves(self, now: CollectionInfo) -> bool:
        """Return whether the sample is still fresh enough."""
        moved = abs(now.changes - self.when.changes)
        return now.generation == self.when.generation and moved <= STALE * self.when.items


_known: WeakKeyDictionary[Collection, _Drawn] = WeakKeyDictionary()


def background_of(collection: Collection) -> Background:
    """Return the current background of a collection; its sample is cached until too many items have changed."""
    info = collection.info()
    known = _known.get(collection)
    if known is None or not known.serves(info):
        known = _Drawn(Background(collection.sample(SAMPLE), info.items, info.generation), info)
        _known[collection] = known
    return known.background.among(info.items)


def log_softplus(values: Floats) -> Floats:
    """Return ln(ln(1 + exp x)), stable for any x."""
    return np.where(values < LINEAR_BELOW, values, np.log(np.logaddexp(0, np.maximum(values, LINEAR_BELOW))))

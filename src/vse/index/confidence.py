"""How likely a result is relevant, judged against what the same query scores on the rest of the collection.

A cosine means little by itself: one query scores 0.3 on everything, another on nothing but its picture. For a query
with scores b on a fixed sample of the collection, and n items in all, let

    m, s    mean and deviation of b
    u       the value that a twentieth of b exceeds; beyond it the tail is taken to fall off exponentially with scale β
    M       u + β (ln(n/20) + 0.577…): the mean of the largest of n such values, the best score to expect by chance

β is the censored estimate from the r smallest of the t excesses e_1 ≤ … ≤ e_t over u,
``(Σ_{i≤r} e_i + (t - r) e_r) / r`` with r about 0.9 t: the topmost may be relevant themselves and are known only to lie
above. All estimates begin from :data:`PRIOR` imagined scores of an ordinary query, which decide where a collection is
too small to tell. A result with score c then has two features, how unusual and how much better than chance,

    z = (c - m) / s        τ = (c - M) / β

and its confidence is ``1 / (1 + exp(-(a + b_z z + b_τ τ)))`` with coefficients from ``confidence.json``. For one query
it rises with the score; a filter does not change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.collection import Collection, Vectors
from vse.strict import Strict, parse, read_json

SAMPLE = 2048
TAIL_SHARE = 0.05
CENSORED = 0.1
PRIOR = 8
PRIOR_MEAN, PRIOR_DEVIATION = 0.0, 0.1
NORMAL_TAIL, NORMAL_MEAN_EXCESS = 1.645, 0.418
"""The 95 % point of a standard normal value, and its mean excess there: the tail of scores that are normal."""
GAMMA = 0.5772156649015329
STALE = 0.1
"""The sample is drawn anew when the collection has grown or shrunk by this part."""
RIDGE = 1e-3
STEPS = 50
FEATURES = 2

Floats = NDArray[np.float64]


class Coefficients(Strict):
    """What turns the features into a probability; ``source`` says what they were fitted on."""

    format: Literal[1] = 1
    intercept: float
    deviations: float
    tails: float
    source: str

    def probability(self, features: Floats) -> Floats:
        """Of rows (z, τ) ``(n, 2)``: ``(n,)``, strictly between 0 and 1 as far as floats go."""
        return _logistic(self.intercept + np.asarray(features) @ np.array([self.deviations, self.tails]))


@dataclass(frozen=True)
class Background:
    """``sample (S, D)`` of a collection that had so many ``items`` in this ``generation``."""

    sample: Vectors
    items: int
    generation: int

    def statistics(self, vector: Vectors) -> ScoreStatistics:
        """What a query with this vector scores when nothing is relevant."""
        return score_statistics((self.sample @ vector).astype(np.float64), self.items)


@dataclass(frozen=True)
class ScoreStatistics:
    """m, s, β and M of the module's formulas."""

    mean: float
    deviation: float
    scale: float
    expected_best: float

    def features(self, scores: NDArray[Any]) -> Floats:
        """Rows (z, τ) of scores ``(n,)``."""
        wide = np.asarray(scores, np.float64)
        return np.stack([(wide - self.mean) / self.deviation, (wide - self.expected_best) / self.scale], axis=1)


def confidences(background: Background, vector: Vectors, scores: NDArray[Any]) -> Floats:
    """The confidence of results with these ``scores (n,)`` for the query with this vector."""
    return shipped_coefficients().probability(background.statistics(vector).features(scores))


def score_statistics(scores: Floats, items: int) -> ScoreStatistics:
    """Mean, deviation and tail of a query's ``scores`` on a sample of a collection of ``items``."""
    count = len(scores)
    mean = (float(scores.sum()) + PRIOR * PRIOR_MEAN) / (count + PRIOR)
    squares = float(((scores - scores.mean()) ** 2).sum()) if count else 0.0
    deviation = ((squares + PRIOR * PRIOR_DEVIATION**2) / (count + PRIOR)) ** 0.5
    start, excesses = mean + NORMAL_TAIL * deviation, np.empty(0)
    if count >= PRIOR:
        ordered = np.sort(scores)
        last = count - max(1, round(TAIL_SHARE * count)) - 1  # np.quantile would load numpy.ma, which takes longer
        start, excesses = float(ordered[last]), ordered[last + 1 :] - ordered[last]
    known = len(excesses) - round(CENSORED * len(excesses))
    total = float(excesses[:known].sum()) + (len(excesses) - known) * float(excesses[known - 1]) if known else 0.0
    scale = (total + PRIOR * NORMAL_MEAN_EXCESS * deviation) / (known + PRIOR)
    expected = start + scale * (np.log(max(TAIL_SHARE * items, 1.0)) + GAMMA)
    return ScoreStatistics(mean, deviation, scale, float(expected))


def sample_vectors(collection: Collection, count: int = SAMPLE) -> Vectors:
    """Vectors of at most ``count`` items: those whose ids have the smallest hashes.

    A uniform sample that is the same each time, and changes by few items when few are added or removed.
    """
    kept_hashes = np.empty(0, np.uint64)
    kept: Vectors | None = None
    for ids, vectors in collection.all_vectors():
        hashes = np.concatenate([kept_hashes, _mixed(ids)])
        both = vectors if kept is None else np.concatenate([kept, vectors])
        chosen = np.sort(np.argsort(hashes, kind="stable")[:count])
        kept_hashes, kept = hashes[chosen], both[chosen]
    return np.empty((0, collection.info().dimensions), np.float32) if kept is None else kept


_known: WeakKeyDictionary[Collection, Background] = WeakKeyDictionary()


def background_of(collection: Collection) -> Background:
    """The background of a collection, from memory while it is much the same collection."""
    info = collection.info()
    known = _known.get(collection)
    if known is None or known.generation != info.generation or abs(known.items - info.items) > STALE * known.items:
        known = Background(sample_vectors(collection), info.items, info.generation)
        _known[collection] = known
    return known


@cache
def shipped_coefficients() -> Coefficients:
    """Those that come with the package."""
    path = Path(__file__).with_name("confidence.json")
    return parse(Coefficients, read_json(path), str(path))


def fit(features: NDArray[Any], labels: NDArray[Any], source: str) -> Coefficients:
    """Coefficients of greatest likelihood for results with features (z, τ) ``(n, 2)`` and labels 0 or 1 ``(n,)``.

    A slope that would fall is held at 0, since a higher score must not mean less. A ridge of 1e-3 on the slopes keeps
    them finite where the labels can be separated.
    """
    rows, wanted = np.asarray(features, np.float64), np.asarray(labels, np.float64)
    if rows.shape != (len(wanted), FEATURES) or wanted.ndim != 1 or not np.isfinite(rows).all():
        raise InputError(f"features {rows.shape} and labels {wanted.shape}: expected finite (n, {FEATURES}) and (n,)")
    if not set(np.unique(wanted)) == {0.0, 1.0}:
        raise InputError(f"labels {np.unique(wanted)[:3].tolist()}: expected 0 and 1, and both of them")
    free = [True] * FEATURES
    while True:
        weights = _maximised(rows, wanted, np.array([True, *free]))
        falling = [each for each in range(FEATURES) if weights[1 + each] < 0]
        if not falling:
            return Coefficients(intercept=weights[0], deviations=weights[1], tails=weights[2], source=source)
        free[min(falling, key=lambda each: float(weights[1 + each]))] = False


def _maximised(rows: Floats, labels: Floats, free: NDArray[np.bool_]) -> Floats:
    """Intercept and slopes by Newton's method; those that are not free stay 0. Concave, so halving steps converge."""
    design = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)[:, free]
    ridge = np.where(np.arange(design.shape[1]) > 0, RIDGE, 0.0)

    def loss(point: Floats) -> float:
        margins = design @ point
        return float(np.logaddexp(0, margins).sum() - labels @ margins + (ridge * point**2).sum() / 2)

    weights = np.zeros(design.shape[1])
    for _ in range(STEPS):
        guessed = _logistic(design @ weights)
        gradient = design.T @ (guessed - labels) + ridge * weights
        spread = np.maximum(guessed * (1 - guessed), 1e-12)
        step = np.linalg.lstsq(design.T @ (design * spread[:, None]) + np.diag(ridge), gradient, rcond=None)[0]
        size = 1.0
        while loss(weights - size * step) > loss(weights) and size > 1e-6:
            size /= 2
        weights = weights - size * step
        if float(np.abs(step).max()) < 1e-9:
            break
    found = np.zeros(len(free))
    found[free] = weights
    return found


def _logistic(values: Floats) -> Floats:
    return np.exp(-np.logaddexp(0, -values))  # no overflow on either side


def _mixed(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A fixed scrambling of 64 bits: multiply and shift, twice."""
    bits = ids.astype(np.uint64)
    for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
        bits = bits * np.uint64(factor)  # modulo 2^64
        bits ^= bits >> np.uint64(32)
    return bits

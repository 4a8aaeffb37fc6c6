"""Calibrate confidence for one model, on captioned images that it was not trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import write_json
from vse.errors import InputError
from vse.index.checks import check_vectors
from vse.index.confidence import SAMPLE, Background, Floats, spread_of_query
from vse.index.types import Vectors
from vse.models.coefficients import FILE, Coefficients, logistic, shipped_coefficients
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.evaluation.embeddings import Embeddings
    from vse.index.types import Vectors


REMOVED = 1000
"""Images removed per collection size, one at a time; more change the coefficients little."""
CAPTIONS = 10
"""Captions queried per image, at most."""


@dataclass(frozen=True)
class Answers:
    """The top results of ``r`` queries.

    Attributes:
        features: Features ``(r, 3)`` as defined in :mod:`vse.index.confidence`.
        scores: Cosines ``(r,)``.
        present: Whether the query's image was in the collection ``(r,)``.
        right: Whether the result is the query's image ``(r,)``.
        sizes: Size of the collection before one image was removed ``(r,)``.
    """

    features: Floats
    scores: Floats
    present: NDArray[np.bool_]
    right: NDArray[np.bool_]
    sizes: NDArray[np.int64]

    def of(self, rows: NDArray[Any]) -> Answers:
        """Return a subset, selected by indices or a mask."""
        return Answers(*(getattr(self, field.name)[rows] for field in fields(self)))


def joined(parts: Sequence[Answers]) -> Answers:
    """Concatenate answers, in order."""
    return Answers(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Answers)))


def captions_of(owners: NDArray[np.int64], pictures: int) -> list[NDArray[np.int64]]:
    """Return the caption rows of each image, in order, at most :data:`CAPTIONS` each."""
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(1, pictures))
    return [rows[:CAPTIONS] for rows in np.split(order, starts)]


def ask(
    images: Vectors, texts: Vectors, owners: NDArray[np.int64], size: int, *, seed: int = 0, more: Vectors | None = None
) -> Answers:
    """Query random collections of ``size`` images with captions of their images.

    One image at a time is removed. The captions of that image are queried, and those of the next one, which is present.
    At most :data:`REMOVED` images are removed, over as many disjoint collections as there are images for.

    Args:
        images: Unit embeddings ``(I, D)``.
        texts: Unit embeddings ``(C, D)`` of the captions.
        owners: Row of each caption's image ``(C,)``.
        size: Images per collection, ``more`` included.
        seed: Seed of the random choice.
        more: Distractor embeddings, added to every collection and never queried.

    Returns:
        The top result of each query.
    """
    own = size if more is None else size - len(more)
    captions = captions_of(owners, len(images))
    shuffled = np.random.default_rng([size, seed]).permutation(len(images))
    parts = []
    for number in range(min(len(images) // own, max(1, REMOVED // own))):
        block = shuffled[number * own : (number + 1) * own]
        for place in range(min(own, REMOVED)):
            rest = np.delete(block, place)
            vectors = images[rest] if more is None else np.concatenate([images[rest], more])
            asked = block[[place, (place + 1) % own]]
            rows = [captions[picture] for picture in asked]
            targets = np.repeat(asked, [len(each) for each in rows])
            parts.append(_best(vectors, rest, texts[np.concatenate(rows)], targets, asked[0], size))
    return joined(parts)


def _best(
    vectors: Vectors, pictures: NDArray[np.int64], texts: Vectors, targets: NDArray[np.int64], removed: int, size: int
) -> Answers:
    """Return the top result of each text among ``vectors (n, D)``, the first rows of which are ``pictures``."""
    background = Background(vectors[:SAMPLE], len(vectors), 1)
    scores = vectors @ texts.T
    best = scores.argmax(axis=0)
    top = scores[best, np.arange(len(texts))].astype(np.float64)
    features = [
        background.features_among(spread_of_query(scores[:SAMPLE, each]), top[each : each + 1])[0]
        for each in range(len(texts))
    ]
    names = np.concatenate([pictures, np.full(len(vectors) - len(pictures), -1)])
    return Answers(
        np.array(features).reshape(-1, 3),
        top,
        targets != removed,
        names[best] == targets,
        np.full(len(texts), size),
    )


FEATURES = 3
RIDGE = 1e-3
STEPS = 50


def fit(features: NDArray[Any], labels: NDArray[Any], source: str) -> Coefficients:
    """Fit the coefficients by logistic regression.

    Slopes are kept non-negative: confidence must not fall with the score, nor rise with the number of items.

    Args:
        features: Features ``(r, 3)`` of the results.
        labels: Labels ``(r,)``, 0 or 1.
        source: Describes the data, for the record.

    Raises:
        InputError: Shapes do not match, features are not finite, or one of the labels does not occur.
    """
    rows = np.asarray(features, np.float64)
    if rows.ndim != 2 or rows.shape[1] != FEATURES:
        raise InputError(f"features {rows.shape}: expected (r, {FEATURES})")
    intercept, collection, query, items = map(float, fit_logistic(rows, labels, rising=range(FEATURES)))
    return Coefficients(intercept, collection, query, items, source)


def fit_logistic(features: NDArray[Any], labels: NDArray[Any], *, rising: Iterable[int] = ()) -> Floats:
    """Return the intercept and slopes ``(1 + F,)`` of a logistic regression (maximum likelihood).

    A ridge of 1e-3 on the slopes keeps them finite if the labels are separable.

    Args:
        features: Features ``(r, F)``.
        labels: Labels ``(r,)``, 0 or 1.
        rising: Columns whose slope must not be negative; one that would be is set to 0.

    Raises:
        InputError: Shapes do not match, features are not finite, or one of the labels does not occur.
    """
    rows, wanted = np.asarray(features, np.float64), np.asarray(labels, np.float64)
    if rows.ndim != 2 or len(rows) != len(wanted) or wanted.ndim != 1 or not np.isfinite(rows).all():
        raise InputError(f"features {rows.shape} and labels {wanted.shape}: expected finite (r, F) and (r,)")
    if not set(np.unique(wanted)) == {0.0, 1.0}:
        raise InputError(f"labels {np.unique(wanted)[:3].tolist()}: expected 0 and 1, and both of them")
    free = np.ones(1 + rows.shape[1], bool)
    while True:
        weights = _maximised(rows, wanted, free)
        falling = [each for each in rising if weights[1 + each] < 0]
        if not falling:
            return weights
        free[1 + min(falling, key=lambda each: float(weights[1 + each]))] = False


def _maximised(rows: Floats, labels: Floats, free: NDArray[np.bool_]) -> Floats:
    """Return intercept and slopes by Newton's method with step halving (concave problem); fixed slopes stay 0."""
    design = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)[:, free]
    ridge = np.where(np.arange(design.shape[1]) > 0, RIDGE, 0.0)

    def loss(point: Floats) -> float:
        margins = design @ point
        return float(np.logaddexp(0, margins).sum() - labels @ margins + (ridge * point**2).sum() / 2)

    weights = np.zeros(design.shape[1])
    for _ in range(STEPS):
        guessed = logistic(design @ weights)
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


SIZES = (30, 100, 300, 1000)
FEWEST = 30
"""Minimum number of images and of captions for a meaningful fit, and the smallest size; a few hundred are better."""
BINS = 10


@dataclass(frozen=True)
class CalibrationReport:
    """Coefficients, and their quality on a set of results.

    Attributes:
        found: Recall@1 of captions whose image is present, per collection size.
        error: Expected calibration error.
        shipped_error: Calibration error of the bundled coefficients on the same results.
        area: Area under the ROC curve: the share of (right, wrong) pairs in which the right result is more confident.
    """

    coefficients: Coefficients
    pictures: int
    captions: int
    results: int
    found: dict[int, float]
    error: float
    shipped_error: float
    area: float
    written: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "found": {str(size): share for size, share in self.found.items()},
            "written": None if self.written is None else str(self.written),
        }


def calibrate(
    images: Vectors,
    texts: Vectors,
    owners: NDArray[np.int64],
    *,
    source: str,
    sizes: Sequence[int] = SIZES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> CalibrationReport:
    """Calibrate confidence for the model that produced these embeddings.

    Captions are queried against random collections of the given ``sizes``, as far as the images suffice, once with and
    once without their image.

    Args:
        images: Unit embeddings ``(I, D)``.
        texts: Unit embeddings ``(C, D)`` of the captions.
        owners: Row of each caption's image ``(C,)``.
        source: Describes the data, for the record.
        sizes: Collection sizes to simulate.
        seed: Seed of the random collections.
        progress: Advances once per size.

    Returns:
        The coefficients, and their quality on the results they were fitted to.

    Raises:
        InputError: There are too few images or captions, or no caption finds its image.
    """
    _check(images, texts, owners, sizes)
    chosen = sizes_within(len(images), sizes)
    report = progress or SilentProgress()
    report.start(len(chosen), "asking captions")
    parts = []
    for size in chosen:
        parts.append(ask(images, texts, owners, size, seed=seed))
        report.advance()
    report.finish()
    answers = joined(parts)
    if not answers.right.any():
        raise InputError(
            f"{source}: no caption finds its image, so nothing can be fitted: are they captions of these images?"
        )
    coefficients = fit(answers.features, answers.right, source)
    return judge(coefficients, answers, pictures=len(images), captions=len(texts))


def calibrate_embeddings(found: Embeddings, progress: ProgressReporter | None = None) -> CalibrationReport:
    """Calibrate on the embeddings of a split."""
    return calibrate(found.images, found.texts, found.text_to_image, source=source_of(found), progress=progress)


def source_of(found: Embeddings) -> str:
    """Describe embeddings for the record: the split and the model, but no date."""
    header = found.header
    return f"{header.data} {header.split}, {len(found.images)} images; model {header.fingerprint}"


def judge(coefficients: Coefficients, answers: Answers, *, pictures: int, captions: int) -> CalibrationReport:
    """Evaluate coefficients on answers, which may differ from those they were fitted to."""
    guesses = coefficients.probability(answers.features)
    there = answers.of(answers.present)
    return CalibrationReport(
        coefficients=coefficients,
        pictures=pictures,
        captions=captions,
        results=len(guesses),
        found={int(size): float(there.right[there.sizes == size].mean()) for size in np.unique(there.sizes)},
        error=calibration_error(guesses, answers.right),
        shipped_error=calibration_error(shipped_coefficients().probability(answers.features), answers.right),
        area=area(guesses, answers.right),
    )


def sizes_within(pictures: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes for which ``pictures`` images suffice, ascending, at least two.

    A single size is joined by a third of it: one size does not show how confidence falls with the number of items.
    """
    fitting = sorted({size for size in sizes if size <= pictures})
    return (fitting[0] // 3, *fitting) if len(fitting) == 1 else tuple(fitting)


def write_coefficients(folder: Path, coefficients: Coefficients) -> Path:
    """Write coefficients atomically into the folder of their model, and return the path."""
    write_json(folder / FILE, asdict(coefficients))
    return folder / FILE


def bins(guesses: NDArray[Any], right: NDArray[Any]) -> list[tuple[float, float, int]]:
    """Return (mean confidence, share right, count) of ten equal bins of results, by ascending confidence."""
    parts = np.array_split(np.argsort(guesses, kind="stable"), BINS)
    return [(float(guesses[rows].mean()), float(right[rows].mean()), len(rows)) for rows in parts if len(rows)]


def calibration_error(guesses: NDArray[Any], right: NDArray[Any]) -> float:
    """Return the expected calibration error over :func:`bins`."""
    return sum(count * abs(said - were) for said, were, count in bins(guesses, right)) / len(right)


def area(guesses: NDArray[Any], labels: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve: the share of (right, wrong) pairs ranked correctly, ties counting half."""
    _, inverse, counts = np.unique(guesses, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # ties share their mean rank
    wins = ranks[labels].sum() - labels.sum() * (labels.sum() + 1) / 2
    return float(wins / max(1, int(labels.sum()) * int((~labels).sum())))


def _check(images: Vectors, texts: Vectors, owners: NDArray[np.int64], sizes: Sequence[int]) -> None:
    for name, vectors in (("images", images), ("captions", texts)):
        if len(vectors) < FEWEST:
            raise InputError(f"{len(vectors)} {name}: expected at least {FEWEST} to calibrate, better a few hundred")
        check_vectors(vectors, (len(vectors), images.shape[-1]), name)
    if owners.shape != (len(texts),) or owners.min() < 0 or owners.max() >= len(images):
        raise InputError(f"owners {owners.shape}: expected the row of an image, 0 to {len(images) - 1}, per caption")
    small = [size for size in sizes if size < FEWEST]
    if small or not any(size <= len(images) for size in sizes):
        raise InputError(f"sizes {tuple(sizes)}: expected some from {FEWEST} to {len(images)}, the number of images")

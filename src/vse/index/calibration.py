"""Coefficients of confidence for one model, from images with captions that it has not been trained on."""

from __future__ import annotations

from collections.abc import Sequence
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
"""So many images are removed for each size, one at a time: more images change the coefficients little."""
CAPTIONS = 10
"""So many captions of an image are asked."""


@dataclass(frozen=True)
class Answers:
    """The best results of ``r`` queries.

    ``features (r, 3)`` are those of :mod:`vse.index.confidence`, ``scores (r,)`` the cosines. ``present (r,)`` says
    whether the query's image was in the collection, ``right (r,)`` whether it is this result, ``sizes (r,)`` how
    large the collection was before one image was removed.
    """

    features: Floats
    scores: Floats
    present: NDArray[np.bool_]
    right: NDArray[np.bool_]
    sizes: NDArray[np.int64]

    def of(self, rows: NDArray[Any]) -> Answers:
        """Some of them, by number or by a mask."""
        return Answers(*(getattr(self, field.name)[rows] for field in fields(self)))


def joined(parts: Sequence[Answers]) -> Answers:
    """All of them, in order."""
    return Answers(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Answers)))


def captions_of(owners: NDArray[np.int64], pictures: int) -> list[NDArray[np.int64]]:
    """The rows of each image's captions, in order, :data:`CAPTIONS` at most."""
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(1, pictures))
    return [rows[:CAPTIONS] for rows in np.split(order, starts)]


def ask(
    images: Vectors, texts: Vectors, owners: NDArray[np.int64], size: int, *, seed: int = 0, more: Vectors | None = None
) -> Answers:
    """Captions of random collections of ``size`` images, of which ``more`` are only there to be passed over.

    ``images (I, D)`` and ``texts (C, D)`` are unit vectors, ``owners[c]`` is the row of caption c's image. One
    image at a time is removed; its captions are asked, and those of the next image, which is there. Of the images
    that make whole collections, :data:`REMOVED` at most are removed.
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
    """The best result of each text among ``vectors (n, D)``, of which the first are these images."""
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
    """Coefficients of greatest likelihood for results with ``features (r, 3)`` and labels 0 or 1 ``(r,)``.

    A slope that would be negative is held at 0, since a higher score must not mean less, nor more items more. A ridge
    of 1e-3 on the slopes keeps them finite where the labels can be separated.
    """
    rows, wanted = np.asarray(features, np.float64), np.asarray(labels, np.float64)
    if rows.shape != (len(wanted), FEATURES) or wanted.ndim != 1 or not np.isfinite(rows).all():
        raise InputError(f"features {rows.shape} and labels {wanted.shape}: expected finite (r, {FEATURES}) and (r,)")
    if not set(np.unique(wanted)) == {0.0, 1.0}:
        raise InputError(f"labels {np.unique(wanted)[:3].tolist()}: expected 0 and 1, and both of them")
    free = [True] * FEATURES
    while True:
        weights = _maximised(rows, wanted, np.array([True, *free]))
        falling = [each for each in range(FEATURES) if weights[1 + each] < 0]
        if not falling:
            intercept, collection, query, items = map(float, weights)
            return Coefficients(intercept, collection, query, items, source)
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
"""Images, and captions, with which a fit means anything; a few hundred are better. Also the smallest size."""
BINS = 10


@dataclass(frozen=True)
class CalibrationReport:
    """Coefficients, and what they are worth on the results that they were fitted on.

    ``found`` is, for each size of collections, how often a caption's image is the best result where it is there.
    ``error`` is the calibration error, ``shipped_error`` that of the package's coefficients on the same results.
    ``area`` is the part of pairs of a right and a wrong result in which the right one is surer.
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
    """Coefficients for the model that gave these unit vectors: ``images (I, D)``, and ``texts (C, D)`` of captions.

    ``owners[c]`` is the row of caption c's image. Captions are asked of random collections of those ``sizes`` that I
    images suffice for, once with their image and once without it. ``source`` says what the data are.
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
    """Coefficients from the vectors of a split; their source names the split and the model, and no date."""
    header = found.header
    source = f"{header.data} {header.split}, {len(found.images)} pictures; model {header.fingerprint}"
    return calibrate(found.images, found.texts, found.text_to_image, source=source, progress=progress)


def judge(coefficients: Coefficients, answers: Answers, *, pictures: int, captions: int) -> CalibrationReport:
    """What coefficients are worth on answers, which may be others than they were fitted on."""
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
    """The sizes that so many images suffice for, ascending, two at least.

    A third of a size that is alone joins it: how confidence falls with the number of items cannot be seen at one size.
    """
    fitting = sorted({size for size in sizes if size <= pictures})
    return (fitting[0] // 3, *fitting) if len(fitting) == 1 else tuple(fitting)


def write_coefficients(folder: Path, coefficients: Coefficients) -> Path:
    """Put coefficients into the folder of their model, in one step; where they are now."""
    write_json(folder / FILE, asdict(coefficients))
    return folder / FILE


def bins(guesses: NDArray[Any], right: NDArray[Any]) -> list[tuple[float, float, int]]:
    """Ten parts of equal numbers, from unsure to sure: what was said, how often it was true, how many."""
    parts = np.array_split(np.argsort(guesses, kind="stable"), BINS)
    return [(float(guesses[rows].mean()), float(right[rows].mean()), len(rows)) for rows in parts if len(rows)]


def calibration_error(guesses: NDArray[Any], right: NDArray[Any]) -> float:
    """The mean distance between what is said and how often it is true, over :func:`bins`."""
    return sum(count * abs(said - were) for said, were, count in bins(guesses, right)) / len(right)


def area(guesses: NDArray[Any], labels: NDArray[np.bool_]) -> float:
    """The part of (right, wrong) pairs that are in order; equal guesses count half."""
    _, inverse, counts = np.unique(guesses, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # means over equal guesses
    wins = ranks[labels].sum() - labels.sum() * (labels.sum() + 1) / 2
    return float(wins / max(1, int(labels.sum()) * int((~labels).sum())))


def _check(images: Vectors, texts: Vectors, owners: NDArray[np.int64], sizes: Sequence[int]) -> None:
    for name, vectors in (("pictures", images), ("captions", texts)):
        if len(vectors) < FEWEST:
            raise InputError(
                f"{len(vectors)} {name}: expected {FEWEST} at least, and better some hundreds, to calibrate with"
            )
        check_vectors(vectors, (len(vectors), images.shape[-1]), name)
    if owners.shape != (len(texts),) or owners.min() < 0 or owners.max() >= len(images):
        raise InputError(f"owners {owners.shape}: expected the row of an image, 0 to {len(images) - 1}, per caption")
    small = [size for size in sizes if size < FEWEST]
    if small or not any(size <= len(images) for size in sizes):
        raise InputError(f"sizes {tuple(sizes)}: expected some from {FEWEST} to {len(images)}, the number of images")

"""Crisscrossed Captions (CxC): retrieval within and between images and texts, and agreement with human ratings.

Right pairs of COCO's test split, from ratings of 0 to 5:

- image and text: rated 3.0 or more (SITS), and every caption with its own image;
- image and image: rated 2.5 or more (SIS) in either order; never an image with itself;
- text and text: rated 3.0 or more (STS) in either order, and the captions of one image; never a text with itself.

Queries without a right candidate are left out; a query is not its own candidate.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.evaluation.bootstrap import Interval, Queries, query_intervals
from vse.evaluation.coco.ids import CocoIds, read_plain_or_gzip
from vse.evaluation.metrics import DirectionMetrics
from vse.evaluation.positives import Indices, Positives
from vse.evaluation.ranks import Ties, ranks, ranks_both_ways
from vse.evaluation.scores import DotScores, Scores, checked_vectors
from vse.progress import ProgressReporter

Task = Literal["sts", "sis", "sits"]
TASKS: tuple[Task, ...] = ("sts", "sis", "sits")
COLUMNS: Mapping[Task, tuple[str, str]] = {
    "sts": ("caption1", "caption2"),
    "sis": ("image1", "image2"),
    "sits": ("caption", "image"),
}
RIGHT_TEXT, RIGHT_IMAGE = 3.0, 2.5  # lowest rating of a right pair; pairs of images are rated lower
LOWEST, HIGHEST = 0.0, 5.0
SAMPLES = 1000
CORRELATION = (
    "sampled-bootstrap Spearman correlation x 100: for each of the samples (1000 unless told), half of the rated left "
    "items (rounded down) are drawn without replacement and one rated partner of each is drawn; Spearman's rho, with "
    "average ranks for ties, between the model's scores and agg_score over the drawn pairs (0 where one of them is "
    "constant); mean and standard deviation over the samples"
)
"""What the correlations mean, for the card."""


@dataclass(frozen=True, eq=False)
class RatedPairs:
    """One file of ratings: ``scores[k]`` is the mean human rating of the pair ``left[k]``, ``right[k]``.

    An image is its file name, a caption its sentence id.
    """

    task: Task
    left: tuple[str | int, ...]
    right: tuple[str | int, ...]
    scores: NDArray[np.float64]

    def rows(self, ids: CocoIds) -> tuple[Indices, Indices]:
        """Return the rows of the left and of the right items; an item that ``ids`` does not know is an error."""
        known: dict[Any, int] = {**ids.file_rows, **ids.caption_rows}
        missing = dict.fromkeys(item for item in (*self.left, *self.right) if item not in known)
        if missing:
            raise InputError(
                f"{self.task.upper()} rates {next(iter(missing))!r}, which the ids do not have ({len(missing)} such "
                "items): expected ids of the split that was rated, with all its images and captions"
            )
        left, right = (np.array([known[item] for item in side], dtype=np.int64) for side in (self.left, self.right))
        return left, right


@dataclass(frozen=True, eq=False)
class CxcRatings:
    """The three files: captions with captions, images with images, captions with images."""

    sts: RatedPairs
    sis: RatedPairs
    sits: RatedPairs


@dataclass(frozen=True)
class Correlation:
    """Mean and standard deviation over the bootstrap samples, x 100; see :data:`CORRELATION`."""

    mean: float
    deviation: float
    queries: int
    pairs: int

    def to_json(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)


@dataclass(frozen=True)
class CxcScores:
    """Three score matrices, images and texts in the order of the ids; an ensemble has three ``MeanScores``."""

    image_text: Scores
    image_image: Scores
    text_text: Scores


@dataclass(frozen=True)
class CxcMetrics:
    """Four retrieval tasks and three correlations.

    ``intervals`` has those of each retrieval figure, ``i2t_r1`` to ``i2i_mean_rank``: images resampled with all their
    captions (:mod:`vse.evaluation.bootstrap`).
    """

    i2t: DirectionMetrics
    t2i: DirectionMetrics
    t2t: DirectionMetrics
    i2i: DirectionMetrics
    correlations: Mapping[Task, Correlation] = field(hash=False)
    intervals: Mapping[str, Interval] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """Return everything, and the definition of the correlations."""
        retrieval = {name: getattr(self, name).to_json() for name in ("i2t", "t2i", "t2t", "i2i")}
        correlations = {task: each.to_json() for task, each in self.correlations.items()}
        return {
            **retrieval,
            "intervals": {name: each.to_json() for name, each in self.intervals.items()},
            "correlations": correlations,
            "correlation_definition": CORRELATION,
        }


def read_cxc(folder: str | Path) -> CxcRatings:
    """Read ``sts_test.csv``, ``sis_test.csv`` and ``sits_test.csv``, each also as ``.csv.gz``."""
    return CxcRatings(**{task: _read(Path(folder) / f"{task}_test.csv", task) for task in TASKS})


def image_text_positives(ratings: CxcRatings, ids: CocoIds) -> Positives:
    """Return the right captions of each image; ``.T`` gives the right images of each caption."""
    captions, images = ratings.sits.rows(ids)
    right = ratings.sits.scores >= RIGHT_TEXT
    queries = np.concatenate((images[right], ids.caption_to_image))
    return Positives.from_pairs(queries, np.concatenate((captions[right], np.arange(ids.shape[1]))), ids.shape)


def image_image_positives(ratings: CxcRatings, ids: CocoIds) -> Positives:
    """Return the images that are like each image."""
    left, right = ratings.sis.rows(ids)
    alike = ratings.sis.scores >= RIGHT_IMAGE
    return _symmetric(left[alike], right[alike], ids.shape[0])


def text_text_positives(ratings: CxcRatings, ids: CocoIds) -> Positives:
    """Return the captions that mean the same as each caption."""
    left, right = ratings.sts.rows(ids)
    alike = ratings.sts.scores >= RIGHT_TEXT
    first = np.searchsorted(ids.caption_to_image, np.arange(ids.shape[0] + 1))
    siblings = [np.arange(a, b) for a, b in pairwise(first)]
    left = np.concatenate([left[alike], *(np.repeat(each, len(each)) for each in siblings)])
    right = np.concatenate([right[alike], *(np.tile(each, len(each)) for each in siblings)])
    return _symmetric(left, right, ids.shape[1])


def cxc_metrics(
    images: Any,
    texts: Any,
    ids: CocoIds,
    ratings: CxcRatings,
    *,
    ties: Ties = "pessimistic",
    samples: int = SAMPLES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> CxcMetrics:
    """Retrieval and correlations for ``images (I, D)`` and ``texts (T, D)``, rows as in ``ids``."""
    images, texts = checked_vectors("images", images), checked_vectors("texts", texts)
    scores = CxcScores(DotScores(images, texts), DotScores(images, images), DotScores(texts, texts))
    return cxc_metrics_of_scores(scores, ids, ratings, ties=ties, samples=samples, seed=seed, progress=progress)


def cxc_metrics_of_scores(
    scores: CxcScores,
    ids: CocoIds,
    ratings: CxcRatings,
    *,
    ties: Ties = "pessimistic",
    samples: int = SAMPLES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> CxcMetrics:
    """Return the same for any scores."""
    images, texts = ids.shape
    between, among_images, among_texts = scores.image_text, scores.image_image, scores.text_text
    for part, shape in ((between, (images, texts)), (among_images, (images, images)), (among_texts, (texts, texts))):
        if part.shape != shape:
            raise InputError(f"scores of shape {part.shape}: {images} images and {texts} captions need {shape}")
    rated: dict[Task, tuple[Scores, RatedPairs]] = {
        "sts": (among_texts, ratings.sts),
        "sis": (among_images, ratings.sis),
        "sits": (between.T, ratings.sits),
    }
    correlations: dict[Task, Correlation] = {}
    for task, (matrix, pairs) in rated.items():  # first, since they take seconds and notice missing items
        left, right = pairs.rows(ids)
        model = matrix.exact(left, right)
        key = (seed, TASKS.index(task))
        correlations[task] = sampled_correlation(left, model, pairs.scores, samples=samples, key=key)
    to_text, to_image = ranks_both_ways(between, image_text_positives(ratings, ids), ties=ties, progress=progress)
    texts_alike = ranks(among_texts, text_text_positives(ratings, ids), exclude_self=True, ties=ties, progress=progress)
    images_alike = ranks(
        among_images, image_image_positives(ratings, ids), exclude_self=True, ties=ties, progress=progress
    )
    found = {"i2t": to_text, "t2i": to_image, "t2t": texts_alike, "i2i": images_alike}
    directions = {task: DirectionMetrics.of(each) for task, each in found.items()}
    owners = {"i": np.arange(images), "t": ids.caption_to_image}
    queries = {task: Queries.of_ranks(each, owners[task[0]]) for task, each in found.items()}
    spread = query_intervals(queries, images, samples=samples, seed=seed)
    return CxcMetrics(**directions, correlations=correlations, intervals=spread)


def sampled_correlation(
    queries: Indices,
    model: NDArray[np.float64],
    human: NDArray[np.float64],
    *,
    samples: int = SAMPLES,
    key: tuple[int, ...] = (0,),
) -> Correlation:
    """Return the correlation of :data:`CORRELATION`; ``queries`` are the left items, ``key`` fixes the draws."""
    if samples < 1 or min(key) < 0:
        raise InputError(f"samples {samples} and seed {key[0]}: expected at least one sample and a seed from 0 on")
    order = np.argsort(queries, kind="stable")
    starts, counts = np.unique(queries[order], return_index=True, return_counts=True)[1:]
    half = len(starts) // 2
    if half < 2:
        raise InputError(f"{len(starts)} rated left items: expected at least 4, since a correlation needs two pairs")
    # Only the order of the values counts, and small whole numbers can be ranked by counting.
    ours, theirs = (np.unique(values[order], return_inverse=True)[1] for values in (model, human))
    found = np.empty(samples)
    for sample in range(samples):
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence((*key, sample))))
        drawn = generator.permutation(len(starts))[:half]
        pairs = starts[drawn] + generator.integers(0, counts[drawn])
        found[sample] = spearman(ours[pairs], theirs[pairs])
    return Correlation(100 * float(found.mean()), 100 * float(found.std()), len(starts), len(queries))


def spearman(left: Indices, right: Indices) -> float:
    """Spearman's rho of values given as whole numbers from 0 on; 0 where a side is constant and ranks nothing."""
    left_ranks, right_ranks = _centred_ranks(left), _centred_ranks(right)
    scale = float(np.sqrt((left_ranks @ left_ranks) * (right_ranks @ right_ranks)))
    return float(left_ranks @ right_ranks) / scale if scale > 0 else 0.0


def _centred_ranks(values: Indices) -> NDArray[np.float64]:
    """Ranks minus their mean; equal values share the mean of their ranks."""
    counts = np.bincount(values)
    return (np.cumsum(counts) - counts / 2)[values] - len(values) / 2


def _symmetric(left: Indices, right: Indices, size: int) -> Positives:
    other = left != right
    left, right = left[other], right[other]
    return Positives.from_pairs(np.concatenate((left, right)), np.concatenate((right, left)), (size, size))


def _read(path: Path, task: Task) -> RatedPairs:
    columns = COLUMNS[task]
    reader = csv.reader(io.StringIO(read_plain_or_gzip(path), newline=""))
    header = next(reader, [])
    if tuple(header[:3]) != (*columns, "agg_score"):
        raise InputError(f"{path}: columns {','.join(header)!r}, expected {','.join(columns)},agg_score first")
    try:
        lines = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not CSV ({error}): get the file again") from None
    left, right, scores = [], [], []
    for number, row in lines:
        place = f"{path}:{number}"
        if len(row) != len(header):
            raise InputError(f"{place}: {len(row)} values for {len(header)} columns: repair or get the file again")
        left.append(_item(row[0], columns[0], place))
        right.append(_item(row[1], columns[1], place))
        scores.append(_rating(row[2], place))
    if not scores:
        raise InputError(f"{path}: no rated pair, expected at least one")
    return RatedPairs(task, tuple(left), tuple(right), np.array(scores))


def _item(text: str, column: str, place: str) -> str | int:
    """An image is its file name, a caption the number in ``COCO_val2014:sentid:732091``."""
    is_image = column.startswith("image")
    mark, sentid = text.rpartition(":sentid:")[1:]
    if is_image and text and not mark:
        return text
    if not is_image and mark and sentid.isascii() and sentid.isdigit():
        return int(sentid)
    example = "COCO_val2014_000000205866.jpg" if is_image else "COCO_val2014:sentid:732091"
    raise InputError(f"{place}: {column} is {text!r}, expected an id like {example}")


def _rating(text: str, place: str) -> float:
    try:
        rating = float(text)
    except ValueError:
        rating = float("nan")
    if not LOWEST <= rating <= HIGHEST:
        raise InputError(f"{place}: agg_score is {text!r}, expected a number from {LOWEST:g} to {HIGHEST:g}")
    return rating

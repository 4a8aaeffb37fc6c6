"""ECCV Caption: mAP@R, R-Precision and R@1 where almost all right answers are known.

For a query with R right candidates at the ranks r_1 < … < r_R among all candidates:

    AP@R        = 1/R  sum over j with r_j <= R of  j / r_j
    R-Precision = |{ j : r_j <= R }| / R
    R@1         = 1 if r_1 = 1, else 0

and each figure is the mean over the queries, in percent. A wrong candidate with the score of a right one comes first.
A right candidate outside the gallery counts neither as found nor in R. The release lists two captions that are not
among the split's 25,000; its own evaluation keeps them in R, where no model can find them: 100 is then out of reach,
by 0.01.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.data.files import parse_json
from vse.errors import InputError
from vse.evaluation.bootstrap import SAMPLES, Interval, Queries, query_intervals
from vse.evaluation.coco.ids import CocoIds, read_plain_or_gzip, whole_number
from vse.evaluation.positives import Indices, Positives
from vse.evaluation.ranks import check_positives
from vse.evaluation.scores import DotScores, Scores, checked_vectors
from vse.progress import ProgressReporter, SilentProgress

BLOCK_QUERIES = 256
FIGURES = ("map_at_r", "r_precision", "r1")
ABSENT = 0.01  # share of right candidates that may be unknown to the ids; more of them mean another split
DEFINITION = (
    "mAP@R, R-Precision, R@1 over the queries of ECCV Caption; R is the number of a query's right candidates in the "
    "gallery; a wrong candidate with the score of a right one comes first"
)
"""What the figures mean, for the card."""
Answers = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class EccvPositives:
    """The right sentence ids of each COCO image id, and the right image ids of each sentence id."""

    i2t: Answers
    t2i: Answers


@dataclass(frozen=True)
class EccvDirection:
    """One direction, in percent; ``absent`` right candidates were not in the gallery and are left out."""

    map_at_r: float
    r_precision: float
    r1: float
    queries: int
    absent: int = 0

    @classmethod
    def of(cls, positions: Iterable[Indices], absent: int = 0) -> EccvDirection:
        """Return the metrics of ascending ranks of right candidates; a query without any is left out."""
        figures = query_figures(positions)[0]
        if not len(figures):
            raise InputError("no query has a right candidate: there is nothing to measure")
        map_at_r, r_precision, r1 = map(float, figures.mean(axis=0))
        return cls(map_at_r, r_precision, r1, len(figures), absent)

    def to_json(self) -> dict[str, float]:
        """Return the figures by name."""
        return {
            "map_at_r": self.map_at_r,
            "r_precision": self.r_precision,
            "r1": self.r1,
            "queries": self.queries,
            "absent": self.absent,
        }


@dataclass(frozen=True)
class EccvMetrics:
    """Image to text and text to image.

    ``intervals`` has those of each figure, ``i2t_map_at_r`` to ``t2i_r1``: images resampled with all their captions
    (:mod:`vse.evaluation.bootstrap`).
    """

    i2t: EccvDirection
    t2i: EccvDirection
    intervals: Mapping[str, Interval] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """Return both directions, the intervals and the definition of the figures."""
        return {
            "i2t": self.i2t.to_json(),
            "t2i": self.t2i.to_json(),
            "intervals": {name: each.to_json() for name, each in self.intervals.items()},
            "definition": DEFINITION,
        }


def read_eccv(folder: str | Path) -> EccvPositives:
    """Read ``eccv_image_to_caption.json`` and ``eccv_caption_to_image.json``, ``{"id": [id, …]}``."""
    return EccvPositives(
        *(_read(Path(folder) / f"eccv_{way}.json") for way in ("image_to_caption", "caption_to_image"))
    )


def eccv_metrics(
    images: Any,
    texts: Any,
    ids: CocoIds,
    positives: EccvPositives,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> EccvMetrics:
    """Return the figures of ``images (I, D)`` and ``texts (T, D)``, rows as in ``ids``, by dot products."""
    scores = DotScores(checked_vectors("images", images), checked_vectors("texts", texts))
    return eccv_metrics_of_scores(scores, ids, positives, samples=samples, seed=seed, progress=progress)


def eccv_metrics_of_scores(
    scores: Scores,
    ids: CocoIds,
    positives: EccvPositives,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> EccvMetrics:
    """Return the same for any scores ``(images, texts)``."""
    if scores.shape != ids.shape:
        raise InputError(f"scores of shape {scores.shape}: {ids.shape[0]} images and {ids.shape[1]} captions expected")
    images = np.arange(ids.shape[0])
    i2t, from_images = _direction(scores, positives.i2t, ids.image_rows, ids.caption_rows, images, progress)
    t2i, from_texts = _direction(
        scores.T, positives.t2i, ids.caption_rows, ids.image_rows, ids.caption_to_image, progress
    )
    spread = query_intervals({"i2t": from_images, "t2i": from_texts}, len(images), samples=samples, seed=seed)
    return EccvMetrics(i2t, t2i, spread)


def query_figures(positions: Iterable[Indices]) -> tuple[NDArray[np.float64], Indices]:
    """Return :data:`FIGURES` of each query that has a right candidate, in percent, and which queries these are."""
    found = [(query, _figures(each)) for query, each in enumerate(positions) if len(each)]
    rows = np.array([query for query, _ in found], dtype=np.int64)
    return 100.0 * np.array([figures for _, figures in found]).reshape(-1, len(FIGURES)), rows


def positive_positions(
    scores: Scores, positives: Positives, *, progress: ProgressReporter | None = None
) -> list[Indices]:
    """Return the ranks of all right candidates of each query, ascending and from 1 on.

        rank of the j-th best right candidate p = j + |{ c wrong : s(q, c) >= s(q, p) }|

    Equal to what float64 gives: where a float32 score is too close to that of a right candidate, it is
    computed again. Memory is a block of queries times all candidates.
    """
    check_positives(scores, positives)
    reporter = progress or SilentProgress()
    reporter.start(positives.queries, "ranking all right candidates")
    found: list[Indices] = []
    for start in range(0, positives.queries, BLOCK_QUERIES):
        stop = min(start + BLOCK_QUERIES, positives.queries)
        if positives.starts[start] == positives.starts[stop]:
            found += [np.empty(0, dtype=np.int64)] * (stop - start)
        else:
            block = scores.block(slice(start, stop), slice(0, positives.candidates))  # (queries, candidates)
            found += [_positions(scores, q, block[q - start], positives.of(q)) for q in range(start, stop)]
        reporter.advance(stop - start)
    reporter.finish()
    return found


def _positions(scores: Scores, query: int, row: NDArray[np.float32], right: Indices) -> Indices:
    if not len(right):
        return np.empty(0, dtype=np.int64)
    own = np.sort(scores.exact(np.full(len(right), query), right))
    thresholds = own - scores.resolution  # ascending: what reaches one comes before its right candidate
    values = row.astype(np.float64)
    values[right] = -np.inf
    columns = np.flatnonzero(values >= thresholds[0] - scores.tolerance)  # the others come after all right ones
    values = values[columns]
    above = np.searchsorted(thresholds, values)
    up, down = thresholds[np.minimum(above, len(own) - 1)], thresholds[np.maximum(above - 1, 0)]
    near = np.minimum(np.abs(values - up), np.abs(values - down)) <= scores.tolerance
    values[near] = scores.exact(np.full(np.count_nonzero(near), query), columns[near])
    before = len(values) - np.searchsorted(np.sort(values), thresholds, side="left")
    return (np.arange(1, len(own) + 1) + before[::-1]).astype(np.int64)


def _figures(positions: Indices) -> tuple[float, float, float]:
    """AP@R, R-Precision and R@1 of one query, from 0 to 1."""
    size = len(positions)
    within = positions[positions <= size]
    average = float((np.arange(1, len(within) + 1) / within).sum()) / size
    return average, len(within) / size, float(positions[0] == 1)


def _direction(
    scores: Scores,
    answers: Answers,
    query_rows: Mapping[int, int],
    candidate_rows: Mapping[int, int],
    owners: Indices,
    progress: ProgressReporter | None,
) -> tuple[EccvDirection, Queries]:
    """Return the figures, and what a bootstrap over images needs; ``owners`` is the image of each query row."""
    unknown = [query for query in answers if query not in query_rows]
    if unknown:
        raise InputError(
            f"ECCV Caption asks for id {unknown[0]}, which the ids do not have ({len(unknown)} such queries): "
            "expected the ids of COCO's whole test split"
        )
    lists = [[candidate_rows[item] for item in found if item in candidate_rows] for found in answers.values()]
    total = sum(map(len, answers.values()))
    absent = total - sum(map(len, lists))
    if absent > ABSENT * total:
        first = next(item for found in answers.values() for item in found if item not in candidate_rows)
        raise InputError(
            f"{absent} of {total} right candidates of ECCV Caption are not in the ids, first id {first}: "
            "expected the ids of COCO's whole test split"
        )
    queries = np.array([query_rows[query] for query in answers], dtype=np.int64)
    chosen = scores.select(queries, np.arange(scores.shape[1]))
    positions = positive_positions(chosen, Positives.from_lists(lists, scores.shape[1]), progress=progress)
    figures, measured = query_figures(positions)
    return EccvDirection.of(positions, absent), Queries.of_means(figures, FIGURES, owners[queries[measured]])


def _read(path: Path) -> Answers:
    content = parse_json(read_plain_or_gzip(path), str(path))
    if not isinstance(content, dict) or not content:
        raise InputError(f'{path}: expected an object {{"id": [id, ...]}} that is not empty')
    answers: dict[int, tuple[int, ...]] = {}
    for key, values in content.items():
        if not isinstance(values, list) or not values:
            raise InputError(f"{path}: {key!r} has {values!r}, expected a list of ids that is not empty")
        numbers = (whole_number(value, f"{path}: an id of {key!r}") for value in values)
        answers[whole_number(key, f"{path}: a key")] = tuple(dict.fromkeys(numbers))
    return answers

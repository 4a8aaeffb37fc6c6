"""From vectors to a result with its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse._version import __version__
from vse.errors import InputError
from vse.evaluation.bootstrap import (
    LEVEL,
    SAMPLES,
    Difference,
    FoldRanks,
    Interval,
    differences,
    intervals,
    resample,
)
from vse.evaluation.embeddings import Embeddings
from vse.evaluation.metrics import DirectionMetrics, RetrievalMetrics, mean_metrics
from vse.evaluation.positives import text_positives
from vse.evaluation.protocols import Protocol, remarks
from vse.evaluation.ranks import NO_POSITIVE, Ties, ranks_both_ways
from vse.evaluation.scores import DotScores, MeanScores, Scores
from vse.progress import ProgressReporter

RECALL = "any-hit: a query is found at K if at least one of its right candidates is among the first K"
TIE_RULES = {
    "pessimistic": "a wrong candidate with the same score as the best right one comes before it",
    "optimistic": "a wrong candidate with the same score as the best right one comes after it",
}
DTYPE = "float32 blocks; every candidate within rounding distance of a threshold scored again in float64"


@dataclass(frozen=True, eq=False)
class Result:
    """One row of a table: figures of a model or an ensemble under one protocol, with everything that they mean."""

    name: str
    protocol: Protocol
    metrics: RetrievalMetrics
    intervals: dict[str, Interval]
    card: dict[str, Any]
    draws: NDArray[np.float64]

    def to_json(self) -> dict[str, Any]:
        """Figures, intervals and card."""
        return {
            "name": self.name,
            "protocol": self.protocol.name,
            "metrics": self.metrics.to_json(),
            "intervals": {name: interval.to_json() for name, interval in self.intervals.items()},
            "card": self.card,
        }


def evaluate(
    members: Sequence[Embeddings],
    protocol: Protocol,
    *,
    name: str | None = None,
    ties: Ties = "pessimistic",
    samples: int = SAMPLES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> Result:
    """The figures of one model, or of several as an ensemble (the mean of their scores), under ``protocol``."""
    first = agreeing(members)
    scores: Scores = MeanScores([DotScores(each.images, each.texts) for each in members])
    if len(members) == 1:
        scores = DotScores(first.images, first.texts)
    galleries = protocol.galleries(len(first.images))
    folds = [_fold(scores, first.text_to_image, gallery, ties, progress) for gallery in galleries]
    metrics = mean_metrics(
        [RetrievalMetrics(DirectionMetrics.of(f.images), DirectionMetrics.of(f.texts)) for f in folds]
    )
    draws = resample(folds, samples=samples, seed=seed)
    label = name or " + ".join(each.header.model for each in members)
    return Result(
        label, protocol, metrics, intervals(draws), _card(members, protocol, folds, ties, samples, seed), draws
    )


def compare(first: Result, second: Result) -> dict[str, Difference]:
    """``first`` minus ``second`` with paired intervals; they must be results on the same test."""
    for key in ("split_hash", "images", "texts", "protocol", "ties", "bootstrap"):
        if first.card[key] != second.card[key]:
            raise InputError(
                f"results of different tests cannot be compared: {key} {first.card[key]} and {second.card[key]}"
            )
    return differences(first.metrics, second.metrics, first.draws, second.draws)


def _fold(
    scores: Scores, owners: NDArray[np.int64], gallery: NDArray[np.int64], ties: Ties, progress: ProgressReporter | None
) -> FoldRanks:
    place = np.full(scores.shape[0], -1, dtype=np.int64)
    place[gallery] = np.arange(len(gallery))
    texts = np.flatnonzero(place[owners] >= 0)
    local = place[owners[texts]]
    whole = len(gallery) == scores.shape[0] and len(texts) == scores.shape[1]
    part = scores if whole else scores.select(gallery, texts)
    rows, columns = ranks_both_ways(part, text_positives(local, len(gallery)).T, ties=ties, progress=progress)
    return FoldRanks(rows, columns, local)


def agreeing(members: Sequence[Embeddings]) -> Embeddings:
    """The first of some members, if all were given the same test."""
    if not members:
        raise InputError("nothing to evaluate: give at least one model")
    first = members[0]
    for other in members[1:]:
        if other.header.split_hash != first.header.split_hash or not np.array_equal(
            other.text_to_image, first.text_to_image
        ):
            tests = (f"{each.header.data} {each.header.split}" for each in (first, other))
            raise InputError(
                f"{first.header.model} and {other.header.model} were not given the same test: "
                f"{' and '.join(tests)} differ in captions"
            )
    return first


def _card(
    members: Sequence[Embeddings], protocol: Protocol, folds: Sequence[FoldRanks], ties: Ties, samples: int, seed: int
) -> dict[str, Any]:
    first = members[0]
    per_image = np.bincount(first.text_to_image, minlength=len(first.images))
    return {
        "protocol": protocol.name,
        "protocol_summary": protocol.summary,
        "data": first.header.data,
        "split": first.header.split,
        "split_hash": first.header.split_hash,
        "images": len(first.images),
        "texts": len(first.texts),
        "captions_per_image": {
            "min": int(per_image.min()),
            "mean": float(per_image.mean()),
            "max": int(per_image.max()),
        },
        "remarks": remarks(protocol, first.header.data, first.header.split),
        "queries": {
            "i2t": sum(int((fold.images != NO_POSITIVE).sum()) for fold in folds),
            "t2i": sum(int((fold.texts != NO_POSITIVE).sum()) for fold in folds),
        },
        "folds": len(folds),
        "gallery_images": [len(fold.images) for fold in folds],
        "gallery_texts": [len(fold.texts) for fold in folds],
        "ties": ties,
        "tie_rule": TIE_RULES[ties],
        "recall": RECALL,
        "dtype": DTYPE,
        "models": [
            {"name": each.header.model, "fingerprint": each.header.fingerprint, **each.header.traits}
            for each in members
        ],
        "ensemble": len(members) > 1,
        "bootstrap": {
            "level": LEVEL,
            "samples": samples,
            "seed": seed,
            "unit": "images with all their captions, drawn with replacement; gallery fixed",
        },
        "vse_version": __version__,
    }

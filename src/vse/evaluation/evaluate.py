"""From the scores of a model, or of an ensemble, to a result with intervals and the card that says what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse._version import __version__
from vse.data.dataset import ItemKind
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
from vse.evaluation.metrics import RetrievalMetrics, mean_metrics
from vse.evaluation.protocols import Protocol, remarks
from vse.evaluation.ranks import NO_POSITIVE, Ties
from vse.evaluation.retrieval_test import RetrievalTest, ScoredModel, mean_scores
from vse.progress import ProgressReporter

RECALL = "any-hit: a query is found at K if at least one of its right candidates is among the first K"
TIE_RULES = {
    "pessimistic": "a wrong candidate with the same score as the best right one comes before it",
    "optimistic": "a wrong candidate with the same score as the best right one comes after it",
}
DTYPE = "float32 blocks; every candidate within rounding distance of a threshold scored again in float64"
CAPTION_UNIT = "images with all their captions, drawn with replacement; gallery fixed"
DISTINCT_UNIT = "{items}, drawn with replacement; a sentence counts as often as its {items} on average; gallery fixed"
COMPARED = ("split_hash", "images", "videos", "texts", "sentences", "protocol", "ties", "bootstrap")
"""Fields of two cards that must be equal for a comparison, where they have them."""


@dataclass(frozen=True, eq=False)
class Result:
    """One row of a table: the figures of a model or an ensemble under one protocol, and what they mean.

    ``metrics.i2t`` is item to text and ``metrics.t2i`` text to item, also where the items are videos; JSON names the
    directions after the items.
    """

    name: str
    kind: ItemKind
    protocol: Protocol
    metrics: RetrievalMetrics
    card: dict[str, Any]
    intervals: dict[str, Interval] = field(default_factory=dict)
    draws: NDArray[np.float64] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return figures, intervals and card."""
        spread = {directed(self.kind, name): interval.to_json() for name, interval in self.intervals.items()}
        return {
            "name": self.name,
            "protocol": self.protocol.name,
            "metrics": {directed(self.kind, name): value for name, value in self.metrics.to_json().items()},
            **({"intervals": spread} if spread else {}),
            "card": self.card,
        }


def directed(kind: ItemKind, name: str) -> str:
    """Return the name of a figure for a kind of items.

    >>> from vse.data.dataset import VIDEOS
    >>> directed(VIDEOS, "i2t_r1")
    'v2t_r1'
    """
    letter = kind.noun[0]
    return name.replace("i2t", f"{letter}2t").replace("t2i", f"t2{letter}")


def evaluate(
    members: Sequence[ScoredModel],
    protocol: Protocol,
    *,
    name: str | None = None,
    ties: Ties = "pessimistic",
    samples: int | None = SAMPLES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> Result:
    """Measure one model, or several as an ensemble (the mean of their scores).

    Args:
        members: the scores of each model on the same test.
        protocol: how the test is cut into galleries.
        name: of the result; the names of the members if None.
        ties: the tie rule.
        samples: draws for intervals; None computes none.
        seed: of the draws.
        progress: shows the work.

    Raises:
        InputError: no members, members of different tests, or a protocol for another number of items.
    """
    scores = mean_scores(members)
    test = members[0].test
    galleries = protocol.galleries(test.items)
    folds = [test.rank(scores, gallery, ties=ties, progress=progress) for gallery in galleries]
    metrics = mean_metrics([fold.metrics for fold in folds])
    draws = None if samples is None else resample(folds, samples=samples, seed=seed)
    card = _card(test, protocol, folds, ties) | {
        "models": [member.card() for member in members],
        "ensemble": len(members) > 1,
        "vse_version": __version__,
    }
    if draws is not None:
        unit = DISTINCT_UNIT.format(items=test.kind.plural) if test.kind.shared_captions else CAPTION_UNIT
        card["bootstrap"] = {"level": LEVEL, "samples": samples, "seed": seed, "unit": unit}
    return Result(
        name=name or " + ".join(member.name for member in members),
        kind=test.kind,
        protocol=protocol,
        metrics=metrics,
        card=card,
        intervals={} if draws is None else intervals(draws),
        draws=draws,
    )


def compare(first: Result, second: Result) -> dict[str, Difference]:
    """Return ``first`` minus ``second`` with paired intervals.

    Raises:
        InputError: they are results on different tests, or one has no draws.
    """
    for key in COMPARED:
        ours, theirs = first.card.get(key), second.card.get(key)
        if ours != theirs:
            raise InputError(f"results of different tests cannot be compared: {key} {ours} and {theirs}")
    if first.draws is None or second.draws is None:
        raise InputError("results without draws cannot be compared: evaluate them with samples")
    return differences(first.metrics, second.metrics, first.draws, second.draws)


def _card(test: RetrievalTest, protocol: Protocol, folds: Sequence[FoldRanks], ties: Ties) -> dict[str, Any]:
    queries = {
        "i2t": sum(int((fold.images != NO_POSITIVE).sum()) for fold in folds),
        "t2i": sum(int((fold.texts != NO_POSITIVE).sum()) for fold in folds),
    }
    noted = [*test.about["remarks"], *remarks(protocol, test.about["data"], test.about["split"])]
    card = {
        **test.about,
        "protocol": protocol.name,
        "remarks": noted,
        "queries": {directed(test.kind, name): count for name, count in queries.items()},
        "ties": ties,
        "tie_rule": TIE_RULES[ties],
        "recall": RECALL,
    }
    if not test.kind.shared_captions:
        card |= {
            "protocol_summary": protocol.summary,
            "folds": len(folds),
            "gallery_images": [len(fold.images) for fold in folds],
            "gallery_texts": [len(fold.texts) for fold in folds],
            "dtype": DTYPE,
        }
    return card

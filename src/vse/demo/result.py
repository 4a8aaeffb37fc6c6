"""What the demonstration shows at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, ClassVar

from vse.evaluation.metrics import RetrievalMetrics

if TYPE_CHECKING:
    from vse.models.curves import PoolingCurve

FEW_RANKS = 0.5  # of the weight on three ranks: then the curve says "the extremes"
COLUMNS = (("r1", "R@1"), ("r5", "R@5"), ("r10", "R@10"))


@dataclass(frozen=True)
class MethodResult:
    """One method, trained once for each seed, on the held-out gallery."""

    label: str
    seeds: tuple[int, ...]
    metrics: tuple[RetrievalMetrics, ...]

    def mean(self, direction: str, figure: str) -> float:
        """The mean over seeds of ``i2t`` or ``t2i``, ``r1`` to ``r10``."""
        return mean(getattr(getattr(each, direction), figure) for each in self.metrics)

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "mean": {way: {key: self.mean(way, key) for key, _ in COLUMNS} for way in ("i2t", "t2i")},
            "seeds": {seed: each.to_json() for seed, each in zip(self.seeds, self.metrics, strict=True)},
        }


@dataclass(frozen=True)
class DemoResult:
    """Both methods, the curves of the second, and what is left behind."""

    question: ClassVar[str] = "two red circles above a blue square"
    """One that the collection can be asked."""
    methods: tuple[MethodResult, ...]
    curves: Sequence[PoolingCurve]
    gallery: tuple[int, int]
    training: int
    seconds: float
    model: Path
    picture: Path
    training_picture: Path
    collection: Path

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 1),
            "training_scenes": self.training,
            "gallery": {"scenes": self.gallery[0], "captions": self.gallery[1]},
            "methods": {method.label: method.to_json() for method in self.methods},
            "curves": [curve.to_json() for curve in self.curves],
            "model": str(self.model),
            "picture": str(self.picture),
            "training_picture": str(self.training_picture),
            "collection": str(self.collection),
        }

    def explanation(self) -> list[str]:
        """The learned curves in words, from their numbers."""
        lines = []
        for tower, what, elements in (("image", "picture", "cells"), ("text", "caption", "words")):
            found = [curve for curve in self.curves if curve.tower == tower and curve.coefficients]
            if not found:
                continue
            curve = max(found, key=lambda each: each.size or 0) if tower == "image" else found[len(found) // 2]
            weights = curve.coefficients or ()
            nearest = curve.nearest
            end = "largest" if sum(weights[:3]) >= sum(weights[-3:]) else "smallest"
            lines.append(
                f"The {what} curve: of {curve.size} {elements}, sorted in every dimension, the three {end} values have "
                f"{100 * _most_of_three(weights):.0f} % of the weight ({nearest.label if nearest else ''}); average "
                f"pooling gives them {300 / (curve.size or 1):.0f} %."
            )
        image = [curve for curve in self.curves if curve.tower == "image" and curve.coefficients]
        few = max((_most_of_three(curve.coefficients or ()) for curve in image), default=0.0)
        if few > FEW_RANKS:
            lines.append(
                "A shape fills a few cells and a word names it once, so what matters is the most extreme cell or word "
                "of a dimension; an average over the background drowns it. Nobody told the model; it learned this."
            )
        return lines


def _most_of_three(weights: Sequence[float]) -> float:
    """The weight of the three ranks at either end; which end is a matter of the features' sign."""
    return max(sum(weights[:3]), sum(weights[-3:]))

"""Result of the demo: figures of both methods, and an explanation of the learned curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from vse.evaluation.metrics import RetrievalMetrics

if TYPE_CHECKING:
    from vse.demo.photos import PhotosResult
    from vse.models.curves import PoolingCurve

FEW_RANKS = 0.5  # share of the weight on three ranks above which a curve selects extremes
COLUMNS = (("r1", "R@1"), ("r5", "R@5"), ("r10", "R@10"))


@dataclass(frozen=True)
class MethodResult:
    """Figures of one method on the test scenes, for each seed."""

    label: str
    seeds: tuple[int, ...]
    metrics: tuple[RetrievalMetrics, ...]

    def mean(self, direction: str, figure: str) -> float:
        """Return the mean over seeds of a recall (``r1`` to ``r10``) in a direction (``i2t`` or ``t2i``)."""
        return mean(getattr(getattr(each, direction), figure) for each in self.metrics)

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "mean": {way: {key: self.mean(way, key) for key, _ in COLUMNS} for way in ("i2t", "t2i")},
            "seeds": {seed: each.to_json() for seed, each in zip(self.seeds, self.metrics, strict=True)},
        }


@dataclass(frozen=True)
class DemoResult:
    """Both methods, the pooling curves of VSE∞, and the paths of everything that was written."""

    methods: tuple[MethodResult, ...]
    curves: Sequence[PoolingCurve]
    gallery: tuple[int, int]
    training: int
    seconds: float
    model: Path
    curves_plot: Path
    training_plot: Path
    scenes: Path
    photos: PhotosResult | None = None

    @property
    def collection(self) -> Path:
        """The collection to show: the photographs, or the scenes where there are none."""
        return self.scenes if self.photos is None else self.photos.collection

    @property
    def query(self) -> str:
        """An example query for the collection."""
        return "two red circles above a blue square" if self.photos is None else self.photos.query

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 1),
            "training_scenes": self.training,
            "gallery": {"scenes": self.gallery[0], "captions": self.gallery[1]},
            "methods": {method.label: method.to_json() for method in self.methods},
            "curves": [curve.to_json() for curve in self.curves],
            "model": str(self.model),
            "picture": str(self.curves_plot),
            "training_picture": str(self.training_plot),
            "collection": str(self.collection),
            "scenes": str(self.scenes),
        }

    def explanation(self) -> list[str]:
        """Return the learned curves in words."""
        lines = []
        for tower, what, elements in (("image", "image", "cells"), ("text", "caption", "words")):
            found = [curve for curve in self.curves if curve.tower == tower and curve.coefficients]
            if not found:
                continue
            curve = max(found, key=lambda each: each.size or 0) if tower == "image" else found[len(found) // 2]
            weights = curve.coefficients or ()
            nearest = curve.nearest.label if curve.nearest else ""
            end = "largest" if sum(weights[:3]) >= sum(weights[-3:]) else "smallest"
            lines.append(
                f"The {what} curve: of {curve.size} {elements}, sorted in every dimension, the three {end} values have "
                f"{100 * _weight_of_extremes(weights):.0f} % of the weight ({nearest}); "
                f"average pooling gives them {300 / (curve.size or 1):.0f} %."
            )
        image = [curve for curve in self.curves if curve.tower == "image" and curve.coefficients]
        few = max((_weight_of_extremes(curve.coefficients or ()) for curve in image), default=0.0)
        if few > FEW_RANKS:
            lines.append(
                "A shape fills a few cells and is named by one word, so the most extreme cell or word of a dimension "
                "matters; an average over the background hides it. The model learned this from the data."
            )
        return lines


def _weight_of_extremes(weights: Sequence[float]) -> float:
    """The weight of the three ranks at the heavier end; the sign of the features decides which end that is."""
    return max(sum(weights[:3]), sum(weights[-3:]))

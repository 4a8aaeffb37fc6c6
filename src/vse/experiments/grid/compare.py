"""Rows of a grid against each other: means over seeds, and differences with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.evaluation.bootstrap import FIGURES, LEVEL, Interval
from vse.experiments.grid.measure import MeasuredSeed
from vse.experiments.grid.plan import Claim, Variant

RSUM = FIGURES.index("rsum")
RISE = 1.0
"""Of rsum on dev from the last but one fifth of the epochs to the last: more than this, and a run is not at its end."""

Verdict = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True, eq=False)
class Row:
    """A variant with all its seeds."""

    variant: Variant
    seeds: tuple[MeasuredSeed, ...]
    rising: tuple[bool, ...]

    @property
    def figures(self) -> NDArray[np.float64]:
        """``(seeds, figures)`` on the test split."""
        measured = [each.metrics.figures() for each in self.seeds]
        return np.array([[figures[name] for name in FIGURES] for figures in measured])

    @property
    def mean(self) -> dict[str, float]:
        """Over the seeds."""
        return dict(zip(FIGURES, self.figures.mean(axis=0).tolist(), strict=True))

    @property
    def deviation(self) -> dict[str, float] | None:
        """Between the seeds (the sample standard deviation); None for one seed."""
        if len(self.seeds) < 2:
            return None
        return dict(zip(FIGURES, self.figures.std(axis=0, ddof=1).tolist(), strict=True))

    @property
    def finished(self) -> bool:
        """Whether dev had stopped rising in every run."""
        return not any(self.rising)


@dataclass(frozen=True)
class Contrast:
    """The rsum of one row minus that of another, seed by seed on the same test items."""

    claim: Claim
    value: float
    interval: Interval
    by_seed: tuple[float, ...]

    @property
    def verdict(self) -> Verdict:
        """Decided when the interval leaves zero out."""
        if self.interval.low > 0:
            return "holds"
        return "does not hold" if self.interval.high < 0 else "undecided"

    def to_json(self) -> dict[str, Any]:
        return {
            "claim": self.claim.text,
            "difference": self.value,
            "interval": self.interval.to_json(),
            "by_seed": list(self.by_seed),
            "verdict": self.verdict,
        }


def still_rising(dev: Sequence[float]) -> bool:
    """Whether the rsum of epochs was on its way up at the end: the last fifth against the fifth before it."""
    part = max(1, len(dev) // 5)
    if len(dev) < 2 * part:
        return True
    return float(np.mean(dev[-part:]) - np.mean(dev[-2 * part : -part])) > RISE


def contrast(claim: Claim, better: Row, worse: Row) -> Contrast:
    """The difference of the means over seeds; its interval is over draws of test items and, of several, of seeds.

    Seeds are drawn in pairs: seed n of one row goes with seed n of the other. With one seed only the test items are
    drawn, and the interval says nothing about another training.
    """
    if [each.trained.seed for each in better.seeds] != [each.trained.seed for each in worse.seeds]:
        raise InputError(f"{claim.text}: the two have other seeds, and are compared seed by seed")
    by_seed = better.figures[:, RSUM] - worse.figures[:, RSUM]
    drawn = np.stack([a.draws[:, RSUM] - b.draws[:, RSUM] for a, b in zip(better.seeds, worse.seeds, strict=True)])
    seeds, samples = drawn.shape
    generator = np.random.Generator(np.random.Philox(key=np.array([0, seeds], dtype=np.uint64)))
    chosen = generator.integers(0, seeds, size=(seeds, samples))
    values = np.take_along_axis(drawn, chosen, axis=0).mean(axis=0)  # (samples,)
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Contrast(claim, float(by_seed.mean()), Interval(low, high), tuple(by_seed.tolist()))

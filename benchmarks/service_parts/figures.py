"""Medians and quartiles, as all parts report them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np


class Spread(TypedDict):
    """The median of many values, with the quartiles."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    low, median, high = (float(each) for each in np.percentile(values, [25, 50, 75]))
    return Spread(median=median, low=low, high=high)


def milliseconds(found: Spread) -> str:
    return f"{1e3 * found['median']:.2f} ms"


def with_range(found: Spread, scale: float = 1.0, digits: int = 2) -> str:
    """Return ``median (low–high)``."""
    median, low, high = (f"{scale * found[name]:.{digits}f}" for name in ("median", "low", "high"))
    return f"{median} ({low}–{high})"


def counted(errors: Mapping[str, int]) -> str:
    """Return ``3 × 503, 1 × TimeoutError``; empty without errors."""
    return ", ".join(f"{count} × {status}" for status, count in errors.items())

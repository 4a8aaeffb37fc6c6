"""The weight that a pooling gives to each rank, the simple pooling it resembles most, and their file. No torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from vse._util.atomic import write_json
from vse.errors import InputError, unknown_choice

Tower = Literal["image", "text"]
Simple = Literal["avg", "max", "linear", "k-max"]

CARD_FILE = "README.md"
CURVES_FILE = "pooling_curves.json"
FIGURE_FILE = "pooling.png"
FORMAT = 1
TIE = 1e-6  # coefficients are float32: smaller differences in similarity are noise
BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-~=+*#"


@dataclass(frozen=True)
class Likeness:
    """The simple pooling nearest to a curve, with its similarity in 0..1; ``k`` is set for ``k-max`` only."""

    name: Simple
    likeness: float
    k: int | None = None

    @property
    def label(self) -> str:
        """A label such as ``0.93 max-like`` or ``0.88 k-max(5)-like``."""
        return f"{self.likeness:.2f} {self.name}{'' if self.k is None else f'({self.k})'}-like"


def nearest_named(coefficients: Sequence[float] | np.ndarray) -> Likeness:
    """Return which of avg, max, linear decay and k-max (k from 2 to N-1) is nearest to a curve.

    ``likeness = 1 - 1/2 sum_k |theta_k - theta'_k|``: one minus the total variation distance, 1 for equal curves and 0
    for curves that share no rank. The curve is first divided by ``sum |theta|``, which changes nothing for weights that
    add up to one and keeps curves with negative weights (FSPool) in 0..1. Ties go to the simplest, in the order above,
    then to the smaller k.

    Args:
        coefficients: The curve ``(N,)``.

    Raises:
        InputError: If the curve is empty, not finite or all zero.
    """
    curve = np.asarray(coefficients, dtype=np.float64)
    if curve.ndim != 1 or not curve.size:
        raise InputError(f"a pooling curve has shape (N,) with N from 1 up, got {curve.shape}")
    with np.errstate(over="ignore"):  # the sum is looked at
        total = float(np.abs(curve).sum())
    if not math.isfinite(total) or total == 0:
        raise InputError(f"a pooling curve needs finite weights that are not all zero, their sum is {total}")
    curve = curve / total
    found = [(name, k, _likeness(curve, reference)) for name, k, reference in _simple_poolings(curve.size)]
    best = max(likeness for _, _, likeness in found)
    name, k, likeness = next(entry for entry in found if entry[2] >= best - TIE)
    return Likeness(name, likeness, k)


def _likeness(curve: np.ndarray, reference: np.ndarray) -> float:
    return min(1.0, max(0.0, 1 - 0.5 * float(np.abs(curve - reference).sum())))


def _simple_poolings(size: int) -> Iterator[tuple[Simple, int | None, np.ndarray]]:
    """Yield name, k and coefficients ``(size,)``, the simplest first; lazily, since a grid may have thousands of k."""
    rank = np.arange(1, size + 1)
    yield "avg", None, np.full(size, 1 / size)
    yield "max", None, (rank == 1).astype(np.float64)
    if size > 1:  # a set of one is its own average
        yield "linear", None, (size - rank) / (size * (size - 1) / 2)
    for k in range(2, size):
        yield "k-max", k, (rank <= k) / k


@dataclass(frozen=True)
class PoolingCurve:
    """The weights that a tower's pooling gives to the sorted values of a set, largest value first.

    Attributes:
        tower: ``"image"`` or ``"text"``.
        pooling: Name of the pooling.
        size: Size of the set; None for a pooling that does not weight ranks.
        coefficients: The weights; empty for a pooling that does not weight ranks.
        per_dimension: Whether each dimension has its own curve; ``coefficients`` is then their mean.
        note: Why there is no curve.
        exponent: The p of a generalized mean.
    """

    tower: Tower
    pooling: str
    size: int | None = None
    coefficients: tuple[float, ...] = ()
    per_dimension: bool = False
    note: str | None = None
    exponent: float | None = None

    @cached_property
    def nearest(self) -> Likeness | None:
        """The simple pooling that this curve resembles; None without a curve."""
        return nearest_named(self.coefficients) if self.coefficients else None

    def sparkline(self, width: int = 24, bars: str = BARS) -> str:
        """Return the curve in at most ``width`` characters, on a scale that includes zero."""
        if not self.coefficients:
            return ""
        parts = np.array_split(np.asarray(self.coefficients), min(width, len(self.coefficients)))
        heights = np.array([part.mean() for part in parts])
        low, high = min(0.0, float(heights.min())), max(0.0, float(heights.max()))
        steps = np.rint((heights - low) / ((high - low) or 1.0) * (len(bars) - 1)).astype(int)
        return "".join(bars[step] for step in steps)

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary for ``json.dumps``."""
        near = self.nearest
        described = near and {"name": near.name, "k": near.k, "likeness": near.likeness, "label": near.label}
        return {
            "tower": self.tower,
            "pooling": self.pooling,
            "size": self.size,
            "coefficients": list(self.coefficients),
            "per_dimension": self.per_dimension,
            "nearest": described,
            "note": self.note,
            "exponent": self.exponent,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PoolingCurve:
        """Return the curve of :meth:`to_json`; ``nearest`` is recomputed."""
        if not isinstance(value, Mapping):
            raise InputError(f"a pooling curve is a JSON object, got {type(value).__name__}")
        tower: Any = value.get("tower")
        pooling, size, weights = value.get("pooling"), value.get("size"), value.get("coefficients", [])
        note, exponent = value.get("note"), value.get("exponent")
        if tower not in get_args(Tower):
            raise InputError(unknown_choice("tower of a pooling curve", tower, get_args(Tower)))
        if not isinstance(pooling, str) or not isinstance(note, str | None):
            raise InputError(f"pooling and note of a pooling curve are texts, got {pooling!r} and {note!r}")
        if not isinstance(weights, list) or not all(map(_is_number, weights)):
            raise InputError(f"the coefficients of the {tower} pooling curve must be a list of finite numbers")
        if (len(weights) or None) != size:
            raise InputError(f"a pooling curve of size {size!r} with {len(weights)} coefficients; they must agree")
        if exponent is not None and not _is_number(exponent):
            raise InputError(f"the exponent of a pooling must be a finite number, got {exponent!r}")
        coefficients = tuple(map(float, weights))
        per_dimension = value.get("per_dimension") is True
        curve = cls(
            tower=tower,
            pooling=pooling,
            size=len(weights) or None,
            coefficients=coefficients,
            per_dimension=per_dimension,
            note=note,
            exponent=exponent,
        )
        _ = curve.nearest  # fail here on invalid weights, not on display
        return curve


def write_curves(path: Path, curves: Sequence[PoolingCurve]) -> None:
    """Write the curves to :data:`CURVES_FILE`, which is read without torch."""
    write_json(path, {"format": FORMAT, "curves": [curve.to_json() for curve in curves]})


def read_curves(path: Path) -> tuple[PoolingCurve, ...]:
    """Read the curves that :func:`write_curves` wrote; raise :class:`InputError` if they are invalid."""
    from vse._util.strict import read_json

    content = read_json(path)
    if content.get("format") != FORMAT or not isinstance(content.get("curves"), list):
        raise InputError(f"{path}: not pooling curves of format {FORMAT}; save the model again to write them")
    try:
        return tuple(map(PoolingCurve.from_json, content["curves"]))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _is_number(value: Any) -> bool:
    # JSON knows integers of any length: comparing them is safe, converting them is not.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max

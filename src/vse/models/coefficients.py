"""The coefficients of confidence: a file that ships with the package, or with a model.

:mod:`vse.index.confidence` has the formula, ``vse calibrate`` fits them to a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse._util.schema import parse_plain, read_json
from vse.errors import InputError
from vse.models.sources import named_place

FILE = "confidence.json"
"""Its name, in a model's folder and beside this module."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficients:
    """a, b, d and e of the formula; ``source`` says what they were fitted on."""

    intercept: float
    collection: float
    query: float
    items: float
    source: str
    format: Literal[1] = 1

    def probability(self, features: NDArray[Any]) -> Floats:
        """Of rows (ln k⁺, ln z⁺, -ln n) ``(r, 3)``: ``(r,)``, strictly between 0 and 1 as far as floats go."""
        slopes = np.array([self.collection, self.query, self.items])
        return logistic(self.intercept + np.asarray(features, np.float64) @ slopes)


@cache
def shipped_coefficients() -> Coefficients:
    """Those that come with the package."""
    return read_coefficients(Path(__file__).with_name(FILE))


def coefficients_of(folder: str | Path) -> Coefficients:
    """Those of a model in a folder or of the package, if it has any, else those that suit most models.

    What is no local folder, such as the name of a model on the hub, has none.
    """
    return own_coefficients(folder) or shipped_coefficients()


def own_coefficients(folder: str | Path) -> Coefficients | None:
    """Those of a model in a folder or of the package, None if it has none."""
    path = Path(named_place(folder)).expanduser() / FILE
    return read_coefficients(path) if path.exists() else None


def read_coefficients(path: Path) -> Coefficients:
    """Coefficients from a file that ``vse calibrate`` or ``benchmarks/confidence.py`` wrote."""
    try:
        found = parse_plain(Coefficients, read_json(path), str(path))
    except InputError as error:
        raise InputError(f"{error}; 'vse calibrate' writes it anew") from None
    for name in ("collection", "query", "items"):
        if getattr(found, name) < 0:  # results would be surer the lower their score
            raise InputError(f"{path}: {name!r} is {getattr(found, name)}: expected 0 or more; 'vse calibrate' fits it")
    return found


def logistic(values: Floats) -> Floats:
    """1 / (1 + exp(-x)), without overflow on either side."""
    return np.exp(-np.logaddexp(0, -values))

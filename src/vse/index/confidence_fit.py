"""Coefficients for :mod:`vse.index.confidence`, from results of which it is known whether they were right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.coefficients import Coefficients, logistic
from vse.errors import InputError
from vse.index.confidence import Floats

FEATURES = 3
RIDGE = 1e-3
STEPS = 50


def fit(features: NDArray[Any], labels: NDArray[Any], source: str) -> Coefficients:
    """Coefficients of greatest likelihood for results with ``features (r, 3)`` and labels 0 or 1 ``(r,)``.

    A slope that would be negative is held at 0, since a higher score must not mean less, nor more items more. A ridge
    of 1e-3 on the slopes keeps them finite where the labels can be separated.
    """
    rows, wanted = np.asarray(features, np.float64), np.asarray(labels, np.float64)
    if rows.shape != (len(wanted), FEATURES) or wanted.ndim != 1 or not np.isfinite(rows).all():
        raise InputError(f"features {rows.shape} and labels {wanted.shape}: expected finite (r, {FEATURES}) and (r,)")
    if not set(np.unique(wanted)) == {0.0, 1.0}:
        raise InputError(f"labels {np.unique(wanted)[:3].tolist()}: expected 0 and 1, and both of them")
    free = [True] * FEATURES
    while True:
        weights = _maximised(rows, wanted, np.array([True, *free]))
        falling = [each for each in range(FEATURES) if weights[1 + each] < 0]
        if not falling:
            intercept, collection, query, items = map(float, weights)
            return Coefficients(intercept, collection, query, items, source)
        free[min(falling, key=lambda each: float(weights[1 + each]))] = False


def _maximised(rows: Floats, labels: Floats, free: NDArray[np.bool_]) -> Floats:
    """Intercept and slopes by Newton's method; those that are not free stay 0. Concave, so halving steps converge."""
    design = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)[:, free]
    ridge = np.where(np.arange(design.shape[1]) > 0, RIDGE, 0.0)

    def loss(point: Floats) -> float:
        margins = design @ point
        return float(np.logaddexp(0, margins).sum() - labels @ margins + (ridge * point**2).sum() / 2)

    weights = np.zeros(design.shape[1])
    for _ in range(STEPS):
        guessed = logistic(design @ weights)
        gradient = design.T @ (guessed - labels) + ridge * weights
        spread = np.maximum(guessed * (1 - guessed), 1e-12)
        step = np.linalg.lstsq(design.T @ (design * spread[:, None]) + np.diag(ridge), gradient, rcond=None)[0]
        size = 1.0
        while loss(weights - size * step) > loss(weights) and size > 1e-6:
            size /= 2
        weights = weights - size * step
        if float(np.abs(step).max()) < 1e-9:
            break
    found = np.zeros(len(free))
    found[free] = weights
    return found

"""The task of the synthetic experiment: train a GPO on the results of a fixed pooling, without its coefficients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from vse.pooling import GPO, RankPooling, create_pooling

SIZE_RANGES: dict[str, range] = {"seen": range(20, 101), "smaller": range(10, 20), "larger": range(101, 121)}
LARGEST = 120

PATTERNS: dict[str, tuple[str, dict[str, Any]]] = {
    "A": ("avg", {}),
    "M-1": ("max", {}),
    "M-10": ("k-max", {"k": 10}),
    "T-50%": ("top-percent", {"percent": 50}),
    "L": ("linear", {}),
}
DESIGNS: dict[str, dict[str, Any]] = {
    "Index + Interp.": {"decoder": "interpolation"},
    "Cos/Sin + MLP": {"decoder": "mlp"},
    "Index + BiGRU": {"position": "index", "max_size": LARGEST},
    "Cos/Sin + BiGRU": {},
}
MAIN_DESIGN = "Cos/Sin + BiGRU"
CURVE_SIZES = (15, 36, 100)


@dataclass(frozen=True)
class Profile:
    """How a GPO is trained; the same for every design and pattern."""

    steps: int = 3000
    sets: int = 16
    width: int = 64
    learning_rate: float = 0.01
    warm_up: int = 100
    clip: float = 1.0


QUICK = Profile(steps=150, sets=8, width=16)


@dataclass(frozen=True)
class Outcome:
    """One trained GPO: its errors by size range, and its coefficients at :data:`CURVE_SIZES`."""

    errors: dict[str, float]
    curves: dict[str, list[float]]
    loss: float
    seconds: float


def coefficient_error(pool: RankPooling, true: RankPooling, sizes: range) -> float:
    """Return the root mean square error of the coefficients of each size, averaged over ``sizes``."""
    errors = [
        (pool.coefficients(size).double() - true.coefficients(size).double()).square().mean().sqrt() for size in sizes
    ]
    return float(sum(errors)) / len(errors)


def imitate(
    pool: GPO, true: RankPooling, seed: int, profile: Profile, *, after_step: Callable[[], None] | None = None
) -> float:
    """Train ``pool`` to give the pooled vectors of ``true``, and return the last loss.

    Every step draws ``profile.sets`` sets of standard normal features, their sizes spread evenly over the seen ones,
    and takes an Adam step on the squared difference of the two pooled vectors; the learning rate warms up linearly and
    falls to zero along a cosine. The data depend on ``seed`` alone.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(pool.parameters(), lr=profile.learning_rate)
    seen = SIZE_RANGES["seen"]
    loss = torch.zeros(())
    for step in range(profile.steps):
        rate = min(1.0, (step + 1) / profile.warm_up) * 0.5 * (1 + math.cos(math.pi * step / profile.steps))
        for group in optimizer.param_groups:
            group["lr"] = profile.learning_rate * rate
        place = (torch.arange(profile.sets) + torch.rand(profile.sets, generator=generator)) / profile.sets
        lengths = (seen.start + place * len(seen)).long().clamp(max=seen.stop - 1)
        features = torch.randn(profile.sets, seen.stop - 1, profile.width, generator=generator)
        loss = (pool(features, lengths=lengths) - true(features, lengths=lengths)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(pool.parameters(), profile.clip)
        optimizer.step()
        if after_step is not None:
            after_step()
    return loss.item()


def train(design: str, pattern: str, seed: int, profile: Profile) -> Outcome:
    """Train one GPO of ``design`` on ``pattern`` and measure it; all randomness comes from ``seed``."""
    started = time.perf_counter()
    torch.manual_seed(seed)
    pool = GPO(**DESIGNS[design])
    name, options = PATTERNS[pattern]
    true = cast(RankPooling, create_pooling(name, **options))
    loss = imitate(pool, true, seed, profile)
    return Outcome(
        errors={name: coefficient_error(pool, true, sizes) for name, sizes in SIZE_RANGES.items()},
        curves={str(size): [round(float(c), 6) for c in pool.coefficients(size)] for size in CURVE_SIZES},
        loss=loss,
        seconds=time.perf_counter() - started,
    )

"""The paper's synthetic experiment (appendix, tab:design): can a GPO learn a pooling from its results?

Random feature sets are pooled by a fixed pooling; a GPO is trained to give the same pooled vectors, on sets of 20 to
100 elements, without seeing coefficients. Afterwards its coefficients are compared with the true ones, on sizes seen in
training and on smaller and larger ones.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vse.errors import InputError, require

for _module in ("torch", "matplotlib"):  # checked now, not after minutes of training
    require(_module, extra="train", purpose="vse experiment synthetic")

from vse._util.processes import run_jobs  # noqa: E402
from vse.experiments.synthetic_report import SyntheticResult  # noqa: E402
from vse.experiments.synthetic_task import (  # noqa: E402
    DESIGNS,
    MAIN_DESIGN,
    PATTERNS,
    QUICK,
    Outcome,
    Profile,
    train,
)
from vse.progress import ProgressReporter  # noqa: E402

MAIN_SEEDS = (0, 1, 2, 3, 4)
OTHER_SEEDS = (0, 1)


def run(
    *,
    quick: bool,
    out: Path,
    seeds: tuple[int, ...] | None,
    jobs: int | None,
    report: ProgressReporter,
) -> SyntheticResult:
    """Train every design on every pattern with its seeds; runs in ``out`` are reused."""
    if seeds is not None and not seeds:
        raise InputError("seeds is empty; give at least one")
    profile = QUICK if quick else Profile()
    plan = [
        {"design": design, "pattern": pattern, "seed": seed}
        for design in DESIGNS
        for pattern in PATTERNS
        for seed in seeds_of(design, quick=quick, seeds=seeds)
    ]
    started = time.perf_counter()
    outcomes = run_jobs(
        _train_task, plan, asdict(profile), out / "runs", workers=jobs, report=report, begin=_use_one_thread
    )
    grouped: dict[tuple[str, str], list[Outcome]] = {}
    for task, values in zip(plan, outcomes, strict=True):
        grouped.setdefault((str(task["design"]), str(task["pattern"])), []).append(Outcome(**values))
    result = SyntheticResult(
        profile=profile,
        quick=quick,
        seeds={design: list(seeds_of(design, quick=quick, seeds=seeds)) for design in DESIGNS},
        outcomes=grouped,
        seconds=time.perf_counter() - started,
        folder=out,
    )
    result.save()
    return result


def seeds_of(design: str, *, quick: bool, seeds: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the seeds a design is trained with: five for the paper's own, two for the others, one when quick."""
    if seeds is not None:
        return seeds
    if quick:
        return MAIN_SEEDS[:1]
    return MAIN_SEEDS if design == MAIN_DESIGN else OTHER_SEEDS


def _train_task(task: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    return asdict(train(task["design"], task["pattern"], task["seed"], Profile(**profile)))


def _use_one_thread() -> None:
    """Limit torch to one thread: the processes already use all cores."""
    import torch

    torch.set_num_threads(1)

"""The paper's Figure 3: the time of a text query, VSE against a cross-encoder (V+L BERT), over the number of images.

Both have encoded the images: VSE as 1024-d embeddings in a collection, the cross-encoder as 36 region features of
2048. VSE encodes the sentence once and compares it with every embedding, by :func:`vse.index.search_encoded`: from the
sentence to the best 10 with paths and confidences. The cross-encoder runs a BERT over sentence and regions for every
candidate. Both compute in float32 on the CPU. The cross-encoder is measured up to 1,000 candidates; beyond, its times
are extrapolated by a straight line and marked as such.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import cycle, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vse._util.processes import job_name, run_jobs
from vse._version import __version__
from vse.encoders.third_party import import_transformers
from vse.errors import InputError, require
from vse.experiments.speed_contestants import (
    CrossContestant,
    Gallery,
    VSEContestant,
    build_cross,
    build_vse_bert,
    build_vse_bigru,
)
from vse.experiments.speed_profile import CONTESTANTS, QUICK, SENTENCES, Contestant, Outcome, Profile, measured_sizes
from vse.experiments.speed_report import SpeedResult
from vse.index.store.approximate import library
from vse.progress import ProgressReporter, SilentProgress

WARM_UP = 3


class Measurements:
    """The contestants of one seed, built when first needed. Sizes must be ascending."""

    def __init__(self, profile: Profile, seed: int) -> None:
        self.profile, self.seed = profile, seed

    def measure(self, contestant: Contestant, candidates: int) -> Outcome:
        """Measure repeated queries, each with another sentence."""
        if contestant == "cross-encoder":
            return self._cross(candidates)
        return self._vse(self.bert if contestant == "vse-bert" else self.bigru, candidates)

    @cached_property
    def gallery(self) -> Gallery:
        return Gallery(self.profile.dimensions, self.seed)

    @cached_property
    def bert(self) -> VSEContestant:
        return VSEContestant(build_vse_bert(self.profile, self.seed), self.gallery, self.profile.results)

    @cached_property
    def bigru(self) -> VSEContestant:
        return VSEContestant(build_vse_bigru(self.profile, self.seed), self.gallery, self.profile.results)

    @cached_property
    def cross(self) -> CrossContestant:
        return build_cross(self.profile, self.seed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "gallery" in self.__dict__:  # only if it was built
            self.gallery.close()

    def _vse(self, contestant: VSEContestant, candidates: int) -> Outcome:
        contestant.prepare(candidates)
        for sentence in SENTENCES[:WARM_UP]:
            contestant.answer(sentence)
        asked = islice(cycle(SENTENCES), self.profile.repetitions)
        return Outcome([taken(contestant.answer, sentence) for sentence in asked])

    def _cross(self, candidates: int) -> Outcome:
        contestant = self.cross  # warm already, since its batch size was chosen
        contestant.prepare(candidates)
        repetitions = dict(self.profile.cross_repetitions)[candidates]
        seconds = [taken(contestant.answer, sentence) for sentence in islice(cycle(SENTENCES), repetitions)]
        return Outcome(seconds, contestant.batch_size)


def taken(function: Callable[[str], Any], sentence: str) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    function(sentence)
    return time.perf_counter() - started


for _module in ("torch", "matplotlib"):  # checked now, not after minutes of measuring
    require(_module, extra="train", purpose="vse experiment speed")


import_transformers("vse experiment speed")


Step = tuple[Contestant, int]
"""The contestant, and the number of candidates."""


def run(
    *,
    quick: bool,
    out: Path,
    seeds: tuple[int, ...] | None,
    jobs: int | None,
    report: ProgressReporter,
) -> SpeedResult:
    """Run all measurements for each seed; those in ``out`` from the same machine are reused."""
    if seeds is not None and not seeds:
        raise InputError("seeds is empty; give at least one")
    if jobs is not None and jobs != 1:
        raise InputError(f"jobs {jobs}: expected 1, since parallel measurements slow each other down: leave out --jobs")
    chosen = seeds or (0,)
    profile = QUICK if quick else Profile()
    machine = describe_machine()
    settings = {**asdict(profile), "machine": machine}
    plan = plan_of(profile)
    outcomes: dict[Step, list[Outcome]] = {step: [] for step in plan}
    report.start(len(plan) * len(chosen), "measuring")
    for seed in chosen:
        with Measurements(profile, seed) as measurements:
            for step, outcome in zip(plan, _measured(measurements, plan, settings, out / "runs", report), strict=True):
                outcomes[step].append(outcome)
    report.finish()
    result = SpeedResult(profile, quick, chosen, machine, outcomes, out)
    result.save()
    return result


def plan_of(profile: Profile) -> list[Step]:
    """Return the measurements by ascending size, since the collection grows."""
    return [(name, size) for size in profile.sizes for name in CONTESTANTS if size in measured_sizes(name, profile)]


def describe_machine() -> dict[str, Any]:
    """Return what times depend on apart from the load; measurements of another machine are not reused."""
    import torch
    import transformers

    return {
        "processor": processor_name(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "faiss": str(library().__version__),
        "vse": __version__,
    }


def processor_name(facts: Path = Path("/proc/cpuinfo")) -> str:
    """Return the model of the processor, or its architecture if the system does not name it."""
    try:
        lines = facts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, names), platform.machine())


def _measured(
    measurements: Measurements,
    plan: Sequence[Step],
    settings: Mapping[str, Any],
    folder: Path,
    report: ProgressReporter,
) -> list[Outcome]:
    """Return the outcomes of a plan; those in ``folder`` are reused."""

    def measure(task: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
        outcome = measurements.measure(task["contestant"], task["candidates"])
        report.advance(
            1, description=f"{measurements.profile.labels[task['contestant']]} · {task['candidates']:,} candidates"
        )
        return asdict(outcome)

    tasks = [{"contestant": name, "candidates": size, "seed": measurements.seed} for name, size in plan]
    before = sum((folder / f"{job_name(task, settings)}.json").exists() for task in tasks)
    if before:
        report.note(f"{before} of {len(plan)} measurements with seed {measurements.seed} were made before, in {folder}")
        report.advance(before)
    # One after the other in this process. What run_jobs reports is training.
    found = run_jobs(measure, tasks, settings, folder, workers=1, report=SilentProgress())
    return [Outcome(**values) for values in found]

"""Run several independent trainings at once, each in a separate process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vse._util.processes import run_in_pool, spawn
from vse.progress import ProgressReporter, SilentProgress
from vse.training.recipe import Recipe
from vse.training.result import TrainingResult

GRACE = 30.0
"""Seconds in which a run whose parent is gone may write its checkpoint."""
PARTS = 100
"""Steps of the common progress bar that each run counts for, however many steps it has."""
Message = tuple[str, int, str]
_messages: Any = None  # in a worker: the queue to its parent


@dataclass(frozen=True)
class Run:
    """A recipe, the folder it is trained into, and its name."""

    recipe: Recipe
    folder: Path
    name: str


def train_several(
    runs: Sequence[Run], *, jobs: int | None = None, progress: ProgressReporter | None = None
) -> list[TrainingResult]:
    """Train every run, ``jobs`` at a time with an equal share of the cores.

    Small networks leave most of a second core idle: two runs with one thread each take less time than one after the
    other with two. With one job, runs are trained in this process. Finished runs are read; interrupted runs resume.

    Args:
        runs: what to train.
        jobs: the number of processes; None uses all cores.
        progress: shows one bar for all runs.

    Returns:
        The results in the order of ``runs``.
    """
    report = progress or SilentProgress()
    cores = os.cpu_count() or 1
    workers = max(1, min(jobs or cores, len(runs)))
    threads = max(1, cores // workers)
    if workers == 1:
        return _train_in_this_process(runs, threads, report)
    messages = spawn.Queue()
    listener = threading.Thread(target=_listen, args=(messages, report), daemon=True)
    report.start(len(runs) * PARTS, "training")
    listener.start()
    results: dict[int, TrainingResult] = {}
    try:
        run_in_pool(
            _train_in_worker,
            [(run, threads) for run in runs],
            workers=workers,
            on_result=results.__setitem__,
            begin=_begin,
            begin_arguments=(messages, threads),
            grace=GRACE,
        )
    finally:
        messages.put(None)  # after everything that the workers sent, since they have ended
        listener.join()
    report.finish()
    return [results[index] for index in range(len(runs))]


def _train_in_this_process(runs: Sequence[Run], threads: int, report: ProgressReporter) -> list[TrainingResult]:
    """Train one run after the other; the number of threads is restored afterwards."""
    import torch

    before = torch.get_num_threads()
    report.start(len(runs) * PARTS, "training")
    try:
        return [_train(run, threads, partial(_show, report)) for run in runs]
    finally:
        torch.set_num_threads(before)
        report.finish()


class _RunReporter:
    """Report the progress of one run as its share of the common bar."""

    def __init__(self, name: str, send: Callable[[Message], None]) -> None:
        self._name, self._send = name, send
        self._total, self._done, self._sent = 1, 0, 0

    def start(self, total: int, description: str) -> None:
        self._total = max(1, total)

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        self._done += steps
        parts = self._done * PARTS // self._total
        if parts > self._sent:
            self._send(("advance", parts - self._sent, f"{self._name} · {description or ''}"))
            self._sent = parts

    def note(self, message: str) -> None:
        self._send(("note", 0, f"{self._name}: {message}"))

    def finish(self) -> None:
        if self._sent < PARTS:
            self._send(("advance", PARTS - self._sent, self._name))
            self._sent = PARTS


def _begin(messages: Any, threads: int) -> None:
    global _messages
    _messages = messages
    import torch

    torch.set_num_threads(threads)


def _train_in_worker(run: Run, threads: int) -> TrainingResult:
    return _train(run, threads, _messages.put)


def _train(run: Run, threads: int, send: Callable[[Message], None]) -> TrainingResult:
    from vse.training.train import train

    recipe = run.recipe.model_copy(update={"run": run.recipe.run.model_copy(update={"threads": threads})})
    reporter = _RunReporter(run.name, send)
    result = train(recipe, run.folder, name=run.name, progress=reporter)
    reporter.finish()
    return result


def _listen(messages: Any, report: ProgressReporter) -> None:
    while (message := messages.get()) is not None:
        _show(report, message)


def _show(report: ProgressReporter, message: Message) -> None:
    kind, steps, text = message
    if kind == "advance":
        report.advance(steps, text)
    else:
        report.note(text)

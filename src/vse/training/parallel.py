"""Several independent runs at once, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vse._util.processes import end_with_parent, is_orphan
from vse.progress import ProgressReporter, SilentProgress
from vse.training.recipe import Recipe
from vse.training.result import TrainingResult

_messages: Any = None  # in a worker: where it reports to
GRACE = 30.0
"""Seconds in which a run that is given up may write its checkpoint."""


@dataclass(frozen=True)
class Run:
    """A recipe, the folder it is trained into, and what it is called."""

    recipe: Recipe
    folder: Path
    name: str


def train_several(
    runs: Sequence[Run], *, jobs: int | None = None, progress: ProgressReporter | None = None
) -> list[TrainingResult]:
    """Train every run, ``jobs`` at a time with an equal share of the cores; the results in the order given.

    Small networks leave most of a second core idle: two runs with one thread each take less time than one after the
    other with two. One at a time they are trained in this process. Runs that are finished are read; those that were
    interrupted go on.
    """
    report = progress or SilentProgress()
    cores = os.cpu_count() or 1
    workers = max(1, min(jobs or cores, len(runs)))
    threads = max(1, cores // workers)
    if workers == 1:
        return _one_by_one(runs, threads, report)
    context = multiprocessing.get_context("spawn")  # a forked child would inherit the locks of torch's threads
    messages = context.Queue()
    listener = threading.Thread(target=_listen, args=(messages, report), daemon=True)
    report.start(len(runs) * PARTS, "training")
    listener.start()
    results: dict[int, TrainingResult] = {}
    try:
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(messages, threads)) as pool:
            waiting = {pool.submit(_train_in_worker, run, threads): index for index, run in enumerate(runs)}
            try:
                for future in as_completed(waiting):
                    results[waiting[future]] = future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        messages.put(None)  # behind everything that the workers had to say, for they have ended
        listener.join()
    report.finish()
    return [results[index] for index in range(len(runs))]


PARTS = 100
"""A run counts for this many steps of the common bar, however many it has."""


def _one_by_one(runs: Sequence[Run], threads: int, report: ProgressReporter) -> list[TrainingResult]:
    """In this process, whose number of threads is left as it was."""
    import torch

    before = torch.get_num_threads()
    report.start(len(runs) * PARTS, "training")
    try:
        return [_train(run, threads, partial(_tell, report)) for run in runs]
    finally:
        torch.set_num_threads(before)
        report.finish()


Message = tuple[str, int, str]


class _Messenger:
    """The reporter of one run: sends its share of the common bar to whoever shows that."""

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
    end_with_parent(GRACE)  # a run that is given up writes a checkpoint


def _train_in_worker(run: Run, threads: int) -> TrainingResult:
    try:
        return _train(run, threads, _messages.put)
    except BaseException:
        if is_orphan():
            os._exit(1)  # the pool would wait for another task for ever
        raise


def _train(run: Run, threads: int, send: Callable[[Message], None]) -> TrainingResult:
    from vse.training.train import train

    recipe = run.recipe.model_copy(update={"run": run.recipe.run.model_copy(update={"threads": threads})})
    messenger = _Messenger(run.name, send)
    result = train(recipe, run.folder, name=run.name, progress=messenger)
    messenger.finish()
    return result


def _listen(messages: Any, report: ProgressReporter) -> None:
    while (message := messages.get()) is not None:
        _tell(report, message)


def _tell(report: ProgressReporter, message: Message) -> None:
    kind, steps, text = message
    if kind == "advance":
        report.advance(steps, text)
    else:
        report.note(text)

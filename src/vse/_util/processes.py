"""Worker processes: a pool whose workers never outlive their parent, and jobs that resume after an interruption."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

from vse._util.atomic import write_json
from vse._version import __version__
from vse.errors import VSEError
from vse.progress import ProgressReporter

Result = TypeVar("Result")
Task = Mapping[str, Any]
Job = Callable[[Task, Mapping[str, Any]], dict[str, Any]]
Begin = Callable[..., None]

spawn = multiprocessing.get_context("spawn")
"""Workers are spawned: a forked child would inherit the locks of torch's threads."""


def run_in_pool(
    function: Callable[..., Result],
    calls: Sequence[tuple[Any, ...]],
    *,
    workers: int,
    on_result: Callable[[int, Result], None],
    begin: Begin | None = None,
    begin_arguments: tuple[Any, ...] = (),
    grace: float = 0.0,
) -> None:
    """Call ``function(*arguments)`` for each entry of ``calls`` in worker processes.

    The first error cancels calls that have not started, and is raised.

    Args:
        function: Must be importable, since workers are spawned.
        calls: Arguments of each call.
        workers: Number of processes.
        on_result: Called in this process with the index and the result of each call, in order of completion.
        begin: Called once in each worker with ``begin_arguments``.
        begin_arguments: Arguments of ``begin``.
        grace: Seconds between SIGTERM and the forced exit of a worker whose parent is gone.
    """
    arguments = (grace, begin, begin_arguments)
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_begin_worker, initargs=arguments) as pool:
        pending = {pool.submit(_call, function, each): index for index, each in enumerate(calls)}
        try:
            for future in as_completed(pending):
                on_result(pending[future], future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_jobs(
    job: Job,
    plan: Sequence[Task],
    profile: Mapping[str, Any],
    folder: Path,
    *,
    workers: int | None,
    report: ProgressReporter,
    begin: Begin | None = None,
) -> list[dict[str, Any]]:
    """Run ``job(task, profile)`` once for every task of the plan.

    Each outcome is written to ``folder`` as soon as its job ends, under a name derived from task, profile and version.
    A later call reuses it, so an interrupted plan resumes.

    Args:
        job: Returns a JSON object; must be importable if there are several workers.
        plan: The tasks.
        profile: Settings that all tasks share.
        folder: Where outcomes are stored.
        workers: Number of processes; None uses all cores, 1 runs the jobs in this process.
        report: Receives the number of finished jobs.
        begin: Called once in each worker.

    Returns:
        The outcomes in the order of the plan.

    Raises:
        VSEError: If a stored outcome is corrupt.
    """
    folder.mkdir(parents=True, exist_ok=True)  # before any job, so that a failure wastes none
    paths = [folder / f"{job_name(task, profile)}.json" for task in plan]
    outcomes = {index: outcome for index, path in enumerate(paths) if (outcome := _read_outcome(path)) is not None}
    missing = [index for index in range(len(plan)) if index not in outcomes]
    report.start(len(plan), "training")
    if outcomes:
        report.note(f"{len(outcomes)} of {len(plan)} runs were done before, in {folder}")
        report.advance(len(outcomes))

    def keep(index: int, outcome: dict[str, Any]) -> None:
        write_json(paths[index], {"task": dict(plan[index]), "profile": dict(profile), "outcome": outcome})
        outcomes[index] = outcome
        report.advance(1, description=" · ".join(str(value) for value in plan[index].values()))

    count = max(1, min(workers or os.cpu_count() or 1, len(missing)))
    if count == 1:
        for index in missing:
            keep(index, job(plan[index], profile))
    else:
        run_in_pool(
            job,
            [(plan[index], profile) for index in missing],
            workers=count,
            on_result=lambda number, outcome: keep(missing[number], outcome),
            begin=begin,
        )
    report.finish()
    return [outcomes[index] for index in range(len(plan))]


def job_name(task: Task, profile: Mapping[str, Any]) -> str:
    """Return a readable file name that is unique to the task, the profile and the version of this package."""
    content = json.dumps([dict(task), dict(profile), __version__], sort_keys=True)
    words = "-".join("".join(c for c in str(value).lower() if c.isalnum()) for value in task.values())
    return f"{words}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


def exit_with_parent(grace: float = 0.0) -> None:
    """Make this worker exit when its parent does, even if the parent was killed.

    The worker receives SIGTERM, and is killed ``grace`` seconds later if it is still running.
    """
    threading.Thread(target=_watch_parent, args=(grace,), daemon=True).start()


def _watch_parent(grace: float) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os._exit(1)


def _begin_worker(grace: float, begin: Begin | None, arguments: tuple[Any, ...]) -> None:
    if begin is not None:
        begin(*arguments)
    exit_with_parent(grace)


def _call(function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    try:
        return function(*arguments)
    except BaseException:
        if _is_orphan():
            os._exit(1)  # the pool would wait for another task forever
        raise


def _is_orphan() -> bool:
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


def _read_outcome(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        outcome: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["outcome"]
    except (ValueError, KeyError, TypeError) as error:
        raise VSEError(f"{path} is not a finished run ({error}); delete it to repeat the run") from error
    return outcome

"""Many independent training runs: several at once, each kept as soon as it is done, none done twice."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from vse._util.atomic import write_json
from vse._util.processes import end_with_parent
from vse._version import __version__
from vse.errors import VSEError
from vse.progress import ProgressReporter

Task = Mapping[str, Any]
Train = Callable[[Task, Mapping[str, Any]], dict[str, Any]]


def run_all(
    train: Train,
    plan: Sequence[Task],
    profile: Mapping[str, Any],
    folder: Path,
    *,
    jobs: int | None,
    report: ProgressReporter,
) -> list[dict[str, Any]]:
    """``train(task, profile)`` for every task of the plan, in parallel processes; the outcomes in the plan's order.

    An outcome is written to ``folder`` when its run ends, under a name made of the task and the profile, and is read
    from there the next time: an interrupted experiment goes on where it stopped. ``train`` must be importable.
    """
    folder.mkdir(parents=True, exist_ok=True)  # now: a folder that cannot be made must not cost a run
    paths = [folder / f"{run_name(task, profile)}.json" for task in plan]
    outcomes = {index: outcome for index, path in enumerate(paths) if (outcome := _read(path)) is not None}
    missing = [index for index in range(len(plan)) if index not in outcomes]
    report.start(len(plan), "training")
    if outcomes:
        report.note(f"{len(outcomes)} of {len(plan)} runs were done before, in {folder}")
        report.advance(len(outcomes))
    workers = max(1, min(jobs or os.cpu_count() or 1, len(missing)))

    def keep(index: int, outcome: dict[str, Any]) -> None:
        write_json(paths[index], {"task": dict(plan[index]), "profile": dict(profile), "outcome": outcome})
        outcomes[index] = outcome
        report.advance(1, description=" · ".join(str(value) for value in plan[index].values()))

    if workers == 1:
        for index in missing:
            keep(index, train(plan[index], profile))
    else:
        _run_in_processes(train, plan, profile, missing, workers, keep)
    report.finish()
    return [outcomes[index] for index in range(len(plan))]


def run_name(task: Task, profile: Mapping[str, Any]) -> str:
    """A file name that is readable and differs whenever the task, the profile or the version of this package does."""
    content = json.dumps([dict(task), dict(profile), __version__], sort_keys=True)
    words = "-".join("".join(c for c in str(value).lower() if c.isalnum()) for value in task.values())
    return f"{words}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


def _run_in_processes(
    train: Train,
    plan: Sequence[Task],
    profile: Mapping[str, Any],
    missing: Sequence[int],
    workers: int,
    keep: Callable[[int, dict[str, Any]], None],
) -> None:
    # "spawn": a forked child would inherit the locks of torch's threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin) as pool:
        waiting: dict[Future[dict[str, Any]], int] = {
            pool.submit(train, plan[index], profile): index for index in missing
        }
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    keep(waiting.pop(future), future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin() -> None:
    """One thread a process, since the processes share the cores already; and none when nobody waits for it."""
    import torch

    torch.set_num_threads(1)
    end_with_parent()


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        outcome: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["outcome"]
    except (ValueError, KeyError, TypeError) as error:
        raise VSEError(f"{path} is not a finished run ({error}); delete it to train that run again") from error
    return outcome

"""What a run reports: ``metrics.jsonl`` and ``timings.jsonl``, and its messages."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

from vse.data import CaptionedImages
from vse.errors import require
from vse.evaluation.metrics import RetrievalMetrics
from vse.training.batches import Samples
from vse.training.recipe import flat
from vse.training.run_folder import METRICS, TIMINGS, explained
from vse.training.step import NotFiniteError, StepFigures


class MetricsLog:
    """Append lines; :meth:`commit` flushes them to disk.

    NaN and infinity, which JSON does not have, are written as null.

    Args:
        folder: of the run.
        keep: bytes of ``metrics.jsonl`` that belong to the checkpoint; the rest is truncated.
        first_step: of this process, for TensorBoard.
        trackers: names of :data:`TRACKERS` that also receive all numbers.
        recipe: of the run, for the trackers.
    """

    def __init__(
        self,
        folder: Path,
        keep: int = 0,
        *,
        first_step: int = 0,
        trackers: Sequence[str] = (),
        recipe: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = path = folder / METRICS
        if path.exists():
            os.truncate(path, min(keep, path.stat().st_size))
        self._metrics: IO[str] = path.open("a", encoding="utf-8")
        self._timings: IO[str] = (folder / TIMINGS).open("a", encoding="utf-8")
        self._trackers = [TRACKERS[name](folder, first_step, recipe or {}) for name in trackers]

    def step(self, values: dict[str, Any], seconds: dict[str, float]) -> None:
        """Log a training step."""
        self._write({"kind": "step", **values}, values["step"])
        with explained(self._path):
            self._timings.write(json.dumps({"step": values["step"], **seconds}) + "\n")

    def epoch(self, values: dict[str, Any]) -> None:
        """Log the end of an epoch, with the figures on dev."""
        self._write({"kind": "epoch", **values}, values["step"])

    def event(self, values: dict[str, Any]) -> None:
        """Log an event of the guard."""
        self._write({"kind": "event", **values}, values["step"])

    def commit(self) -> int:
        """Flush to disk and return the size of ``metrics.jsonl`` in bytes."""
        with explained(self._path):
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
            self._timings.flush()
            return self._metrics.tell()

    def close(self) -> None:
        """Close the files. Errors of a full disk are ignored: the next run truncates what no checkpoint includes."""
        for file in (self._metrics, self._timings):
            with suppress(OSError):
                file.close()
        for tracker in self._trackers:
            tracker.close()

    def _write(self, values: dict[str, Any], step: int) -> None:
        with explained(self._path):
            self._metrics.write(json.dumps(_plain(values)) + "\n")
        numbers = dict(_scalars(values)) if self._trackers else {}
        for tracker in self._trackers:
            tracker.log(numbers, step)


def _scalars(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a line with their names: ``step/loss``, ``dev/rsum``."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from ((f"{key}/{inner}", float(each)) for inner, each in value.items() if _is_number(each))
        elif _is_number(value) and key not in {"step", "epoch"}:
            yield f"{values['kind']}/{key}", float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Tracker(Protocol):
    """Where the numbers of a run are shown; opened with its folder, the first step of this process and its recipe."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Record numbers by name."""

    def close(self) -> None:
        """Write what is buffered."""


class TensorBoard:
    """Event files in ``RUN/tensorboard``; steps that a resumed run repeats are purged."""

    def __init__(self, folder: Path, first_step: int, recipe: Mapping[str, Any]) -> None:
        del recipe  # it has no place for parameters
        board = require("torch.utils.tensorboard", "tensorboard", "run.tensorboard")
        self._writer = board.SummaryWriter(folder / "tensorboard", purge_step=first_step)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


def _run_id(folder: Path) -> str:
    """Return an id that a resumed run has again."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]


class WandB:
    """A run of Weights & Biases, offline in ``RUN/wandb`` unless ``WANDB_MODE`` says otherwise.

    Only its server can resume a run: offline, each process writes files of its own with the same run id.
    """

    def __init__(self, folder: Path, first_step: int, recipe: Mapping[str, Any]) -> None:
        wandb = require("wandb", "trackers", "run.trackers")
        mode = os.environ.get("WANDB_MODE") or "offline"
        quiet = wandb.Settings(silent=True, console="off")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "vse",
            dir=folder, id=_run_id(folder), name=folder.name, resume="allow", mode=mode, settings=quiet,
            config=dict(recipe), allow_val_change=True,
        )  # fmt: skip

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


MLFLOW_PARAMS = 100  # in one call


class MLflow:
    """A run of MLflow in ``RUN/mlflow``, or on the server that ``MLFLOW_TRACKING_URI`` names."""

    def __init__(self, folder: Path, first_step: int, recipe: Mapping[str, Any]) -> None:
        require("mlflow", "trackers", "run.trackers")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a database would need the full mlflow
            place = (folder.resolve() / "mlflow").as_uri()
        self._client = MlflowClient(tracking_uri=place)
        name, key = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "vse", _run_id(folder)
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        known = self._client.search_runs([experiment], f"tags.vse_run = '{key}'", max_results=1)
        tags = {"vse_run": key}
        run = known[0] if known else self._client.create_run(experiment, run_name=folder.name, tags=tags)
        self._run = run.info.run_id
        # A parameter cannot change, and a resumed run may differ in a few: the first process has set them.
        new = [(name, value) for name, value in flat(dict(recipe)).items() if name not in run.data.params]
        params = [Param(name, str(value)) for name, value in new if value is not None]
        for start in range(0, len(params), MLFLOW_PARAMS):
            self._client.log_batch(self._run, params=params[start : start + MLFLOW_PARAMS])

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._run)


TRACKERS: Mapping[str, Callable[[Path, int, Mapping[str, Any]], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return all complete lines of a run's ``metrics.jsonl``."""
    path = folder / METRICS
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def read_timings(folder: Path) -> dict[str, float]:
    """Return the total seconds of computing, of waiting for data and of the processor; repeated steps count each time.

    Runs of previous versions have no seconds of the processor.
    """
    total = {"compute": 0.0, "wait": 0.0, "cpu": 0.0}
    path = folder / TIMINGS
    for line in path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []:
        with suppress(ValueError):  # a line that a killed process left incomplete
            for key, value in json.loads(line).items():
                if key in total:
                    total[key] += value
    return total


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


NAMED_SAMPLES = 3  # in a message about a loss that is not finite
SOFTENED = "; the loss is softened until they have spread out"


def headline(figures: StepFigures, epoch: int, epochs: int, best: Mapping[str, Any] | None) -> str:
    """Return the text beside the progress bar after a step of ``epoch``, which counts from 0."""
    dev = f" · best dev rsum {best['rsum']:.1f}" if best else ""
    return (
        f"epoch {min(epoch + 1, epochs)}/{epochs} · loss {figures.loss:.4g} · "
        f"zero-loss {100 * figures.satisfied:.0f} %{dev}"
    )


def epoch_line(
    means: Mapping[str, float], found: Mapping[str, RetrievalMetrics], epoch: int, epochs: int, *, better: bool
) -> str:
    """Return the means of an epoch and the figures on dev of the weights that were evaluated after it."""
    shown = ", ".join(
        f"dev{'' if name == 'last' else f' {name}'} R@1 {metrics.i2t.r1:.1f}/{metrics.t2i.r1:.1f} "
        f"rsum {metrics.rsum:.1f}"
        for name, metrics in found.items()
    )
    return (
        f"epoch {epoch + 1}/{epochs}: loss {means['loss']:.4g}, "
        f"zero-loss pairs {100 * means['satisfied']:.0f} %, spread {means['spread']:.3f}, {shown}"
        f"{' (best so far)' if better else ''}"
    )


def recovered(where: str, spread: float) -> str:
    """Return the message that the embeddings of both sides have spread out to at least ``spread``."""
    return f"{where}: the embeddings have spread out again ({spread:.3f})"


def collapsing(where: str, side: str, spread: float, loss: float) -> str:
    """Return the message that the embeddings of ``side`` (images, videos or texts) collapse."""
    return (
        f"{where}: the embeddings are collapsing, different {side} have a mean cosine of {1 - spread:.3f} "
        f"(loss {loss:.4g})"
    )


def stopped_by_guard(reported: str) -> str:
    """Return the error of a guard that stops a run."""
    return (
        f"{reported}: stopped by guard.action; the last checkpoint is intact; train in a new folder (--into) with "
        'loss.objective = "contrastive", or with guard.action = "soften"'
    )


def blame(error: NotFiniteError, samples: Samples, data: CaptionedImages, step: int, epoch: int) -> str:
    """Return the error about a step without finite loss or gradient, with the samples that caused it."""
    rows = error.rows or range(len(samples))
    named = [
        f"caption {samples[row]} of {data.kind.noun} {data.images.ids[data.caption_to_image[samples[row]]]!r}"
        for row in list(rows)[:NAMED_SAMPLES]
    ]
    more = f" and {len(rows) - NAMED_SAMPLES} more" if len(rows) > NAMED_SAMPLES else ""
    whose = "samples with embeddings that are not finite" if error.rows else "samples of the batch"
    return (
        f"the {error.what} is not finite at step {step} (epoch {epoch + 1}); {whose}: "
        f"{', '.join(named)}{more}: no weight was updated and the last checkpoint is intact; fix these samples "
        "and resume, or train in a new folder (--into) with a lower optimizer.lr"
    )

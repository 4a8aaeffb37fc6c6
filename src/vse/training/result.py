"""The result of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse._util.strict import read_json
from vse.training.log import read_timings
from vse.training.run_folder import RESULT

if TYPE_CHECKING:
    from vse.training.trainer import Trainer


@dataclass(frozen=True)
class TrainingResult:
    """The best model by rsum on dev, and what training took.

    Attributes:
        name: of the run.
        folder: of the run.
        best: epoch, step and figures of the best model.
        epochs: trained.
        steps: trained.
        seconds: of all steps, repeated ones included, without evaluation.
        waiting: the share of the time in which steps waited for data.
        cpu_seconds: processor time of all steps in all threads; 0 for runs of versions that did not measure it.
    """

    name: str
    folder: Path
    best: dict[str, Any]
    epochs: int
    steps: int
    seconds: float
    waiting: float
    cpu_seconds: float = 0.0

    @classmethod
    def of(cls, trainer: Trainer, name: str) -> TrainingResult:
        """Return the result of a trainer that has finished."""
        spent = read_timings(trainer.folder.path)
        total = spent["compute"] + spent["wait"]
        position = trainer.position
        return cls(
            name,
            trainer.folder.path,
            dict(position.best or {}),
            position.epoch,
            position.step,
            total,
            spent["wait"] / total if total else 0.0,
            spent["cpu"],
        )

    @classmethod
    def read(cls, folder: Path) -> TrainingResult:
        """Read the result of a finished run."""
        raw = read_json(folder / RESULT)
        return cls(
            raw["name"],
            folder,
            raw["best"],
            raw["epochs"],
            raw["steps"],
            raw["seconds"],
            raw["waiting_for_data"],
            raw.get("cpu_seconds", 0.0),
        )

    @property
    def model(self) -> Path:
        """The folder of the best model."""
        return self.folder / "best"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "folder": str(self.folder),
            "model": str(self.model),
            "best": self.best,
            "epochs": self.epochs,
            "steps": self.steps,
            "seconds": self.seconds,  # unrounded, so that a finished run is reported in the same words
            "waiting_for_data": self.waiting,
            "cpu_seconds": self.cpu_seconds,
        }

    def draw(self, path: Path, metrics: Sequence[dict[str, Any]]) -> None:
        """Plot the training curves if matplotlib is installed."""
        from vse.errors import MissingDependencyError
        from vse.training.curves_plot import plot_training

        try:
            figure = plot_training({self.name: metrics})
        except MissingDependencyError:
            return
        figure.savefig(path, dpi=130)

"""``vse demo``: a GPO discovers two poolings it is never told, in a few seconds and without any data.

One is K-max pooling with K = 5; the other takes half of the largest value and half of the smallest, which no K-max
pooling can do (GPO was found to learn such curves on sentence features).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse.errors import require
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from rich.console import Console

    from vse.pooling import RankPooling

SEED = 0
STEPS = 900
SIZES = (10, 36, 100)
"""A size never seen in training, and two of those that were (20 to 100)."""


@dataclass(frozen=True)
class Lesson:
    """One hidden pooling and how well it was found."""

    hidden: str
    errors: dict[str, float]
    nearest_k: int
    frozen_difference: float
    picture: Path


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration shows at its end."""

    lessons: list[Lesson]
    seconds: float
    folder: Path

    def to_json(self) -> dict[str, Any]:
        """The result as plain values."""
        return {
            "seed": SEED,
            "steps": STEPS,
            "seconds": round(self.seconds, 1),
            "lessons": [
                {
                    "hidden_pooling": lesson.hidden,
                    "coefficient_rmse": lesson.errors,
                    "nearest_k_max_at_36": lesson.nearest_k,
                    "frozen_table_difference": lesson.frozen_difference,
                    "picture": str(lesson.picture),
                }
                for lesson in self.lessons
            ],
        }

    def render(self, console: Console) -> None:
        """The result as a person reads it."""
        from rich.table import Table

        table = Table(title="What GPO learned from pooled vectors alone (coefficient RMSE)", title_justify="left")
        for column in ("hidden pooling", "sets of 20–100", "10–19, unseen", "101–120, unseen", "nearest K-max"):
            table.add_column(column, justify="left" if column == "hidden pooling" else "right")
        for lesson in self.lessons:
            errors = (f"{lesson.errors[sizes]:.4f}" for sizes in ("seen", "smaller", "larger"))
            table.add_row(lesson.hidden, *errors, f"K = {lesson.nearest_k}")
        console.print(table)
        worst = max(lesson.frozen_difference for lesson in self.lessons)
        console.print(f"Frozen to a table without its GRU, each pools the same within {worst:.0e}.")
        for lesson in self.lessons:
            console.print(f"curve: {lesson.picture}", soft_wrap=True)


def run(*, out: Path, progress: ProgressReporter | None = None) -> DemoResult:
    """Train, compare, freeze and draw; everything is written under ``out``."""
    for module in ("torch", "matplotlib"):
        require(module, extra="train", purpose="vse demo")
    from vse.files import write_json
    from vse.pooling import KMaxPool

    report = progress or SilentProgress()
    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    hidden: dict[str, RankPooling] = {"mean of the 5 largest": KMaxPool(5), "largest and smallest": _extremes(120)}
    report.note("a GPO is shown random sets and what a hidden pooling makes of them, never its coefficients")
    lessons = [_teach(name, true, out / f"{name.replace(' ', '-')}.png", report) for name, true in hidden.items()]
    result = DemoResult(lessons, time.perf_counter() - started, out)
    write_json(out / "result.json", result.to_json())
    return result


def _teach(name: str, true: RankPooling, picture: Path, report: ProgressReporter) -> Lesson:
    import torch

    from vse.experiments.synthetic_task import SIZE_RANGES, Profile, coefficient_error, imitate
    from vse.pooling import GPO, plot_coefficients
    from vse.pooling.plot import nearest_k

    torch.manual_seed(SEED)
    pool = GPO()
    report.start(STEPS, f"learning “{name}”")
    imitate(pool, true, SEED, Profile(steps=STEPS), after_step=report.advance)
    report.finish()
    features = torch.randn(8, 36, 64, generator=torch.Generator().manual_seed(SEED))
    lengths = torch.arange(29, 37)
    with torch.no_grad():
        difference = (pool(features, lengths=lengths) - pool.freeze(36)(features, lengths=lengths)).abs().max()
    plot_coefficients(pool, SIZES, title=f"A GPO that was shown “{name}”").savefig(picture, dpi=130)
    return Lesson(
        hidden=name,
        errors={sizes: coefficient_error(pool, true, span) for sizes, span in SIZE_RANGES.items()},
        nearest_k=nearest_k(pool.coefficients(36)),
        frozen_difference=float(difference),
        picture=picture,
    )


def _extremes(largest: int) -> RankPooling:
    """Half of the largest value and half of the smallest, for sets of up to ``largest``."""
    import torch

    from vse.pooling import FrozenPooling

    table = torch.zeros(largest, largest)
    table[:, 0] = 0.5
    table += 0.5 * torch.eye(largest)
    return FrozenPooling(table)

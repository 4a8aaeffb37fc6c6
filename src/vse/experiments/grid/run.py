"""From a plan to a result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vse.experiments.grid.compare import Row, contrast, still_rising
from vse.experiments.grid.measure import measure_grid
from vse.experiments.grid.plan import Grid
from vse.experiments.grid.plot import dev_curve
from vse.experiments.grid.report import GridResult
from vse.experiments.grid.runs import train_grid
from vse.progress import ProgressReporter
from vse.training.build import flat


def run_grid(
    grid: Grid,
    *,
    seeds: Sequence[int],
    out: Path,
    jobs: int | None,
    report: ProgressReporter,
    runs: Path | None = None,
    split: str = "test",
    quick: bool = False,
) -> GridResult:
    """Train what is missing, measure what was not measured, compare, and write it all into ``out``.

    ``runs`` is the folder of the training runs, which experiments may share; by default they are in ``out``. The test
    split is looked at once, with the model that dev has chosen in each run.
    """
    trained = train_grid(grid, seeds, runs or out / "runs", jobs=jobs, report=report)
    measured, test = measure_grid(trained, split, report)
    rows = {}
    for variant in grid.variants:
        own = tuple(each for each in measured if each.trained.variant == variant)
        rising = tuple(still_rising(dev_curve(each.trained.result.folder)) for each in own)
        rows[variant.label] = Row(variant, own, rising)
    contrasts = tuple(contrast(claim, rows[claim.better], rows[claim.worse]) for claim in grid.claims)
    result = GridResult(grid, tuple(rows.values()), contrasts, test, _common(tuple(rows.values())), out, quick)
    result.save()
    return result


def _common(rows: Sequence[Row]) -> dict[str, object]:
    """The values of the recipes that are the same in all runs."""
    recipes = [flat(each.trained.recipe.identity()) for row in rows for each in row.seeds]
    first, *others = recipes
    return {
        key: value
        for key, value in first.items()
        if value not in (None, {}) and all(each.get(key) == value for each in others)
    }

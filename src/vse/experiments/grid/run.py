"""From a plan to a result."""

from __future__ import annotations

from collections.abc import Sequence

from vse.experiments.grid.compare import MeasuredSeed, Row, contrast, measure_grid, still_rising, train_grid
from vse.experiments.grid.plot import dev_curve
from vse.experiments.grid.report import GridResult
from vse.experiments.plan import Call, Grid
from vse.training.recipe import flat


def run_grid(grid: Grid, seeds: Sequence[int], call: Call, *, split: str = "test") -> GridResult:
    """Train what is missing, measure what was not measured, compare, and write it all into ``call.out``.

    The test split is looked at once, with the model that dev has chosen in each run.
    """
    trained = train_grid(grid, seeds, call.runs_folder, jobs=call.jobs, report=call.report)
    measured, test = measure_grid(trained, split, call.report)
    rows = rows_of(grid, measured)
    called = {row.variant.label: row for row in rows}
    contrasts = tuple(contrast(claim, called[claim.better], called[claim.worse]) for claim in grid.claims)
    result = GridResult(grid, rows, contrasts, test, common_values(rows), call.out, call.quick)
    result.save()
    return result


def rows_of(grid: Grid, measured: Sequence[MeasuredSeed]) -> tuple[Row, ...]:
    """The models of each variant together."""
    rows = []
    for variant in grid.variants:
        own = tuple(each for each in measured if each.trained.variant == variant)
        rows.append(Row(variant, own, tuple(still_rising(dev_curve(each.trained.result.folder)) for each in own)))
    return tuple(rows)


def common_values(rows: Sequence[Row]) -> dict[str, object]:
    """The values of the recipes that are the same in all runs."""
    recipes = [flat(each.trained.recipe.identity()) for row in rows for each in row.seeds]
    first, *others = recipes
    return {
        key: value
        for key, value in first.items()
        if value not in (None, {}) and all(each.get(key) == value for each in others)
    }

"""The training runs of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vse.errors import InputError, require
from vse.experiments.grid.plan import Grid, Variant
from vse.progress import ProgressReporter
from vse.training.recipe import Recipe
from vse.training.recipes import read_recipe
from vse.training.result import TrainingResult
from vse.training.several import Run, train_several


@dataclass(frozen=True)
class TrainedSeed:
    """A row of the grid with one seed, trained to its end."""

    variant: Variant
    seed: int
    recipe: Recipe
    result: TrainingResult


def train_grid(
    grid: Grid, seeds: Sequence[int], folder: Path, *, jobs: int | None, report: ProgressReporter
) -> list[TrainedSeed]:
    """Every row with every seed, seed by seed, so that an interrupted grid has whole comparisons.

    A run is in ``folder/KEY-seedN``. One that is finished is read, one that was interrupted goes on, and one that was
    begun with other settings is refused.
    """
    require("matplotlib", "plot", "the pictures of an experiment")  # asked for now, not after hours of training
    if not seeds:
        raise InputError("seeds is empty; give at least one")
    wanted = [(variant, seed) for seed in seeds for variant in grid.variants]
    runs = [
        Run(_recipe(grid, variant, seed), folder / f"{variant.key}-seed{seed}", f"{variant.label} seed {seed}")
        for variant, seed in wanted
    ]
    results = train_several(runs, jobs=jobs, progress=report)
    return [
        TrainedSeed(variant, seed, run.recipe, result)
        for (variant, seed), run, result in zip(wanted, runs, results, strict=True)
    ]


def _recipe(grid: Grid, variant: Variant, seed: int) -> Recipe:
    recipe = read_recipe(variant.recipe, [*variant.changes, *grid.changes, f"seed={seed}"])
    if not isinstance(recipe, Recipe):
        raise InputError(f"{variant.recipe}: an ensemble, and a row of an experiment is one model")
    return recipe

"""Train the rows of a grid, measure them, and compare them: means over seeds, differences with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import write_json
from vse._util.schema import read_json
from vse.data import CaptionedImages
from vse.errors import InputError, require
from vse.evaluation.bootstrap import FIGURES, LEVEL, SAMPLES, FoldRanks, Interval, resample
from vse.evaluation.metrics import RetrievalMetrics
from vse.evaluation.retrieval_test import RetrievalTest, model_scores
from vse.experiments.plan import Claim, Grid, Variant
from vse.models.storage import load_model
from vse.progress import ProgressReporter
from vse.training.data import graphs_of, open_split
from vse.training.parallel import Run, train_several
from vse.training.recipe import Recipe
from vse.training.recipes import read_recipe
from vse.training.result import TrainingResult


@dataclass(frozen=True)
class TrainedSeed:
    """A row of the grid trained with one seed."""

    variant: Variant
    seed: int
    recipe: Recipe
    result: TrainingResult


def train_grid(
    grid: Grid, seeds: Sequence[int], folder: Path, *, jobs: int | None, report: ProgressReporter
) -> list[TrainedSeed]:
    """Train every row with every seed, seed by seed, so that an interrupted grid has complete comparisons.

    A run is in ``folder/KEY-seedN``. A finished run is read, an interrupted one resumes, and one with other settings is
    refused.
    """
    require("matplotlib", "plot", "the plots of an experiment")  # checked now, not after hours of training
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
        raise InputError(f"{variant.recipe}: an ensemble; a row of an experiment must be one model")
    return recipe


TEST = "test.json"
"""In the folder of a run."""


@dataclass(frozen=True, eq=False)
class MeasuredSeed:
    """The figures of one model on the test split, and of draws of its images ``(samples, figures)``."""

    trained: TrainedSeed
    metrics: RetrievalMetrics
    draws: NDArray[np.float64]


def measure_grid(
    trained: Sequence[TrainedSeed], split: str, report: ProgressReporter, *, samples: int = SAMPLES
) -> tuple[list[MeasuredSeed], dict[str, Any]]:
    """Measure every model on ``split``; also return a description of the split."""
    data = open_split(trained[0].recipe, split)
    test = RetrievalTest.of(data)
    report.start(len(trained), f"measuring on {data.name} {data.split}")
    found = []
    for each in trained:
        found.append(measured(each, _ranks(each, data, test), samples=samples))
        report.advance(1)
    report.finish()
    return found, {
        "data": data.name,
        "split": data.split,
        "split_hash": test.about["split_hash"],
        "images": len(data.images),
        "videos": data.kind.noun == "video",
        "captions": len(data.captions),
        "texts": test.positives.candidates,
        "ties": "pessimistic",
        "samples": samples,
    }


def measured(trained: TrainedSeed, ranks: FoldRanks, *, samples: int = SAMPLES) -> MeasuredSeed:
    """Return the figures of ranks; the draws are the same for all models of a split."""
    return MeasuredSeed(trained, ranks.metrics, resample([ranks], samples=samples))


def _ranks(trained: TrainedSeed, data: CaptionedImages, test: RetrievalTest) -> FoldRanks:
    """Return the stored ranks if they belong to these weights and this split; otherwise compute and store them."""
    path = trained.result.folder / TEST
    what = {"model": read_json(trained.result.model / "config.json")["fingerprint"], "split": test.about["split_hash"]}
    if path.is_file():
        kept = read_json(path)
        if all(kept.get(name) == value for name, value in what.items()):
            return test.fold(np.array(kept["images"]), np.array(kept["texts"]))
    model = load_model(trained.result.model)
    graphs = graphs_of(trained.recipe, data.captions)
    ranks = test.rank(model_scores(model, data, test, graphs=graphs))
    write_json(path, {**what, "images": ranks.images.tolist(), "texts": ranks.texts.tolist()})
    return ranks


RSUM = FIGURES.index("rsum")
RISE = 1.0
"""A run is unfinished if its mean rsum on dev rose by more than this between the last two fifths of its epochs."""

Verdict = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True, eq=False)
class Row:
    """A variant with all its seeds."""

    variant: Variant
    seeds: tuple[MeasuredSeed, ...]
    rising: tuple[bool, ...]

    @property
    def figures(self) -> NDArray[np.float64]:
        """``(seeds, figures)`` on the test split."""
        measured = [each.metrics.figures() for each in self.seeds]
        return np.array([[figures[name] for name in FIGURES] for figures in measured])

    @property
    def mean(self) -> dict[str, float]:
        """The mean over seeds."""
        return dict(zip(FIGURES, self.figures.mean(axis=0).tolist(), strict=True))

    @property
    def deviation(self) -> dict[str, float] | None:
        """The sample standard deviation between seeds; None for one seed."""
        if len(self.seeds) < 2:
            return None
        return dict(zip(FIGURES, self.figures.std(axis=0, ddof=1).tolist(), strict=True))

    @property
    def finished(self) -> bool:
        """Whether dev had stopped rising in every run."""
        return not any(self.rising)


@dataclass(frozen=True)
class Contrast:
    """The rsum of one row minus that of another, seed by seed on the same test items."""

    claim: Claim
    value: float
    interval: Interval
    by_seed: tuple[float, ...]

    @property
    def verdict(self) -> Verdict:
        """Decided when the interval excludes zero."""
        if self.interval.low > 0:
            return "holds"
        return "does not hold" if self.interval.high < 0 else "undecided"

    def to_json(self) -> dict[str, Any]:
        return {
            "claim": self.claim.text,
            "difference": self.value,
            "interval": self.interval.to_json(),
            "by_seed": list(self.by_seed),
            "verdict": self.verdict,
        }


def still_rising(dev: Sequence[float]) -> bool:
    """Return whether the rsum of epochs still rose at the end: the last fifth against the fifth before it."""
    part = max(1, len(dev) // 5)
    if len(dev) < 2 * part:
        return True
    return float(np.mean(dev[-part:]) - np.mean(dev[-2 * part : -part])) > RISE


def contrast(claim: Claim, better: Row, worse: Row) -> Contrast:
    """Return the difference of the means over seeds, with an interval over draws of test items and of seeds.

    Seeds are drawn in pairs: seed n of one row with seed n of the other. With one seed only the test items are drawn,
    and the interval does not cover the variation between trainings.
    """
    if [each.trained.seed for each in better.seeds] != [each.trained.seed for each in worse.seeds]:
        raise InputError(f"{claim.text}: the two rows have different seeds, and rows are compared seed by seed")
    by_seed = better.figures[:, RSUM] - worse.figures[:, RSUM]
    drawn = np.stack([a.draws[:, RSUM] - b.draws[:, RSUM] for a, b in zip(better.seeds, worse.seeds, strict=True)])
    seeds, samples = drawn.shape
    generator = np.random.Generator(np.random.Philox(key=np.array([0, seeds], dtype=np.uint64)))
    chosen = generator.integers(0, seeds, size=(seeds, samples))
    values = np.take_along_axis(drawn, chosen, axis=0).mean(axis=0)  # (samples,)
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Contrast(claim, float(by_seed.mean()), Interval(low, high), tuple(by_seed.tolist()))

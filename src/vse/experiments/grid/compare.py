"""Train the rows of a grid, measure them, and compare them: means over seeds, differences with intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import write_json
from vse._util.schema import read_json
from vse.data import CaptionedImages
from vse.data.open import LAYOUTS, find_layout
from vse.errors import InputError, require
from vse.evaluation.bootstrap import FIGURES, LEVEL, SAMPLES, FoldRanks, Interval, resample
from vse.evaluation.metrics import RetrievalMetrics, mean_metrics
from vse.evaluation.protocols import AUTO, FIRST_FOLD, TEST_SPLITS, WHOLE_COCO, Protocol, choose_protocols, remarks
from vse.evaluation.rerank import RerankedScores
from vse.evaluation.retrieval_test import RetrievalTest, model_scores
from vse.evaluation.scores import Scores
from vse.experiments.plan import Claim, Grid, Variant
from vse.models.storage import load_model
from vse.progress import ProgressReporter
from vse.training.data import graphs_of, open_split
from vse.training.parallel import Run, train_several
from vse.training.recipe import Recipe, flat
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
        Run(recipe_of(grid, variant, seed), folder / f"{variant.key}-seed{seed}", f"{variant.label} seed {seed}")
        for variant, seed in wanted
    ]
    distinct = list({run.folder: run for run in runs}.values())  # rows with equal recipes are trained once
    results = dict(
        zip((run.folder for run in distinct), train_several(distinct, jobs=jobs, progress=report), strict=True)
    )
    return [
        TrainedSeed(variant, seed, run.recipe, results[run.folder])
        for (variant, seed), run in zip(wanted, runs, strict=True)
    ]


def recipe_of(grid: Grid, variant: Variant, seed: int) -> Recipe:
    """Return the recipe of a row with a seed."""
    recipe = read_recipe(variant.recipe, [*variant.changes, *grid.changes, f"seed={seed}"])
    if not isinstance(recipe, Recipe):
        raise InputError(f"{variant.recipe}: an ensemble; a row of an experiment must be one model")
    return recipe


TEST = "test.json"
"""In the folder of a run; ranks of a split that was named are in ``test-SPLIT.json``."""
SECONDS = "processor_seconds"
"""Of loading, encoding, scoring and ranking a test split, in :data:`TEST`."""


@dataclass(frozen=True, eq=False)
class TestSplit:
    """The split that every row is ranked on, and the protocols by which; the first one decides claims."""

    __test__ = False  # no test class for pytest

    data: CaptionedImages
    test: RetrievalTest
    protocols: tuple[Protocol, ...]
    file: str = TEST

    @classmethod
    def of(cls, recipe: Recipe, protocol: str = AUTO, split: str | None = None) -> TestSplit:
        """Open the test split of a recipe's data.

        COCO in its usual layout is ranked on ``testall``. Where splits belong together, as VATEX's halves do, the test
        split is that of the recipe's dev split.

        Args:
            recipe: names the data and the model.
            protocol: a name, or ``auto`` for the usual protocols of the dataset.
            split: ranked in place of the test split.

        Raises:
            InputError: there is no test split, or it holds only the first 1,000 of COCO's test images and no protocol
                was named.
        """
        data = open_split(recipe, split or _test_name(recipe))
        test = RetrievalTest.of(data)
        chosen = choose_protocols(protocol, data.name, test.items, data.split, kind=test.kind)
        if protocol == AUTO and chosen[0].name == FIRST_FOLD:
            raise InputError(
                f"{data.name}, split {data.split!r}: the first 1,000 of COCO's test images, which is not COCO 1K: "
                f"add the split {WHOLE_COCO!r}, or choose this test by its name, --protocol {FIRST_FOLD}"
            )
        for each in chosen:
            each.galleries(test.items)  # an error now, not after hours of training
        return cls(data, test, tuple(chosen), TEST if split is None else f"test-{split}.json")

    def rank(self, scores: Scores | RerankedScores) -> dict[str, list[FoldRanks]]:
        """Return the ranks of each fold of each protocol."""
        return {
            each.name: [self.test.rank(scores, gallery) for gallery in each.galleries(self.test.items)]
            for each in self.protocols
        }

    def about(self, protocol: Protocol, samples: int) -> dict[str, Any]:
        """Return what was ranked under a protocol, for readers of the figures."""
        galleries = protocol.galleries(self.test.items)
        return {
            "data": self.data.name,
            "split": self.data.split,
            "split_hash": self.test.about["split_hash"],
            "protocol": protocol.name,
            "protocol_summary": protocol.summary,
            "folds": len(galleries),
            "images": len(galleries[0]),
            "videos": self.data.kind.noun == "video",
            "captions": len(self.data.captions),
            "texts": self.test.positives.candidates,
            "remarks": [*self.test.about["remarks"], *remarks(protocol, self.data.name, self.data.split)],
            "ties": "pessimistic",
            "samples": samples,
        }


def _test_name(recipe: Recipe) -> str:
    """Return the name of the test split that belongs to the splits that a recipe trains with."""
    if not recipe.data.path:
        return TEST_SPLITS[0]  # opening it explains what is missing
    path = Path(recipe.data.path)
    layout = LAYOUTS[find_layout(path, recipe.data.layout)]
    for together in layout.protocols:
        if recipe.data.train in together and recipe.data.dev in together:
            return together[-1]
    return WHOLE_COCO if WHOLE_COCO in layout.splits(path) else TEST_SPLITS[0]


@dataclass(frozen=True, eq=False)
class MeasuredSeed:
    """The figures of one model on the test split, and of draws of its images ``(samples, figures)``."""

    trained: TrainedSeed
    metrics: RetrievalMetrics
    draws: NDArray[np.float64]


Measured = dict[str, list[MeasuredSeed]]
"""The models of a grid by the name of the protocol."""
ScoresOf: TypeAlias = Callable[[TrainedSeed, TestSplit], Scores | RerankedScores]


def own_scores(trained: TrainedSeed, where: TestSplit) -> Scores:
    """Return the scores of a trained model."""
    graphs = graphs_of(trained.recipe, where.data.captions)
    return model_scores(load_model(trained.result.model), where.data, where.test, graphs=graphs)


def measure_grid(
    trained: Sequence[TrainedSeed],
    where: TestSplit,
    report: ProgressReporter,
    *,
    samples: int = SAMPLES,
    scores: ScoresOf = own_scores,
) -> Measured:
    """Measure every model by every protocol of the test.

    Args:
        trained: the models.
        where: the test, and the file of a run in which the ranks are kept.
        report: shows the work.
        samples: of the bootstrap.
        scores: computes the scores of a model.
    """
    report.start(len(trained), f"measuring on {where.data.name} {where.data.split}")
    found: Measured = {each.name: [] for each in where.protocols}
    for each in trained:
        for name, folds in _ranks(each, where, scores).items():
            found[name].append(measured(each, folds, samples=samples))
        report.advance(1)
    report.finish()
    return found


def measured(trained: TrainedSeed, folds: Sequence[FoldRanks], *, samples: int = SAMPLES) -> MeasuredSeed:
    """Return the means over folds; the draws are the same for all models of a split."""
    metrics = mean_metrics([fold.metrics for fold in folds])
    return MeasuredSeed(trained, metrics, resample(folds, samples=samples))


def _ranks(trained: TrainedSeed, where: TestSplit, scores: ScoresOf) -> dict[str, list[FoldRanks]]:
    """Return the stored ranks if they belong to these weights and this test; otherwise compute and store them."""
    path = trained.result.folder / where.file
    model = read_json(trained.result.model / "config.json")["fingerprint"]
    what = {"model": model, "split": where.test.about["split_hash"], "data": where.data.split}
    if path.is_file():
        kept = read_json(path)
        known = kept.get("protocols", {})
        if (
            all(kept.get(name) == value for name, value in what.items())
            and {each.name for each in where.protocols} <= known.keys()
        ):
            return {each.name: _stored(known[each.name], each, where.test) for each in where.protocols}
    start = time.process_time()
    ranks = where.rank(scores(trained, where))
    spent = time.process_time() - start
    lists = {
        name: [{"images": fold.images.tolist(), "texts": fold.texts.tolist()} for fold in folds]
        for name, folds in ranks.items()
    }
    write_json(path, {**what, SECONDS: spent, "protocols": lists})
    return ranks


def scoring_seconds(trained: TrainedSeed, where: TestSplit) -> float | None:
    """Return the processor time that ranking a measured model took; None if it was not measured."""
    seconds: float | None = read_json(trained.result.folder / where.file).get(SECONDS)
    return seconds


def _stored(folds: list[dict[str, list[int]]], protocol: Protocol, test: RetrievalTest) -> list[FoldRanks]:
    return [
        test.fold(np.array(fold["images"]), np.array(fold["texts"]), gallery)
        for fold, gallery in zip(folds, protocol.galleries(test.items), strict=True)
    ]


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
    def augmentation(self) -> dict[str, Any]:
        """How training changed the sets of both sides."""
        return self.seeds[0].trained.recipe.augmentation.model_dump(include={"image", "text", "rate"})

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
    differs: tuple[str, ...] = ()
    """What the rows differ in, of ``pooling`` and ``augmentation``; with both, the claim is not about either alone."""

    @property
    def mixed(self) -> bool:
        """Whether poolings are compared at unequal augmentation."""
        return len(self.differs) > 1

    @property
    def verdict(self) -> Verdict:
        """Decided when the interval excludes zero."""
        if self.interval.low > 0:
            return "holds"
        return "does not hold" if self.interval.high < 0 else "undecided"

    def to_json(self) -> dict[str, Any]:
        return {
            "claim": self.claim.text,
            **({"selected": self.claim.remark} if self.claim.among else {}),
            "differs": list(self.differs),
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
    return Contrast(
        claim, float(by_seed.mean()), Interval(low, high), tuple(by_seed.tolist()), _differences(better, worse)
    )


def _differences(better: Row, worse: Row) -> tuple[str, ...]:
    """Return whether the recipes of two rows differ in poolings, in augmentation, or in both."""
    first, second = (flat(row.seeds[0].trained.recipe.identity()) for row in (better, worse))
    changed = [key for key in first.keys() | second.keys() if first.get(key) != second.get(key)]
    kinds = {"pooling": lambda key: "pooling" in key, "augmentation": lambda key: key.startswith("augmentation.")}
    return tuple(kind for kind, is_of in kinds.items() if any(map(is_of, changed)))

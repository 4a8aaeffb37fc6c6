"""The result of the bench: a row for each system, its table, and the plots of quality against costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vse._util.atomic import write_json, write_text
from vse._version import __version__
from vse.errors import require
from vse.evaluation.bootstrap import LEVEL, Interval
from vse.experiments.grid.compare import RSUM, MeasuredSeed, Row, TrainedSeed
from vse.experiments.grid.plot import COLOURS, GRID, axes
from vse.experiments.grid.report import UNFINISHED
from vse.pooling.plot import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS = (
    "system",  # and the augmentation of all rows, see BenchResult.heads
    "rsum",
    "95 %",
    "seeds",
    "epochs × batch",
    "pairs seen",
    "training, s",
    "parameters",
    "test split, s",
    "scoring, s per 10⁶ pairs",
)
PLOT = "quality.png"
LINE = 11.0  # height of a name in the plot, in points


@dataclass(frozen=True)
class Cost:
    """What a system costs beyond its training.

    Attributes:
        parameters: of a saved model, those that only training needs included.
        test_seconds: processor time of encoding, scoring and ranking the test split; None if it was ranked by a version
            that did not measure it.
        pair_seconds: processor time of scoring a pair, both sides encoded before.
        first_training: seconds of training the first stage of a re-ranker.
        depth: candidates that a re-ranker orders; 0 for a system that ranks by itself.
    """

    parameters: int
    test_seconds: float | None
    pair_seconds: float
    first_training: float = 0.0
    depth: int = 0


@dataclass(frozen=True, eq=False)
class SystemRow:
    """The quality and the costs of one system; ``row`` has its models, one for each seed."""

    row: Row
    cost: Cost

    @property
    def label(self) -> str:
        return self.row.variant.label

    @property
    def rsum(self) -> float:
        """The mean over seeds."""
        return self.row.mean["rsum"]

    @property
    def interval(self) -> Interval:
        """Of the mean over seeds, over draws of test images; the variation between trainings is not in it."""
        return mean_interval(self.row.seeds)

    @property
    def training_seconds(self) -> float:
        """The mean over seeds of the processor time of all steps; of both stages for a re-ranker."""
        own = float(np.mean([each.trained.result.cpu_seconds for each in self.row.seeds]))
        return own + self.cost.first_training

    @property
    def million_pairs(self) -> float:
        """Processor seconds of scoring a million pairs, encoding left out."""
        return 1e6 * self.cost.pair_seconds

    def cells(self) -> list[str]:
        """Return the entries under :data:`HEADS`."""
        low, high = self.interval.to_json()
        trained = self.row.seeds[0].trained
        spent = self.cost.test_seconds
        return [
            self.label + ("" if self.row.finished else UNFINISHED),
            f"{self.rsum:.1f}",
            f"{low:.1f} to {high:.1f}",
            str(len(self.row.seeds)),
            f"{trained.result.epochs} × {trained.recipe.schedule.batch_size}",
            f"{pairs_seen(trained) / 1000:.0f} k",
            f"{self.training_seconds:.0f}",
            f"{self.cost.parameters / 1e6:.2f} M",
            "–" if spent is None else f"{spent:.3g}",
            f"{self.million_pairs:.2g}" if self.million_pairs < 10 else f"{self.million_pairs:,.0f}",
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "recipe": self.row.variant.recipe,
            "changes": list(self.row.variant.changes),
            "mean": self.row.mean,
            "rsum_interval": self.interval.to_json(),
            "finished": self.row.finished,
            "training_seconds": self.training_seconds,
            "parameters": self.cost.parameters,
            "test_seconds": self.cost.test_seconds,
            "scoring_seconds_per_million_pairs": self.million_pairs,
            "depth": self.cost.depth,
            "batch_size": self.row.seeds[0].trained.recipe.schedule.batch_size,
            "seeds": [
                {
                    "seed": each.trained.seed,
                    "folder": str(each.trained.result.folder),
                    "epochs": each.trained.result.epochs,
                    "pairs_seen": pairs_seen(each.trained),
                    "training_seconds": each.trained.result.cpu_seconds,
                    "dev_rsum": each.trained.result.best.get("rsum"),
                    "test": each.metrics.figures(),
                }
                for each in self.row.seeds
            ],
        }


@dataclass(frozen=True, eq=False)
class BenchResult:
    """All systems under the main protocol of the dataset.

    Attributes:
        rows: in the order of :data:`vse.experiments.bench.SYSTEMS`, the re-ranker last.
        test: what was ranked, and by which protocol.
        profile: the values that all recipes share.
        folder: where it is written.
        quick: whether training was shortened.
    """

    rows: tuple[SystemRow, ...]
    test: dict[str, Any]
    profile: dict[str, Any]
    folder: Path
    quick: bool = False

    @property
    def augmentation(self) -> str:
        """How training changed the images and the texts of all rows, such as ``drop + none``; ``none`` for neither."""
        found = sorted({" + ".join(row.row.augmentation[side] for side in ("image", "text")) for row in self.rows})
        return " / ".join("none" if each == "none + none" else each for each in found)

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of the table; the first one names the augmentation, which is equal in all rows."""
        return (f"{HEADS[0]} (augmentation: {self.augmentation})", *HEADS[1:])

    def notes(self) -> list[str]:
        """Return what readers of the figures must know, one sentence each."""
        test = self.test
        notes = [
            f"Protocol {test['protocol']} on {test['data']} {test['split']}: {test['protocol_summary']}.",
            *(f"{remark[:1].upper()}{remark[1:]}." for remark in test["remarks"]),
            f"Intervals: {test['samples']} bootstrap samples of the test images, not of trainings.",
            "Pairs seen: steps times batch. Training: processor time of all steps of one run.",
            "Test split: processor time of loading, encoding, scoring and ranking.",
            "Scoring: processor time of scores alone, both sides encoded before.",
        ]
        if any(len(each.row.seeds) != len(self.rows[0].row.seeds) for each in self.rows):
            notes.append("The best systems by rsum on dev have more seeds; their rsum is the mean.")
        notes += [
            f"{each.label}: the first {each.cost.depth} candidates of either direction; training and parameters of "
            "both stages, scoring of the candidates divided by all pairs of the split."
            for each in self.rows
            if each.cost.depth
        ]
        notes += [
            f"{each.label}: the mean of the scores of two systems; its costs are the sums of theirs."
            for each in self.rows
            if any(not seed.trained.result.best for seed in each.row.seeds)
        ]
        if not all(each.row.finished for each in self.rows):
            notes.append(f"{UNFINISHED} unfinished: rsum on dev was still rising at the end of a run.")
        return notes

    def markdown(self) -> str:
        """Return the table and its notes as Markdown."""
        lines = [self.heads, ("---", *["--:"] * (len(HEADS) - 1)), *(each.cells() for each in self.rows)]
        table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
        return table + "".join(f"\n{note.replace('*', chr(92) + '*')}\n" for note in self.notes())

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": "bench",
            "quick": self.quick,
            "augmentation": self.augmentation,
            "test": self.test,
            "profile": self.profile,
            "rows": [each.to_json() for each in self.rows],
            "level": LEVEL,
            "vse_version": __version__,
            "files": [str(self.folder / name) for name in ("result.json", "table.md", PLOT)],
        }

    def save(self) -> None:
        """Write ``result.json``, ``table.md`` and the plots."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "table.md", self.markdown())
        plot_quality(self.rows).savefig(self.folder / PLOT, dpi=110)
        write_json(self.folder / "result.json", self.to_json())


def pairs_seen(trained: TrainedSeed) -> int:
    """Return how many pairs of an image and its caption a run was trained on, repeated ones included."""
    return trained.result.steps * trained.recipe.schedule.batch_size


def mean_interval(seeds: Sequence[MeasuredSeed]) -> Interval:
    """Return the interval of the mean rsum of several models over the same draws of test images."""
    values = np.mean([each.draws[:, RSUM] for each in seeds], axis=0)  # (samples,)
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Interval(low, high)


def plot_quality(rows: Sequence[SystemRow]) -> Figure:
    """Plot rsum with its interval against the seconds of training and of scoring, a point for each system."""
    figure, (training, scoring) = axes(("Quality against training", "Quality against scoring"), (12.5, 5.2))
    _plot_costs(training, rows, [row.training_seconds for row in rows], "processor seconds of training")
    _plot_costs(scoring, rows, [row.million_pairs for row in rows], "seconds of scoring a million pairs")
    training.set_ylabel("rsum on the test split", color=INK)
    return figure


def _plot_costs(axis: Any, rows: Sequence[SystemRow], costs: Sequence[float], label: str) -> None:
    for place, (row, cost) in enumerate(zip(rows, costs, strict=True)):
        low, high = row.interval.to_json()
        at = max(cost, 1e-6)  # zero has no place on a logarithmic axis
        colour = COLOURS[place % len(COLOURS)]
        axis.plot([at, at], [low, high], color=colour, linewidth=1, alpha=0.6)
        axis.plot([at], [row.rsum], "o", color=colour, markersize=6)
    axis.set_xscale("log")
    ticker: Any = require("matplotlib.ticker", extra="plot", purpose="the plots of an experiment")
    axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))  # 100, not a power of ten
    if max(costs) < 30 * max(min(costs), 1e-6):
        axis.xaxis.set_minor_formatter(ticker.LogFormatter(labelOnlyBase=False, minor_thresholds=(1.5, 0.5)))
    axis.margins(x=0.16)
    axis.set_xlabel(label, color=INK)
    axis.grid(color=GRID)
    _label(axis, [(row.label, max(cost, 1e-6), row.rsum) for row, cost in zip(rows, costs, strict=True)])


def _label(axis: Any, points: Sequence[tuple[str, float, float]]) -> None:
    """Write a name beside each point, from the lowest up, each above those that it would cover."""
    axis.figure.draw_without_rendering()  # fixes limits and sizes
    places = [axis.transData.transform((x, y)) * 72 / axis.figure.dpi for _, x, y in points]
    taken = [(x - 4, x + 4, y - 4) for x, y in places]  # left, right, bottom: of points, then of names as well
    for (name, x, y), place in sorted(zip(points, places, strict=True), key=lambda each: each[0][2]):
        left, bottom = place[0] + 7, place[1] - 3
        start, right = bottom, left + 6.5 * len(name)
        for other_left, other_right, other_bottom in sorted(taken, key=lambda each: each[2]):
            if left < other_right and other_left < right and abs(bottom - other_bottom) < LINE:
                bottom = other_bottom + LINE
        taken.append((left, right, bottom))
        shift = (7, bottom - start - 3)
        axis.annotate(name, (x, y), textcoords="offset points", xytext=shift, color=INK, fontsize=9)

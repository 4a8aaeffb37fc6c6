"""All systems on one dataset: retrieval quality against the costs of training and of scoring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vse._util.atomic import write_json, write_text
from vse._version import __version__
from vse.errors import InputError, require
from vse.evaluation.bootstrap import LEVEL, SAMPLES, Interval
from vse.experiments.grid.compare import RSUM, MeasuredSeed, Row, measure_grid, scoring_seconds
from vse.experiments.grid.plot import COLOURS, GRID, axes
from vse.experiments.grid.report import UNFINISHED, common_values, rows_of, train_for_test
from vse.experiments.image_table import RECIPE, VSE_PLUS_PLUS, prepare
from vse.experiments.plan import Call, Grid, Variant
from vse.models.storage import WEIGHTS, read_weights
from vse.pooling.plot import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYSTEMS = (
    Variant("UVS", RECIPE, (*VSE_PLUS_PLUS, 'loss.negatives="all"')),
    Variant("VSE++", RECIPE, VSE_PLUS_PLUS),
    Variant("VSE∞", RECIPE),
    Variant("SCO", f"{RECIPE}-sco"),
    Variant("GXN", f"{RECIPE}-gxn"),
    Variant("LIWE", f"{RECIPE}-liwe"),
    Variant("VSRN", f"{RECIPE}-vsrn"),
    Variant("CVSE", f"{RECIPE}-cvse"),
    Variant("DE", f"{RECIPE}-de"),
    Variant("SCAN t2i", f"{RECIPE}-scan-t2i"),
    Variant("SCAN i2t", f"{RECIPE}-scan-i2t"),
    Variant("IMRAM", f"{RECIPE}-imram"),
    Variant("CAAN", f"{RECIPE}-caan"),
)
"""Every system that ranks a whole split. The cross-encoder is none of them: it re-ranks another system's results."""
SEEDS = (0,)
HEADS = ("system", "rsum", "95 %", "seeds", "training, s", "parameters", "µs per pair")
PLOT = "quality.png"


@dataclass(frozen=True, eq=False)
class SystemRow:
    """The quality and the costs of one system.

    Attributes:
        row: its models, one for each seed.
        parameters: of a saved model, those that only training needs included.
        seconds_per_pair: processor time of encoding, scoring and ranking the test split, divided by its pairs; None if
            the split was ranked by a version that did not measure it.
    """

    row: Row
    parameters: int
    seconds_per_pair: float | None

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
        """The mean over seeds of the time of all steps, without evaluation."""
        return float(np.mean([each.trained.result.seconds for each in self.row.seeds]))

    def cells(self) -> list[str]:
        """Return the entries under :data:`HEADS`."""
        label = self.label + ("" if self.row.finished else UNFINISHED)
        low, high = self.interval.to_json()
        pair = "–" if self.seconds_per_pair is None else f"{1e6 * self.seconds_per_pair:.3g}"
        parameters = f"{self.parameters / 1e6:.2f} M"
        seeds = str(len(self.row.seeds))
        return [
            label,
            f"{self.rsum:.1f}",
            f"{low:.1f} to {high:.1f}",
            seeds,
            f"{self.training_seconds:.0f}",
            parameters,
            pair,
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
            "parameters": self.parameters,
            "seconds_per_million_pairs": None if self.seconds_per_pair is None else 1e6 * self.seconds_per_pair,
            "seeds": [
                {
                    "seed": each.trained.seed,
                    "folder": str(each.trained.result.folder),
                    "epochs": each.trained.result.epochs,
                    "training_seconds": each.trained.result.seconds,
                    "test": each.metrics.figures(),
                }
                for each in self.row.seeds
            ],
        }


@dataclass(frozen=True, eq=False)
class BenchResult:
    """All systems under the main protocol of the dataset.

    Attributes:
        rows: in the order of :data:`SYSTEMS`.
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

    def notes(self) -> list[str]:
        """Return what readers of the figures must know, one sentence each."""
        test = self.test
        notes = [
            f"Protocol {test['protocol']} on {test['data']} {test['split']}: {test['protocol_summary']}.",
            *(f"{remark[:1].upper()}{remark[1:]}." for remark in test["remarks"]),
            f"Intervals: {test['samples']} bootstrap samples of the test images, not of trainings.",
            "Training: wall-clock seconds of all steps of one run.",
            "Pair: processor time of encoding, scoring and ranking the split, divided by its pairs.",
        ]
        if not all(each.row.finished for each in self.rows):
            notes.append(f"{UNFINISHED} unfinished: rsum on dev was still rising at the end of a run.")
        return notes

    def markdown(self) -> str:
        """Return the table and its notes as Markdown."""
        lines = [HEADS, ("---", *["--:"] * (len(HEADS) - 1)), *(each.cells() for each in self.rows)]
        table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
        return table + "".join(f"\n{note.replace('*', chr(92) + '*')}\n" for note in self.notes())

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": "bench",
            "quick": self.quick,
            "test": self.test,
            "profile": self.profile,
            "rows": [each.to_json() for each in self.rows],
            "level": LEVEL,
            "vse_version": __version__,
            "files": [str(self.folder / name) for name in ("result.json", "table.md", PLOT)],
        }

    def save(self) -> None:
        """Write ``result.json``, ``table.md`` and the plot."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "table.md", self.markdown())
        plot_quality(self.rows).savefig(self.folder / PLOT, dpi=110)
        write_json(self.folder / "result.json", self.to_json())


def mean_interval(seeds: Sequence[MeasuredSeed]) -> Interval:
    """Return the interval of the mean rsum of several models over the same draws of test images."""
    values = np.mean([each.draws[:, RSUM] for each in seeds], axis=0)  # (samples,)
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Interval(low, high)


def count_parameters(model: Path) -> int:
    """Return the number of values in the tensors of a saved model."""
    tensors, _ = read_weights(model / WEIGHTS)
    return sum(each.numel() for each in tensors.values())


def plot_quality(rows: Sequence[SystemRow]) -> Figure:
    """Plot rsum with its interval against the seconds of training, one labelled point for each system."""
    figure, axis = axes("Quality against the cost of training", (7.6, 4.6))
    for place, row in enumerate(rows):
        low, high = row.interval.to_json()
        at = max(row.training_seconds, 1e-3)  # zero has no place on a logarithmic axis
        colour = COLOURS[place % len(COLOURS)]
        axis.plot([at, at], [low, high], color=colour, linewidth=1, alpha=0.6)
        axis.plot([at], [row.rsum], "o", color=colour, markersize=6)
        shift = (7, 4)
        axis.annotate(row.label, (at, row.rsum), textcoords="offset points", xytext=shift, color=INK, fontsize=9)
    axis.set_xscale("log")
    ticker: Any = require("matplotlib.ticker", extra="plot", purpose="the plots of an experiment")
    axis.xaxis.set_major_formatter(ticker.LogFormatter())  # 100, not a power of ten
    axis.xaxis.set_minor_formatter(ticker.LogFormatter(labelOnlyBase=False, minor_thresholds=(1.5, 0.5)))
    axis.margins(x=0.14)
    axis.set_xlabel("seconds of training", color=INK)
    axis.set_ylabel("rsum on the test split", color=INK)
    axis.grid(color=GRID)
    return figure


def run(call: Call) -> BenchResult:
    """Train every system on one dataset, rank its test split, and write quality and costs into ``call.out``.

    Raises:
        InputError: a recipe was given, or a row is unknown.
    """
    if call.recipe is not None:
        raise InputError(f"--recipe {call.recipe}: bench trains the recipes {RECIPE}-*: leave it out, or use --row")
    grid = Grid("bench", "All systems", SYSTEMS)
    if call.rows:
        grid = grid.restricted_to(call.rows)
    grid = Grid(grid.name, grid.title, grid.variants, changes=prepare(call).changes)
    where, trained = train_for_test(grid, call.chosen_seeds(SEEDS), call)
    main = where.protocols[0]
    rows = rows_of(grid, measure_grid(trained, where, call.report)[main.name])
    pairs = where.test.items * where.test.positives.candidates
    systems = []
    for row in rows:
        spent = [scoring_seconds(each.trained, where) for each in row.seeds]
        known = [each for each in spent if each is not None]
        cost = float(np.mean(known)) / pairs if known else None
        systems.append(SystemRow(row, count_parameters(row.seeds[0].trained.result.model), cost))
    about = where.about(main, SAMPLES)
    result = BenchResult(tuple(systems), about, common_values(rows), call.out, call.quick)
    result.save()
    return result

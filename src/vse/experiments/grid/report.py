"""Run a plan to its result: the table, the claims, and the files they are written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vse._util.atomic import write_json, write_text
from vse._version import __version__
from vse.data.dataset import IMAGES, VIDEOS
from vse.errors import InputError
from vse.evaluation.bootstrap import LEVEL, SAMPLES
from vse.evaluation.report import COLUMNS, heads_of
from vse.experiments.grid.compare import (
    Contrast,
    MeasuredSeed,
    Row,
    TestSplit,
    TrainedSeed,
    contrast,
    measure_grid,
    recipe_of,
    still_rising,
    train_grid,
)
from vse.experiments.grid.plot import dev_curve, plot_dev, plot_seeds
from vse.experiments.plan import Call, Grid
from vse.training.recipe import flat

UNFINISHED = "*"
"""Marks a row whose dev score was still rising."""
ROW_HEADS = ("", "augmentation", "seeds")
MIXED = " (pooling and augmentation together)"
"""Marks a claim about poolings whose rows also differ in augmentation."""


@dataclass(frozen=True)
class GridResult:
    """The result of a plan under one protocol.

    Attributes:
        grid: the plan.
        rows: of the table.
        contrasts: the claims.
        test: what was ranked, and by which protocol.
        profile: the values that all recipes share.
        folder: where it is written.
        quick: whether training was shortened.
        further: the same models under further protocols of the dataset.
    """

    grid: Grid
    rows: tuple[Row, ...]
    contrasts: tuple[Contrast, ...]
    test: dict[str, Any]
    profile: dict[str, Any]
    folder: Path
    quick: bool = False
    further: tuple[GridResult, ...] = ()

    @property
    def heads(self) -> tuple[str, ...]:
        """The columns of figures."""
        return heads_of(VIDEOS if self.test["videos"] else IMAGES)

    @property
    def training_seconds(self) -> float:
        """The sum over all runs."""
        return sum(each.trained.result.seconds for row in self.rows for each in row.seeds)

    def panels(self) -> list[tuple[str, list[Row]]]:
        """Return the rows of each panel, in the order of the plan."""
        names = dict.fromkeys(row.variant.panel for row in self.rows)
        return [(name, [row for row in self.rows if row.variant.panel == name]) for name in names]

    def cells(self, row: Row) -> list[str]:
        """Return label, augmentation, seeds and figures; rsum with its deviation."""
        figures = [f"{row.mean[name]:.1f}" for name in COLUMNS]
        if row.deviation is not None:
            figures[-1] += f" ± {row.deviation['rsum']:.1f}"
        label = row.variant.label + ("" if row.finished else UNFINISHED)
        return [label, augmentation_text(row.augmentation), str(len(row.seeds)), *figures]

    def describe_test(self) -> str:
        """Return the protocol and the split in one sentence, with what readers must know about them."""
        test = self.test
        notes = "".join(f"; {remark}" for remark in test["remarks"])
        return f"Protocol {test['protocol']} on {test['data']} {test['split']}: {test['protocol_summary']}{notes}."

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": self.grid.name,
            "title": self.grid.title,
            "quick": self.quick,
            "test": self.test,
            "profile": self.profile,
            **self._figures_json(),
            "further": [{"test": each.test, **each._figures_json()} for each in self.further],
            "level": LEVEL,
            "training_seconds": self.training_seconds,
            "vse_version": __version__,
            "files": [str(self.folder / name) for name in ("result.json", "table.md", "seeds.png", "dev.png")],
        }

    def _figures_json(self) -> dict[str, Any]:
        return {
            "rows": [self._row_json(row) for row in self.rows],
            "claims": [each.to_json() for each in self.contrasts],
        }

    def markdown(self) -> str:
        """Return the tables of rows and of claims as Markdown, under each protocol."""
        lines = [_line((*ROW_HEADS, *self.heads)), _line(("---",) * 3 + ("--:",) * len(self.heads))]
        for panel, rows in self.panels():
            lines += [_line([f"**{panel}**", *[""] * (len(self.heads) + 2)])] if panel else []
            lines += [_line(self.cells(row)) for row in rows]
        lines += ["", self.describe_test()]
        if not all(row.finished for row in self.rows):
            lines += ["", f"\\{UNFINISHED} unfinished: rsum on dev was still rising at the end of a run."]
        if self.contrasts:
            lines += ["", _line(("claim", "difference in rsum", "95 %", "seed by seed", "")), _line(("---",) * 5)]
            lines += [_line(contrast_cells(each)) for each in self.contrasts]
        return "\n".join(lines) + "\n" + "".join(f"\n{each.markdown()}" for each in self.further)

    def save(self) -> None:
        """Write ``result.json``, ``table.md`` and the plots."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "table.md", self.markdown())
        plot_seeds(self.rows, self.grid.title).savefig(self.folder / "seeds.png", dpi=130)
        plot_dev(self.rows, self.grid.title).savefig(self.folder / "dev.png", dpi=130)
        write_json(self.folder / "result.json", self.to_json())

    def _row_json(self, row: Row) -> dict[str, Any]:
        return {
            "label": row.variant.label,
            "recipe": row.variant.recipe,
            "changes": list(row.variant.changes),
            "augmentation": row.augmentation,
            "mean": row.mean,
            "deviation": row.deviation,
            "finished": row.finished,
            "seeds": [
                {
                    "seed": each.trained.seed,
                    "folder": str(each.trained.result.folder),
                    "best_epoch": each.trained.result.best["epoch"] + 1,
                    "dev_rsum": each.trained.result.best["rsum"],
                    "still_rising": rising,
                    "test": each.metrics.figures(),
                }
                for each, rising in zip(row.seeds, row.rising, strict=True)
            ],
        }


def augmentation_text(values: dict[str, Any]) -> str:
    """Return the size augmentation of images and of words.

    >>> augmentation_text({"image": "drop", "text": "released", "rate": 0.2})
    'drop + released'
    >>> augmentation_text({"image": "none", "text": "none", "rate": 0.2})
    'none'
    """
    image, text = values["image"], values["text"]
    return "none" if image == text == "none" else f"{image} + {text}"


def contrast_cells(each: Contrast) -> tuple[str, ...]:
    """Return claim, difference, interval, differences by seed, and verdict as text."""
    claim = each.claim.text + (MIXED if each.mixed else "")
    claim += f" ({each.claim.remark})" if each.claim.remark else ""
    seeds = ", ".join(f"{value:+.1f}" for value in each.by_seed)
    interval = f"{each.interval.low:+.1f} to {each.interval.high:+.1f}"
    return (claim, f"{each.value:+.1f}", interval, seeds, each.verdict)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def run_grid(grid: Grid, seeds: Sequence[int], call: Call) -> GridResult:
    """Train and measure what is missing, compare, and write the result into ``call.out``.

    The test split is used once, with the model that dev has selected in each run.
    """
    if call.rows:
        grid = grid.restricted_to(call.rows)
    where, trained = train_for_test(grid, seeds, call)
    grid = grid.decided(mean_dev(trained))
    found = measure_grid(trained, where, call.report)
    results = []
    for protocol in where.protocols:
        rows = rows_of(grid, found[protocol.name])
        called = {row.variant.label: row for row in rows}
        contrasts = tuple(contrast(claim, called[claim.better], called[claim.worse]) for claim in grid.claims)
        about = where.about(protocol, SAMPLES)
        results.append(GridResult(grid, rows, contrasts, about, common_values(rows), call.out, call.quick))
    return save_result(results)


def train_for_test(grid: Grid, seeds: Sequence[int], call: Call) -> tuple[TestSplit, list[TrainedSeed]]:
    """Open the test split, which may be missing, before the hours of training; then train every row."""
    if not seeds:
        raise InputError("seeds is empty; give at least one")
    where = TestSplit.of(recipe_of(grid, grid.variants[0], seeds[0]), call.protocol, call.split)
    return where, train_grid(grid, seeds, call.runs_folder, jobs=call.jobs, report=call.report)


def mean_dev(trained: Sequence[TrainedSeed]) -> dict[str, float]:
    """Return the mean rsum on dev over the seeds of each row, by its label."""
    found: dict[str, list[float]] = {}
    for each in trained:
        found.setdefault(each.variant.label, []).append(float(each.result.best["rsum"]))
    return {label: sum(values) / len(values) for label, values in found.items()}


def save_result(results: Sequence[GridResult]) -> GridResult:
    """Return the first result with the others as its further protocols, and write it."""
    first, *others = results
    result = replace(first, further=tuple(others))
    result.save()
    return result


def rows_of(grid: Grid, measured: Sequence[MeasuredSeed]) -> tuple[Row, ...]:
    """Group the models by variant."""
    rows = []
    for variant in grid.variants:
        own = tuple(each for each in measured if each.trained.variant == variant)
        rows.append(Row(variant, own, tuple(still_rising(dev_curve(each.trained.result.folder)) for each in own)))
    return tuple(rows)


def common_values(rows: Sequence[Row]) -> dict[str, object]:
    """Return the values of the recipes that are equal in all runs."""
    recipes = [flat(each.trained.recipe.identity()) for row in rows for each in row.seeds]
    first, *others = recipes
    return {
        key: value
        for key, value in first.items()
        if value not in (None, {}) and all(each.get(key) == value for each in others)
    }

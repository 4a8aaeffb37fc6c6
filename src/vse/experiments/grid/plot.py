"""Plots of a grid: every seed on the test split, and the curves on dev."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vse.errors import require
from vse.experiments.grid.compare import RSUM, Row
from vse.pooling.plot import INK
from vse.training.log import read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#a3263b", "#12665c", "#3b5fb0", "#b7791f", "#6b4fa0", "#5c6675", "#2a9d8f", "#c2588b", "#7a8b3c", "#444c5c")
GRID = "#e6e9ef"


def plot_seeds(rows: Sequence[Row], title: str) -> Figure:
    """Plot the rsum of every row: seeds as dots, their mean as a bar."""
    figure, axis = axes(title, (7.6, 1.2 + 0.42 * len(rows)))
    for place, row in enumerate(rows):
        colour = COLOURS[place % len(COLOURS)]
        values = row.figures[:, RSUM]
        axis.plot([values.mean()] * 2, [place - 0.3, place + 0.3], color=colour, linewidth=2.5)
        axis.plot(values, [place] * len(values), "o", color=colour, markersize=5, alpha=0.75)
        axis.annotate(
            f"{values.mean():.1f}",
            (values.max(), place),
            textcoords="offset points",
            xytext=(9, 0),
            va="center",
            color=INK,
            fontsize=9,
        )
    axis.margins(x=0.14)
    axis.set_yticks(range(len(rows)), [row.variant.label + ("" if row.finished else " *") for row in rows])
    axis.invert_yaxis()
    axis.set_xlabel("rsum on the test split", color=INK)
    axis.grid(axis="x", color=GRID)
    return figure


def plot_dev(rows: Sequence[Row], title: str) -> Figure:
    """Plot the rsum on dev after each epoch: the mean over seeds as a line, their range as a band."""
    figure, axis = axes(title, (7.6, 4.4))
    for place, row in enumerate(rows):
        runs = [dev_curve(each.trained.result.folder) for each in row.seeds]
        length = min(map(len, runs))
        if not length:
            continue
        curves, epochs = np.array([run[:length] for run in runs]), np.arange(1, length + 1)
        colour = COLOURS[place % len(COLOURS)]
        axis.plot(epochs, curves.mean(axis=0), color=colour, linewidth=1.8, label=row.variant.label)
        axis.fill_between(epochs, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel("epoch", color=INK)
    axis.set_ylabel("rsum on dev", color=INK)
    axis.grid(color=GRID)
    axis.legend(frameon=False, fontsize=9, labelcolor=INK, ncols=1 + len(rows) // 8)
    return figure


def dev_curve(folder: Any) -> list[float]:
    """Return the rsum on dev after each epoch of a run."""
    return [line["dev"]["rsum"] for line in read_metrics(folder) if line["kind"] == "epoch"]


def axes(title: str | tuple[str, ...], size: tuple[float, float]) -> tuple[Figure, Any]:
    """Return an empty figure of a size in inches, and its axes; with several titles, an array of axes side by side."""
    module: Any = require("matplotlib.figure", extra="plot", purpose="the plots of an experiment")
    figure: Figure = module.Figure(figsize=size, layout="constrained", facecolor="white")
    titles = (title,) if isinstance(title, str) else title
    panels: Any = figure.subplots(1, len(titles), sharey=True, squeeze=False)[0]
    for axis, text in zip(panels, titles, strict=True):
        axis.set_title(text, color=INK, fontweight="bold", fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=9, colors=INK)
        axis.set_axisbelow(True)
    return figure, panels[0] if isinstance(title, str) else panels

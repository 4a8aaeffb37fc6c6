"""The picture of the synthetic experiment: true against learned coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vse.errors import require
from vse.experiments.synthetic_task import CURVE_SIZES, MAIN_DESIGN, PATTERNS, SIZE_RANGES, Outcome
from vse.pooling import create_pooling
from vse.pooling.plot import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Outcomes = Mapping[tuple[str, str], list[Outcome]]
"""The trained GPOs of each design and pattern, one per seed."""
COLOURS = {
    "Index + Interp.": "#e9a23b",
    "Cos/Sin + MLP": "#2a9d8f",
    "Index + BiGRU": "#6c8ebf",
    "Cos/Sin + BiGRU": "#d1495b",
}


def plot_curves(outcomes: Outcomes) -> Figure:
    """One row per pattern, one column per set size; the first seed of every design over the true coefficients."""
    figure_module: Any = require("matplotlib.figure", extra="plot", purpose="the plot of vse experiment synthetic")
    rows, columns = len(PATTERNS), len(CURVE_SIZES)
    figure: Figure = figure_module.Figure(figsize=(4.0 * columns, 1.9 * rows + 0.8), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for row, (pattern, (name, options)) in enumerate(PATTERNS.items()):
        true: Any = create_pooling(name, **options)
        for column, size in enumerate(CURVE_SIZES):
            _panel(axes[row][column], outcomes, pattern, size, true.coefficients(size))
            if row == 0:
                seen = "seen" if size in SIZE_RANGES["seen"] else "never seen"
                axes[row][column].set_title(f"set of {size} ({seen} in training)", fontsize=10, color=INK)
        axes[row][0].set_ylabel(pattern, fontsize=11, color=INK, fontweight="bold")
    for axis in axes[-1]:
        axis.set_xlabel("rank (1 = largest value)", fontsize=9, color=INK)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    figure.suptitle("Coefficients learned from pooled outputs alone", color=INK, fontweight="bold")
    return figure


def _panel(axis: Any, outcomes: Outcomes, pattern: str, size: int, true: Any) -> None:
    ranks = range(1, size + 1)
    axis.bar(ranks, true, width=1.0, color="#c9d0dc", label="true pooling")
    for design, colour in COLOURS.items():
        curve = outcomes[design, pattern][0].curves[str(size)]
        main = design == MAIN_DESIGN
        axis.plot(ranks, curve, color=colour, linewidth=2.0 if main else 1.1, label=design, zorder=3 if main else 2)
    top = max(float(true.max()), *outcomes[MAIN_DESIGN, pattern][0].curves[str(size)])
    axis.set_ylim(0, top * 1.25)
    axis.tick_params(labelsize=8, colors=INK)
    axis.spines[["top", "right"]].set_visible(False)

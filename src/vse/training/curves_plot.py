"""Plot one or several training runs: loss, spread of the embeddings, recall on dev."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vse.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1f2a44"
GRID = "#e6e9ef"
LINES = ("#a3263b", "#12665c", "#3b5fb0", "#b7791f", "#6b4fa0", "#5c6675")
SMOOTHING = 60  # a line has about this many points, each the mean of the steps around it

Lines = Sequence[dict[str, Any]]


def plot_training(runs: Mapping[str, Lines], *, title: str | None = None) -> Figure:
    """Plot runs over epochs, so that runs with other batch sizes can be compared.

    Args:
        runs: name → lines of its ``metrics.jsonl``.
        title: above the plots.
    """
    module: Any = require("matplotlib.figure", extra="plot", purpose="plots of training curves")
    figure: Figure = module.Figure(figsize=(12.4, 3.9), layout="constrained", facecolor="white")
    axes: Any = figure.subplots(1, 3)
    for (name, lines), colour in zip(runs.items(), LINES * (1 + len(runs) // len(LINES)), strict=False):
        steps = [line for line in lines if line["kind"] == "step"]
        epochs = [line for line in lines if line["kind"] == "epoch"]
        if not steps or not epochs:
            continue
        per_epoch = epochs[0]["step"] / (epochs[0]["epoch"] + 1)
        for axis, key in zip(axes[:2], ("loss", "spread"), strict=True):
            x, y = _smooth([line["step"] / per_epoch for line in steps], [line[key] for line in steps])
            axis.plot(x, y, color=colour, linewidth=1.6, label=name)
        ends = [line["epoch"] + 1 for line in epochs]
        axes[2].plot(ends, [line["dev"]["rsum"] for line in epochs], "o-", color=colour, markersize=4, label=name)
        best = max(epochs, key=lambda line: line["dev"]["rsum"])
        axes[2].annotate(
            f"{best['dev']['rsum']:.1f}",
            (best["epoch"] + 1, best["dev"]["rsum"]),
            textcoords="offset points",
            xytext=(0, 6),
            ha="center",
            color=colour,
            fontsize=8,
        )
        if any("dev_averaged" in line for line in epochs):
            averaged = [line["dev_averaged"]["rsum"] for line in epochs]
            axes[2].plot(ends, averaged, ":", color=colour, label=f"{name}, averaged weights")
        for event in (line for line in lines if line["kind"] == "event"):
            axes[1].axvline(event["step"] / per_epoch, color=colour, linestyle=":", linewidth=1)
    _label(axes)
    if title:
        figure.suptitle(title, color=INK, fontsize=11)
    return figure


def _label(axes: Any) -> None:
    titles = ("loss of a batch", "spread: 1 − mean cosine of different images", "rsum on dev")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, color=INK, fontsize=10, loc="left")
        axis.set_xlabel("epoch", color=INK)
        axis.grid(color=GRID)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.02, y=0.12)
    values = [value for line in axes[0].get_lines() for value in line.get_ydata() if value > 0]
    if values and max(values) > 20 * min(values):
        axes[0].set_yscale("log")
    axes[1].set_ylim(bottom=0)
    if axes[2].get_lines():
        axes[2].legend(frameon=False, fontsize=8, loc="lower right")


def _smooth(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float]]:
    """Average neighbouring steps."""
    parts = min(SMOOTHING, len(x))
    return (
        [float(part.mean()) for part in np.array_split(np.asarray(x, dtype=float), parts)],
        [float(part.mean()) for part in np.array_split(np.asarray(y, dtype=float), parts)],
    )

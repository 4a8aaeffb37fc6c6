"""Plot a model's pooling curves, for its card and ``vse inspect --plot``. No torch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, get_args

from vse.errors import InputError, require
from vse.models.curves import PoolingCurve, Tower

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
# The colours of vse.pooling.plot, written again because importing that file loads torch.
INK = "#1f2a44"
GRID = "#e6e9ef"
REFERENCE = "#aab2c0"
SHADES: dict[Tower, tuple[str, str]] = {"image": ("#f2b8a0", "#a3263b"), "text": ("#9fd8cf", "#12665c")}
"""The colours of the smallest and of the largest set; those between are mixed."""
DOTS_PER_INCH = 130
MARKED = 24  # sets up to this size get a dot at each rank


def plot_curves(curves: Sequence[PoolingCurve], path: Path) -> Path:
    """Plot the curves into ``path`` (.png, .svg or .pdf), atomically; the folder is created if needed."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{path}: unknown kind of figure {path.suffix!r}: the name must end in one of {', '.join(SUFFIXES)}"
        )
    figure = draw_curves(curves)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".drawing-", dir=path.parent) as folder:
        drawn = Path(folder) / path.name
        figure.savefig(drawn, dpi=DOTS_PER_INCH)  # a standalone Figure uses the canvas for the suffix
        drawn.replace(path)
    return path


def draw_curves(curves: Sequence[PoolingCurve]) -> Figure:
    """Return a figure with a panel for each tower and a line for each set size.

    The rank is shown as a fraction of the set, ``(k - 1/2) / N``, and the weight relative to the average's,
    ``N theta_k / sum |theta|``: average pooling is the line at 1 for every size, max pooling the left edge.
    """
    if not any(curve.coefficients for curve in curves):
        notes = "; ".join(f"{curve.tower}: {curve.note}" for curve in curves)
        raise InputError(f"these poolings have no curve to draw ({notes or 'none was given'})")
    module: Any = require("matplotlib.figure", extra="plot", purpose="the figure of pooling curves")
    figure: Figure = module.Figure(figsize=(10.4, 4.8), layout="constrained", facecolor="white")
    panels = figure.subplots(1, 2)
    for axis, tower in zip(panels, get_args(Tower), strict=True):
        _panel(axis, tower, [curve for curve in curves if curve.tower == tower])
    return figure


def _panel(axis: Any, tower: Tower, curves: Sequence[PoolingCurve]) -> None:
    name = f": {curves[0].pooling}" if curves else ""
    axis.set_title(f"{tower.capitalize()} pooling{name}", color=INK, fontsize=12, fontweight="bold", loc="left")
    axis.tick_params(labelsize=8.5, colors=INK, length=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(REFERENCE)
    drawn = [curve for curve in curves if curve.coefficients]
    if not drawn:
        note = (curves[0].note if curves else None) or "not recorded"
        axis.text(0.02, 0.9, fill(note, 52), ha="left", va="top", color=INK, fontsize=10, transform=axis.transAxes)
        axis.set(xticks=[], yticks=[])
        axis.spines[["left", "bottom"]].set_visible(False)
        return
    for place, curve in enumerate(drawn):
        size = len(curve.coefficients)
        axis.plot(
            [(rank + 0.5) / size for rank in range(size)],
            _heights(curve),
            color=_mix(*SHADES[tower], place / max(1, len(drawn) - 1)),
            linewidth=1.9,
            marker="o" if size <= MARKED else None,
            markersize=3.2,
            label=f"set of {size}  ({curve.nearest.label if curve.nearest else ''})",
            zorder=3 + place,
        )
    _references(axis, drawn)
    axis.set_xlim(0, 1)
    ticks = axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["largest", "25 %", "50 %", "75 %", "smallest"])
    for tick, side in ((ticks[0], "left"), (ticks[-1], "right")):
        tick.label1.set_horizontalalignment(side)
    axis.set_xlabel("rank, as a share of the set", fontsize=9.5, color=INK)
    axis.set_ylabel("weight (1 = that of the average)", fontsize=9.5, color=INK)
    axis.grid(axis="y", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    # Below the panel: a learned curve may rise anywhere inside it.
    legend = axis.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncols=2,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        title="mean over dimensions" if drawn[0].per_dimension else None,
        title_fontsize=9,
    )
    legend.get_title().set_color(INK)


def _references(axis: Any, curves: Sequence[PoolingCurve]) -> None:
    """Draw average and max pooling in grey; the panel is scaled to the curves, which max pooling would flatten."""
    values = [height for curve in curves for height in _heights(curve)]
    high, low = max(2.0, *values), min(0.0, *values)
    margin = 0.06 * (high - low)
    axis.set_ylim(low - (margin if low < 0 else 0), high + margin)
    axis.axhline(1, color=REFERENCE, linewidth=1.3, linestyle="--", zorder=2)
    axis.axvline(0, color=REFERENCE, linewidth=5, zorder=2)
    style = {"color": "#7f8899", "fontsize": 8.5, "zorder": 2}
    axis.annotate("average", (1, 1), (-3, 3), textcoords="offset points", ha="right", va="bottom", **style)
    axis.annotate("max", (0, 1), (6, -2), xycoords="axes fraction", textcoords="offset points", va="top", **style)


def _heights(curve: PoolingCurve) -> list[float]:
    """Return the weights relative to the average's."""
    unit = sum(map(abs, curve.coefficients)) / len(curve.coefficients)
    return [weight / unit for weight in curve.coefficients]


def _mix(first: str, last: str, share: float) -> str:
    """Return a colour between two, as ``#rrggbb``."""
    pairs = [(int(first[i : i + 2], 16), int(last[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)

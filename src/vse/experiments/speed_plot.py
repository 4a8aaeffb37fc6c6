"""The picture of the speed experiment, after the paper's Figure 3: time of a query over the number of candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vse.errors import require
from vse.experiments.speed_profile import Contestant
from vse.experiments.speed_times import QueryTime, rounded
from vse.pooling.plot import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS: dict[Contestant, str] = {"vse-bert": "#2a9d8f", "vse-bigru": "#6c8ebf", "cross-encoder": "#d1495b"}


def plot_times(
    times: Sequence[QueryTime],
    ratio: Callable[[int], float],
    labels: Mapping[Contestant, str],
    warning: str | None = None,
) -> Figure:
    """Both axes logarithmic; what was continued is dashed, with open marks. ``ratio(size)`` stands in two places.

    A ``warning`` stands above it all, so that the picture cannot be shown without it.
    """
    figure_module: Any = require("matplotlib.figure", extra="plot", purpose="the plot of vse experiment speed")
    figure: Figure = figure_module.Figure(figsize=(7.6, 4.8), layout="constrained")
    axis = figure.subplots()
    axis.set(xscale="log", yscale="log")
    for scale in (axis.xaxis, axis.yaxis):  # plain numbers: powers of ten would ask for mathematical fonts
        scale.set_major_formatter(lambda value, _: f"{value:,g}")
        scale.set_minor_formatter(lambda value, _: "")
    for contestant, label in labels.items():
        own = sorted((time for time in times if time.contestant == contestant), key=lambda time: time.candidates)
        _curve(axis, own, COLOURS[contestant], label)
    crossing = [time for time in times if time.contestant == "cross-encoder"]
    plain = {time.candidates: time.seconds for time in times if time.contestant == "vse-bert"}
    for measured in (True, False):
        last = max((time for time in crossing if time.measured is measured), key=lambda time: time.candidates)
        _gap(axis, last, plain[last.candidates], f"{rounded(ratio(last.candidates))} ×")
    axis.set_xlabel("candidate pictures", fontsize=10, color=INK)
    axis.set_ylabel("seconds for one text query", fontsize=10, color=INK)
    axis.set_title("Time to find pictures for a sentence", color=INK, fontweight="bold")
    if warning is not None:
        figure.suptitle(warning, fontsize=9, color=COLOURS["cross-encoder"])
    axis.tick_params(labelsize=9, colors=INK)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color="#e6e9ef", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.legend(loc="upper left", frameon=False, fontsize=9, labelcolor=INK)
    return figure


def _curve(axis: Any, times: Sequence[QueryTime], colour: str, label: str) -> None:
    known = [time for time in times if time.measured]
    rest = [time for time in times if not time.measured]
    points = ([time.candidates for time in known], [time.seconds for time in known])
    axis.plot(*points, color=colour, linewidth=2.0, marker="o", markersize=5, label=label, zorder=3)
    if rest:
        line = [known[-1], *rest]
        points = ([time.candidates for time in line], [time.seconds for time in line])
        style = {"linestyle": "--", "marker": "o", "markerfacecolor": "white", "markersize": 5}
        axis.plot(*points, color=colour, linewidth=1.6, label=f"{label}, continued, not measured", zorder=2, **style)


def _gap(axis: Any, upper: QueryTime, lower: float, text: str) -> None:
    ends = {"xy": (upper.candidates, upper.seconds), "xytext": (upper.candidates, lower)}
    axis.annotate(
        "", **ends, arrowprops={"arrowstyle": "<->", "color": INK, "linewidth": 0.9, "shrinkA": 5, "shrinkB": 5}
    )
    middle = (upper.seconds * lower) ** 0.5
    note = text if upper.measured else f"{text}\n(continued)"
    place = {"textcoords": "offset points", "xytext": (-6, 0), "ha": "right", "va": "center"}
    axis.annotate(note, (upper.candidates, middle), fontsize=9, color=INK, **place)

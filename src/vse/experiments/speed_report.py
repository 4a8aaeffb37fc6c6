"""The result of the speed experiment: the time of one query, and how many times more a cross-encoder takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse._util.atomic import write_json, write_text
from vse.errors import require
from vse.experiments.speed_profile import (
    CONTESTANTS,
    Contestant,
    Outcomes,
    Profile,
    QueryTime,
    largest_deviation,
    query_times,
    rounded,
    seconds_per_candidate,
)
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
    """Plot times on logarithmic axes; extrapolated times are dashed, with open marks.

    Args:
        times: of all contestants.
        ratio: of the cross-encoder to VSE for a size, shown at two sizes.
        labels: of the contestants.
        warning: shown above the plot.
    """
    figure_module: Any = require("matplotlib.figure", extra="plot", purpose="the plot of vse experiment speed")
    figure: Figure = figure_module.Figure(figsize=(7.6, 4.8), layout="constrained")
    axis = figure.subplots()
    axis.set(xscale="log", yscale="log")
    for scale in (axis.xaxis, axis.yaxis):  # plain numbers: powers of ten would need mathematical fonts
        scale.set_major_formatter(lambda value, _: f"{value:,g}")
        scale.set_minor_formatter(lambda value, _: "")
    for contestant, label in labels.items():
        points = sorted((time for time in times if time.contestant == contestant), key=lambda time: time.candidates)
        _curve(axis, points, COLOURS[contestant], label)
    crossing = [time for time in times if time.contestant == "cross-encoder"]
    plain = {time.candidates: time.seconds for time in times if time.contestant == "vse-bert"}
    for measured in (True, False):
        last = max((time for time in crossing if time.measured is measured), key=lambda time: time.candidates)
        _gap(axis, last, plain[last.candidates], f"{rounded(ratio(last.candidates))} ×")
    axis.set_xlabel("candidate images", fontsize=10, color=INK)
    axis.set_ylabel("seconds for one text query", fontsize=10, color=INK)
    axis.set_title("Time to find images for a sentence", color=INK, fontweight="bold")
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
        axis.plot(*points, color=colour, linewidth=1.6, label=f"{label}, extrapolated, not measured", zorder=2, **style)


def _gap(axis: Any, upper: QueryTime, lower: float, text: str) -> None:
    ends = {"xy": (upper.candidates, upper.seconds), "xytext": (upper.candidates, lower)}
    axis.annotate(
        "", **ends, arrowprops={"arrowstyle": "<->", "color": INK, "linewidth": 0.9, "shrinkA": 5, "shrinkB": 5}
    )
    middle = (upper.seconds * lower) ** 0.5
    note = text if upper.measured else f"{text}\n(extrapolated)"
    place = {"textcoords": "offset points", "xytext": (-6, 0), "ha": "right", "va": "center"}
    axis.annotate(note, (upper.candidates, middle), fontsize=9, color=INK, **place)


MAIN: Contestant = "vse-bert"
STRAIGHT = 0.1
"""The largest relative deviation of measured times for which the line counts as straight."""
QUICK_WARNING = "This was the quick version: networks far too small for times that mean anything"


@dataclass(frozen=True)
class SpeedResult:
    """All times of one run, and the ``machine`` on which they were measured."""

    profile: Profile
    quick: bool
    seeds: tuple[int, ...]
    machine: dict[str, Any]
    outcomes: Outcomes
    folder: Path

    @cached_property
    def times(self) -> dict[tuple[Contestant, int], QueryTime]:
        """By contestant and number of candidates."""
        return {(time.contestant, time.candidates): time for time in query_times(self.outcomes, self.profile)}

    @property
    def warning(self) -> str | None:
        """The warning to show with the figures, if any."""
        return QUICK_WARNING if self.quick else None

    def ratio(self, size: int, contestant: Contestant = MAIN) -> float:
        """Return how many times longer the cross-encoder takes with ``size`` candidates."""
        return self.times["cross-encoder", size].seconds / self.times[contestant, size].seconds

    def ratio_line(self) -> str:
        """Return the two ratios that matter: the last that was measured, and the one at the largest size."""
        last, largest = self.profile.cross_sizes[-1], self.profile.sizes[-1]
        return (
            f"{self.profile.labels[MAIN]} is {rounded(self.ratio(last))} times faster than V+L BERT at {last:,} "
            f"candidates (measured) and {rounded(self.ratio(largest))} times at {largest:,} (extrapolated, not "
            "measured)"
        )

    def to_json(self) -> dict[str, Any]:
        line = self._medians()
        return {
            "experiment": "speed",
            "quick": self.quick,
            "warning": self.warning,
            "profile": {**asdict(self.profile), "cross_repetitions": dict(self.profile.cross_repetitions)},
            "seeds": list(self.seeds),
            "machine": self.machine,
            "statistic": "seconds of one text query, median of the repetitions",
            "table": [asdict(time) for time in self.times.values()],
            "line": {
                "seconds_per_candidate": seconds_per_candidate(line),
                "fitted_to": list(line),
                "largest_deviation": largest_deviation(line),
            },
            "cross_encoder_over_vse": [
                {
                    "contestant": name,
                    "candidates": size,
                    "times": self.ratio(size, name),
                    "measured": self.times["cross-encoder", size].measured,
                }
                for name in CONTESTANTS
                if name != "cross-encoder"
                for size in self.profile.sizes
            ],
            "outcomes": [
                {"contestant": name, "candidates": size, **asdict(outcome)}
                for (name, size), outcomes in self.outcomes.items()
                for outcome in outcomes
            ],
            "files": [str(self.folder / name) for name in ("result.json", "table.md", "speed.png")],
        }

    def markdown(self) -> str:
        """Return the table for the documentation, and the sentences that belong to it."""
        header, *rows = self.rows()
        lines = [header, ["--:"] * len(header), *rows]
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        warning = [f"**{self.warning}.**"] if self.warning is not None else []
        return "\n\n".join([*warning, table, *(f"{text}." for text in self.sentences())]) + "\n"

    def plot(self) -> Figure:
        """Return the table as curves."""
        return plot_times(list(self.times.values()), self.ratio, self.profile.labels, self.warning)

    def save(self) -> None:
        """Write ``result.json``, ``table.md`` and ``speed.png``."""
        write_json(self.folder / "result.json", self.to_json())
        write_text(self.folder / "table.md", self.markdown())
        self.plot().savefig(self.folder / "speed.png", dpi=130)

    def rows(self) -> list[list[str]]:
        """Return the cells of the table, the header first."""
        rows = [["candidates", *self.profile.labels.values(), f"V+L BERT / {self.profile.labels[MAIN]}"]]
        for size in self.profile.sizes:
            measured = self.times["cross-encoder", size].measured
            cells = [duration(self.times[name, size].seconds) for name in CONTESTANTS]
            cells.append(rounded(self.ratio(size)))
            if not measured:
                cells[-2:] = [f"{cell} (extrapolated)" for cell in cells[-2:]]
            rows.append([f"{size:,}", *cells])
        return rows

    def _medians(self) -> dict[int, float]:
        return {size: self.times["cross-encoder", size].seconds for size in self.profile.cross_sizes}

    def sentences(self) -> tuple[str, ...]:
        """Return the ratios, how times were extrapolated, and the machine, in words."""
        return self.ratio_line(), self._line_in_words(), self._machine_in_words()

    def _line_in_words(self) -> str:
        line = self._medians()
        sizes, deviation = ", ".join(f"{size:,}" for size in line), largest_deviation(line)
        fit = (
            f"a straight line through the origin, {duration(seconds_per_candidate(line))} for each candidate, fitted "
            f"to {sizes} candidates"
        )
        if deviation <= STRAIGHT:
            return f"The extrapolated times are {fit}, from which no measured time is further than {deviation:.0%}"
        rough = f"the measured ones are up to {deviation:.0%} away from the line"
        return f"The extrapolated times are rough: {rough}, {fit}"

    def _machine_in_words(self) -> str:
        machine = self.machine
        threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
        return (
            f"Measured on {machine['cores']} cores ({machine['processor']}, {machine['architecture']}, "
            f"{machine['system']}) with {threads}, torch {machine['torch']}, transformers {machine['transformers']}, "
            f"FAISS {machine['faiss']}, vse {machine['vse']}"
        )


def duration(seconds: float) -> str:
    """Return a time with two or three digits in a suitable unit."""
    for limit, factor, unit in ((1.0, 1e3, "ms"), (120.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if seconds < limit:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds / 3600)} h"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"

"""The speed experiment's table: what one query takes, and how many times more a cross-encoder takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse.experiments.speed_plot import plot_times
from vse.experiments.speed_profile import CONTESTANTS, Contestant, Profile
from vse.experiments.speed_times import (
    Outcomes,
    QueryTime,
    largest_deviation,
    query_times,
    rounded,
    seconds_per_candidate,
)
from vse.files import write_json, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

MAIN: Contestant = "vse-bert"
STRAIGHT = 0.1
"""How far measured times may be from the line at most for it to be called straight, as a part of its value."""
QUICK_WARNING = "This was the quick version: networks far too small for times that mean anything"


@dataclass(frozen=True)
class SpeedResult:
    """All times of one run. ``machine`` says where they were taken."""

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
        """What has to be said wherever the figures are shown."""
        return QUICK_WARNING if self.quick else None

    def ratio(self, size: int, contestant: Contestant = MAIN) -> float:
        """How many times longer the cross-encoder takes with so many candidates."""
        return self.times["cross-encoder", size].seconds / self.times[contestant, size].seconds

    def ratio_line(self) -> str:
        """The two ratios that matter: the last that was measured, and the one at the largest size."""
        last, largest = self.profile.cross_sizes[-1], self.profile.sizes[-1]
        return (
            f"{self.profile.labels[MAIN]} is {rounded(self.ratio(last))} times faster than V+L BERT at {last:,} "
            f"candidates (measured) and {rounded(self.ratio(largest))} times at {largest:,} (continued, not measured)"
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

    def render(self, console: Console) -> None:
        """The table, the ratios and where the files are."""
        from rich.table import Table

        header, *rows = self._rows()
        table = Table(title="One text query against pictures that were indexed before", title_justify="left")
        for name in header:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
        for text in (self.ratio_line(), self._line_in_words(), self._machine_in_words()):
            console.print(text, soft_wrap=True)
        if self.warning is not None:
            console.print(f"{self.warning}.", soft_wrap=True)
        console.print(f"Table, figures and plot are in {self.folder}", soft_wrap=True)

    def markdown(self) -> str:
        """The table for the documentation, and the sentences that belong to it."""
        header, *rows = self._rows()
        lines = [header, ["--:"] * len(header), *rows]
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        sentences = (self.ratio_line(), self._line_in_words(), self._machine_in_words())
        warning = [f"**{self.warning}.**"] if self.warning is not None else []
        return "\n\n".join([*warning, table, *(f"{text}." for text in sentences)]) + "\n"

    def plot(self) -> Figure:
        """The table as curves."""
        return plot_times(list(self.times.values()), self.ratio, self.profile.labels, self.warning)

    def save(self) -> None:
        """Write ``result.json``, ``table.md`` and ``speed.png``."""
        write_json(self.folder / "result.json", self.to_json())
        write_text(self.folder / "table.md", self.markdown())
        self.plot().savefig(self.folder / "speed.png", dpi=130)

    def _rows(self) -> list[list[str]]:
        rows = [["candidates", *self.profile.labels.values(), f"V+L BERT / {self.profile.labels[MAIN]}"]]
        for size in self.profile.sizes:
            measured = self.times["cross-encoder", size].measured
            cells = [duration(self.times[name, size].seconds) for name in CONTESTANTS]
            cells.append(rounded(self.ratio(size)))
            if not measured:
                cells[-2:] = [f"{cell} (continued)" for cell in cells[-2:]]
            rows.append([f"{size:,}", *cells])
        return rows

    def _medians(self) -> dict[int, float]:
        return {size: self.times["cross-encoder", size].seconds for size in self.profile.cross_sizes}

    def _line_in_words(self) -> str:
        line = self._medians()
        sizes, deviation = ", ".join(f"{size:,}" for size in line), largest_deviation(line)
        fit = (
            f"a straight line through the origin, {duration(seconds_per_candidate(line))} for each candidate, fitted "
            f"to {sizes} candidates"
        )
        if deviation <= STRAIGHT:
            return f"The continued times are {fit}, from which no measured time is further than {deviation:.0%}"
        rough = f"the measured ones are up to {deviation:.0%} away from what continues them"
        return f"The continued times are rough: {rough}, {fit}"

    def _machine_in_words(self) -> str:
        machine = self.machine
        threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
        return (
            f"Measured on {machine['cores']} cores ({machine['processor']}, {machine['architecture']}, "
            f"{machine['system']}) with {threads}, torch {machine['torch']}, transformers {machine['transformers']}, "
            f"FAISS {machine['faiss']}, vse {machine['vse']}"
        )


def duration(seconds: float) -> str:
    """Two or three digits and the unit a person would choose."""
    for limit, factor, unit in ((1.0, 1e3, "ms"), (120.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if seconds < limit:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds / 3600)} h"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"

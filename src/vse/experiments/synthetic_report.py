"""The result of the synthetic experiment, beside the published table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from vse._util.atomic import write_json, write_text
from vse.errors import require
from vse.experiments.synthetic_task import (
    CURVE_SIZES,
    DESIGNS,
    MAIN_DESIGN,
    PATTERNS,
    SIZE_RANGES,
    Outcome,
    Profile,
)
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
    """Plot the first seed of every design over the true coefficients, for each pattern and set size."""
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


PAPER: dict[str, dict[str, tuple[float, float, float]]] = {
    "Index + Interp.": {
        "A": (0.0, 0.0, 0.0),
        "M-1": (0.065, 0.017, 0.070),
        "M-10": (0.030, 0.141, 0.014),
        "T-50%": (0.011, 0.039, 0.005),
        "L": (0.004, 0.016, 0.002),
    },
    "Cos/Sin + MLP": {
        "A": (0.012, 0.054, 0.006),
        "M-1": (0.003, 0.003, 0.003),
        "M-10": (0.047, 0.093, 0.030),
        "T-50%": (0.032, 0.096, 0.026),
        "L": (0.022, 0.065, 0.028),
    },
    "Index + BiGRU": {
        "A": (0.002, 0.006, 0.003),
        "M-1": (0.002, 0.004, 0.001),
        "M-10": (0.026, 0.052, 0.018),
        "T-50%": (0.011, 0.049, 0.007),
        "L": (0.008, 0.015, 0.005),
    },
    "Cos/Sin + BiGRU": {
        "A": (0.0, 0.002, 0.0),
        "M-1": (0.005, 0.010, 0.004),
        "M-10": (0.010, 0.031, 0.007),
        "T-50%": (0.006, 0.046, 0.004),
        "L": (0.0, 0.005, 0.001),
    },
}
"""The published errors: seen sizes, unseen smaller, unseen larger."""
TOLERANCE = 0.003


@dataclass(frozen=True)
class SyntheticResult:
    """The whole table: medians over seeds beside the published figures."""

    profile: Profile
    quick: bool
    seeds: dict[str, list[int]]
    outcomes: dict[tuple[str, str], list[Outcome]]
    seconds: float
    folder: Path

    def error(self, design: str, pattern: str, sizes: str) -> float:
        """Return the median over seeds of one entry of the table."""
        return median(outcome.errors[sizes] for outcome in self.outcomes[design, pattern])

    def within_tolerance(self) -> tuple[int, int]:
        """Return how many entries of the main design are at most :data:`TOLERANCE` above the paper's, and the total."""
        entries = [
            self.error(MAIN_DESIGN, pattern, sizes) <= PAPER[MAIN_DESIGN][pattern][i] + TOLERANCE
            for pattern in PATTERNS
            for i, sizes in enumerate(SIZE_RANGES)
        ]
        return sum(entries), len(entries)

    def to_json(self) -> dict[str, Any]:
        good, of = self.within_tolerance()
        return {
            "experiment": "synthetic",
            "quick": self.quick,
            "profile": asdict(self.profile),
            "seeds": self.seeds,
            "statistic": "median over seeds of the per-size RMSE averaged over sizes",
            "sizes": {name: [sizes.start, sizes.stop - 1] for name, sizes in SIZE_RANGES.items()},
            "table": [
                {
                    "design": design,
                    "pattern": pattern,
                    "sizes": sizes,
                    "rmse": self.error(design, pattern, sizes),
                    "each_seed": [outcome.errors[sizes] for outcome in self.outcomes[design, pattern]],
                    "paper": PAPER[design][pattern][i],
                }
                for design in DESIGNS
                for pattern in PATTERNS
                for i, sizes in enumerate(SIZE_RANGES)
            ],
            "main_design_within_0.003_of_paper": {"entries": good, "of": of},
            "training_seconds": sum(outcome.seconds for group in self.outcomes.values() for outcome in group),
            "seconds_of_this_call": self.seconds,
            "files": [str(self.folder / name) for name in ("result.json", "table.md", "curves.png")],
        }

    def markdown(self) -> str:
        """Return the tables for the documentation: one for each range of sizes, our row above the published one."""
        lines = []
        for sizes, span in SIZE_RANGES.items():
            kind = "seen" if sizes == "seen" else f"unseen, {sizes}"
            lines += [f"Sizes {span.start} to {span.stop - 1} ({kind}):", ""]
            lines += ["| design | seeds | " + " | ".join(PATTERNS) + " |", "|---|---|" + "---|" * len(PATTERNS)]
            for design in DESIGNS:
                for source in ("ours", "paper"):
                    count = len(self.seeds[design]) if source == "ours" else "paper"
                    cells = (self.figure(source, design, pattern, sizes) for pattern in PATTERNS)
                    lines.append(f"| {design} | {count} | " + " | ".join(cells) + " |")
            lines.append("")
        return "\n".join(lines)

    def figure(self, source: str, design: str, pattern: str, sizes: str) -> str:
        """Return one error as text; ``source`` is ``ours`` or ``paper``."""
        value = (
            self.error(design, pattern, sizes)
            if source == "ours"
            else PAPER[design][pattern][list(SIZE_RANGES).index(sizes)]
        )
        return short(value)

    def save(self) -> None:
        """Write ``result.json``, ``table.md`` and ``curves.png``."""
        write_json(self.folder / "result.json", self.to_json())
        write_text(self.folder / "table.md", self.markdown())
        plot_curves(self.outcomes).savefig(self.folder / "curves.png", dpi=130)


def short(value: float) -> str:
    """Return three decimals without the leading zero, as the paper prints them; a rounded zero is ``0``."""
    text = f"{value:.3f}"
    return "0" if float(text) == 0 else text.removeprefix("0")

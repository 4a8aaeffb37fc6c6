"""Figures with their intervals in a table that fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from vse.evaluation.bootstrap import Interval
from vse.evaluation.metrics import RetrievalMetrics

if TYPE_CHECKING:
    from rich.table import Table

RANKS = "median,\nmean rank"


def figure_table(title: str, heads: Sequence[str]) -> Table:
    """An empty table: a model, a column for each of ``heads``, and ranks. A direction stands above its recall."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", padding=(0, 0, 0, 1))
    table.add_column("model", overflow="fold", ratio=1)
    for head in (*heads, RANKS):
        table.add_column(head if "\n" in head else head.replace(" ", "\n"), justify="right", no_wrap=True)
    return table


def add_figures(table: Table, name: str, metrics: RetrievalMetrics, columns: Iterable[str]) -> None:
    """A row with one decimal, as papers print them."""
    from rich.text import Text

    figures, first, second = metrics.figures(), metrics.i2t, metrics.t2i
    ranks = f"{first.median_rank:g}/{second.median_rank:g}\n{first.mean_rank:.1f}/{second.mean_rank:.1f}"
    table.add_row(Text(name), *(f"{figures[column]:.1f}" for column in columns), ranks)


def add_intervals(table: Table, intervals: Mapping[str, Interval], columns: Iterable[str]) -> None:
    """The two ends one below the other: side by side they would be twice as wide as the figures."""
    spread = (intervals[column] for column in columns)
    table.add_row("95 %", *(f"{each.low:.1f}–\n{each.high:.1f}" for each in spread), style="dim")

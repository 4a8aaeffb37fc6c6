"""Results as people and programs read them: a table like the paper's with its card, JSON, a line of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vse._util.atomic import write_text
from vse.errors import InputError
from vse.evaluation.bootstrap import SAMPLES, Difference, Interval
from vse.evaluation.embeddings import Embeddings
from vse.evaluation.evaluate import Result, agreeing, compare, evaluate
from vse.evaluation.metrics import RetrievalMetrics
from vse.evaluation.protocols import AUTO, choose_protocols
from vse.evaluation.published import ClosestRow, closest_row, list_protocols
from vse.evaluation.ranks import Ties
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from vse.evaluation.coco.tasks import CocoTasks


RANK_HEADING = "median,\nmean rank"


def figure_table(title: str, heads: Sequence[str]) -> Table:
    """An empty table: a model, a column for each of ``heads``, and ranks. A direction stands above its recall."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", padding=(0, 0, 0, 1))
    table.add_column("model", overflow="fold", ratio=1)
    for head in (*heads, RANK_HEADING):
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


COLUMNS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
HEADS = ("i→t R@1", "R@5", "R@10", "t→i R@1", "R@5", "R@10", "rsum")
RANKS = ("i2t_median_rank", "i2t_mean_rank", "t2i_median_rank", "t2i_mean_rank")
MARKDOWN_HEAD = (
    "| model | data | protocol | i→t R@1 | R@5 | R@10 | t→i R@1 | R@5 | R@10 | rsum | 95 % of rsum |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|\n"
)


class Shown(Protocol):
    """A further report within a report."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""

    def render(self, console: Console) -> None:
        """As a person reads it."""


@dataclass(frozen=True)
class Comparison:
    """Two results on the same test, and what differs."""

    first: str
    second: str
    protocol: str
    differences: dict[str, Difference]

    def to_json(self) -> dict[str, Any]:
        """Every figure's difference, its interval and the verdict."""
        return {
            "first": self.first,
            "second": self.second,
            "protocol": self.protocol,
            "differences": {
                name: {"value": each.value, "interval": each.interval.to_json(), "real": each.real}
                for name, each in self.differences.items()
            },
        }


@dataclass(frozen=True)
class EvaluationReport:
    """What ``vse eval`` shows."""

    results: list[Result]
    comparisons: list[Comparison] = field(default_factory=list)
    published: dict[int, ClosestRow] = field(default_factory=dict)  # by the number of the result
    extras: dict[str, list[Shown]] = field(default_factory=dict)  # other tasks, one report for each model

    def to_json(self) -> dict[str, Any]:
        """Everything, cards included."""
        rows = []
        for number, result in enumerate(self.results):
            row = result.to_json()
            if number in self.published:
                row["published"] = published_json(self.published[number])
            rows.append(row)
        return {
            "results": rows,
            "comparisons": [each.to_json() for each in self.comparisons],
            **{name: [extra.to_json() for extra in extras] for name, extras in self.extras.items()},
        }

    def render(self, console: Console) -> None:
        """A table for each protocol, its card below it, then comparisons."""
        for protocol, test in dict.fromkeys((each.protocol.name, each.card["split_hash"]) for each in self.results):
            self._table(console, protocol, test)
        for comparison in self.comparisons:
            render_comparison(console, comparison)
        for extras in self.extras.values():
            for extra in extras:
                extra.render(console)

    def _table(self, console: Console, protocol: str, test: str) -> None:
        rows = [
            (number, result)
            for number, result in enumerate(self.results)
            if (result.protocol.name, result.card["split_hash"]) == (protocol, test)
        ]
        table = figure_table(f"{protocol}: {rows[0][1].protocol.summary}", HEADS)
        for number, result in rows:
            add_figures(table, result.name, result.metrics, COLUMNS)
            add_intervals(table, result.intervals, COLUMNS)
            if number in self.published:
                values = self.published[number].row.values
                table.add_row("paper", *(f"{values[n]:.1f}" if n in values else "" for n in COLUMNS), style="italic")
        console.print(table)
        for number, result in rows:
            if number in self.published:
                told = f"paper, beside {result.name}: {describe_published(self.published[number])}"
                console.print(told, style="italic", markup=False, soft_wrap=True)
        console.print(footer([result.card for _, result in rows]), style="dim", markup=False)


def footer(cards: list[dict[str, Any]]) -> str:
    """What the rows of a table have in common, and their models, in a few lines."""
    card = cards[0]
    per_image = card["captions_per_image"]
    captions = (
        f"{per_image['mean']:g}" if per_image["min"] == per_image["max"] else f"{per_image['min']}–{per_image['max']}"
    )
    named = dict.fromkeys(f"{model['name']} ({model['fingerprint']})" for each in cards for model in each["models"])
    models = ", ".join(named)
    remarks = "".join(f"\nNote: {remark}." for remark in card["remarks"])
    galleries = f"{card['gallery_images'][0]} images, {card['gallery_texts'][0]} texts"
    folds = f", {card['folds']} folds" if card["folds"] > 1 else ""
    return (
        f"{card['data']} {card['split']} (content {card['split_hash']}): gallery {galleries}{folds}, "
        f"{captions} captions an image.\n"
        f"Recall {card['recall']}. Ties {card['ties']}: {card['tie_rule']}. Scores: {card['dtype']}.\n"
        f"Models: {models}. Intervals: {card['bootstrap']['samples']} draws of {card['bootstrap']['unit']}.{remarks}"
    )


def find_published(result: Result) -> ClosestRow | None:
    """The paper's closest row on the same test, with what differs; None where the paper has no such test."""
    if result.protocol.name not in list_protocols() or result.card["remarks"]:
        return None
    return closest_published(result.protocol.name, result.card["models"])


def closest_published(protocol: str, models: list[dict[str, Any]]) -> ClosestRow | None:
    """The row under ``protocol`` that is closest to a model, or to an ensemble of several."""
    names = ("image", "backbone", "text", "image_pooling", "text_pooling")
    traits: dict[str, Any] = {}
    for name in names:
        values = sorted({str(model[name]) for model in models if name in model})
        if len(values) == 1:
            traits[name] = values[0]
        elif name == "image" and values == ["grid", "region"]:
            traits[name] = "region+grid"
    if "image" not in traits:
        return None
    return closest_row(protocol=protocol, ensemble=len(models) > 1, **traits)


def describe_published(found: ClosestRow) -> str:
    """The row in a few words, and what differs from the configuration that was evaluated."""
    row = found.row
    parts = [part for part in (row.image, row.backbone, row.text, "ensemble" if row.ensemble else None) if part]
    other = "; ".join(
        f"{name} {asked} here, {printed or 'not stated'} there" for name, (asked, printed) in found.differences.items()
    )
    return f"{row.method} ({', '.join(parts)}), table {row.table}" + (f"; differs in: {other}" if other else "")


def published_json(found: ClosestRow) -> dict[str, Any]:
    """The row and what differs, as plain values."""
    row = found.row
    return {
        "method": row.method,
        "table": row.table,
        "label": row.label,
        "image": row.image,
        "backbone": row.backbone,
        "text": row.text,
        "values": dict(row.values),
        "differences": {name: [str(asked), str(printed)] for name, (asked, printed) in found.differences.items()},
    }


def append_markdown(path: Path, results: list[Result]) -> None:
    """Add a row for each result to the Markdown table in ``path``, which is begun if the file is new or empty."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path}: not a text file in UTF-8 that rows could be added to") from None
    if text and not text.endswith("\n"):
        text += "\n"
    if MARKDOWN_HEAD.splitlines()[0] not in text:  # a row without its head would not be a table
        text += ("\n" if text.strip() else "") + MARKDOWN_HEAD
    for result in results:
        figures = result.metrics.figures()
        spread = result.intervals["rsum"]
        cells = [
            result.name.replace("|", "\\|"),
            f"{result.card['data']} {result.card['split']}".replace("|", "\\|"),
            result.protocol.name,
            *(f"{figures[name]:.1f}" for name in COLUMNS),
            f"{spread.low:.1f}–{spread.high:.1f}",
        ]
        text += f"| {' | '.join(cells)} |\n"
    write_text(path, text)


def render_comparison(console: Console, comparison: Comparison, sides: tuple[str, str] = ("i2t", "t2i")) -> None:
    """A table of the differences; ``sides`` are what the two directions are called."""
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{comparison.first} minus {comparison.second} ({comparison.protocol})")
    table = Table(title=title, title_justify="left")
    for head in ("figure", "difference", "95 % interval", "verdict"):
        table.add_column(head, justify="left" if head in {"figure", "verdict"} else "right")
    for name in (*COLUMNS, *RANKS):
        each = comparison.differences[name]
        verdict = "real" if each.real else "may be chance"
        called = name.replace("i2t", sides[0]).replace("t2i", sides[1])
        table.add_row(called, f"{each.value:+.2f}", f"{each.interval.low:+.2f} … {each.interval.high:+.2f}", verdict)
    console.print(table)


def run_evaluation(
    embedded: Sequence[Embeddings],
    *,
    protocol: str = AUTO,
    ensemble: bool = False,
    comparing: bool = False,
    against_paper: bool = False,
    coco: CocoTasks | None = None,
    ties: Ties = "pessimistic",
    samples: int = SAMPLES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> EvaluationReport:
    """Each model by itself, or all as one ensemble; with ``comparing`` also against the first row."""
    if not embedded:
        raise InputError("nothing to evaluate: give at least one model")
    if comparing or ensemble:
        agreeing(embedded)
    groups = [list(embedded)] if ensemble else [[each] for each in embedded]
    if ensemble and comparing:
        groups += [[each] for each in embedded]
    if coco is not None:
        for each in embedded:
            coco.check(each)
    results: list[Result] = []
    for group in groups:
        header = group[0].header
        results += [
            evaluate(group, chosen, ties=ties, samples=samples, seed=seed, progress=progress)
            for chosen in choose_protocols(protocol, header.data, len(group[0].images), header.split)
        ]
    extras: dict[str, list[Shown]] = {}
    if coco is not None:
        for group in groups:
            for name, report in coco.evaluate(
                group, ties=ties, samples=samples, seed=seed, against_paper=against_paper, progress=progress
            ):
                extras.setdefault(name, []).append(report)
    rows = {number: find_published(result) for number, result in enumerate(results)} if against_paper else {}
    published = {number: row for number, row in rows.items() if row is not None}
    for number in rows.keys() - published.keys():
        if progress is not None:
            told = f"{results[number].name}, {results[number].protocol.name}"
            progress.note(f"the paper has no row for {told}: another test, or nothing is known of the model")
    return EvaluationReport(results, _comparisons(results) if comparing else [], published, extras)


def _comparisons(results: Sequence[Result]) -> list[Comparison]:
    """Every other row minus the first of the same protocol."""
    found = []
    for name in dict.fromkeys(result.protocol.name for result in results):
        base, *others = [result for result in results if result.protocol.name == name]
        found += [Comparison(other.name, base.name, name, compare(other, base)) for other in others]
    return found

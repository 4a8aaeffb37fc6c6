"""Results of ``vse eval`` as tables like the paper's, with the card of the test below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from vse.cli.render import render
from vse.evaluation.coco.cxc import CORRELATION
from vse.evaluation.coco.eccv import DEFINITION, FIGURES
from vse.evaluation.evaluate import directed
from vse.evaluation.metrics import CUTOFFS
from vse.evaluation.report import COLUMNS, RANKS, heads_of

if TYPE_CHECKING:
    from rich.console import Console

    from vse.evaluation.bootstrap import Interval
    from vse.evaluation.coco.tasks import CxcReport, EccvReport
    from vse.evaluation.metrics import RetrievalMetrics
    from vse.evaluation.published import ClosestRow
    from vse.evaluation.report import Comparison, EvaluationReport

RANK_HEADING = "median,\nmean rank"
TASKS = {"i2t": "image→text", "t2i": "text→image", "t2t": "text→text", "i2i": "image→image"}


def render_evaluation(report: EvaluationReport, console: Console) -> None:
    """Draw a table with its card for each protocol, then comparisons and further tasks."""
    for protocol, test in dict.fromkeys((each.protocol.name, each.card["split_hash"]) for each in report.results):
        _render_protocol(report, console, protocol, test)
    for comparison in report.comparisons:
        _render_comparison(comparison, console)
    for extras in report.extras.values():
        for extra in extras:
            render(extra, console)


def _render_protocol(report: EvaluationReport, console: Console, protocol: str, test: str) -> None:
    rows = [
        (number, result)
        for number, result in enumerate(report.results)
        if (result.protocol.name, result.card["split_hash"]) == (protocol, test)
    ]
    first = rows[0][1]
    table = _figure_table(f"{protocol}: {first.protocol.summary}", heads_of(first.kind))
    for number, result in rows:
        _add_result(table, result.name, result.metrics, result.intervals, report.published.get(number))
    console.print(table)
    for number, result in rows:
        if number in report.published:
            _print_published(console, result.name, report.published[number])
    console.print(_card([result.card for _, result in rows]), style="dim", markup=False)


def _figure_table(title: str, heads: Sequence[str]) -> Table:
    """An empty table: a model, a column for each of ``heads``, and ranks. A direction stands above its recall."""
    table = Table(title=Text(title), title_justify="left", padding=(0, 0, 0, 1))
    table.add_column("model", overflow="fold", ratio=1)
    for head in (*heads, RANK_HEADING):
        table.add_column(head if "\n" in head else head.replace(" ", "\n"), justify="right", no_wrap=True)
    return table


def _add_result(
    table: Table, name: str, metrics: RetrievalMetrics, intervals: Mapping[str, Interval], paper: ClosestRow | None
) -> None:
    """A row with one decimal, as papers print them; below it the intervals and the published figures, if any."""
    figures, first, second = metrics.figures(), metrics.i2t, metrics.t2i
    ranks = f"{first.median_rank:g}/{second.median_rank:g}\n{first.mean_rank:.1f}/{second.mean_rank:.1f}"
    table.add_row(Text(name), *(f"{figures[column]:.1f}" for column in COLUMNS), ranks)
    if intervals:  # the two ends one below the other: side by side they would be twice as wide as the figures
        spread = (intervals[column] for column in COLUMNS)
        table.add_row("95 %", *(f"{each.low:.1f}–\n{each.high:.1f}" for each in spread), style="dim")
    if paper is not None:
        table.add_row("paper", *_published_cells(paper, COLUMNS), style="italic")


def _published_cells(paper: ClosestRow, columns: Sequence[str]) -> list[str]:
    values = paper.row.values
    return [f"{values[name]:.1f}" if name in values else "" for name in columns]


def _print_published(console: Console, name: str, found: ClosestRow) -> None:
    text = f"paper, beside {name}: {_describe_published(found)}"
    console.print(text, style="italic", markup=False, soft_wrap=True)


def _describe_published(found: ClosestRow) -> str:
    """The row in a few words, and how it differs from the configuration that was evaluated."""
    row = found.row
    parts = [part for part in (row.image, row.backbone, row.text, "ensemble" if row.ensemble else None) if part]
    other = "; ".join(
        f"{name} {asked} here, {printed or 'not stated'} there" for name, (asked, printed) in found.differences.items()
    )
    return f"{row.method} ({', '.join(parts)}), table {row.table}" + (f"; differs in: {other}" if other else "")


def _render_comparison(comparison: Comparison, console: Console) -> None:
    """A table of the differences."""
    title = Text(f"{comparison.first} minus {comparison.second} ({comparison.protocol})")
    table = Table(title=title, title_justify="left")
    for head in ("figure", "difference", "95 % interval", "verdict"):
        table.add_column(head, justify="left" if head in {"figure", "verdict"} else "right")
    for name in (*COLUMNS, *RANKS):
        each = comparison.differences[name]
        verdict = "real" if each.real else "may be chance"
        called = directed(comparison.kind, name)
        table.add_row(called, f"{each.value:+.2f}", f"{each.interval.low:+.2f} … {each.interval.high:+.2f}", verdict)
    console.print(table)
    higher = f"+ means that {comparison.first} has the higher figure; a lower rank is better."
    console.print(higher, style="dim", markup=False)


def _card(cards: list[dict[str, Any]]) -> str:
    """What the rows of a table have in common, and their models, in a few lines."""
    card = cards[0]
    models = ", ".join(dict.fromkeys(_model_name(model) for each in cards for model in each["models"]))
    scores = f" Scores: {card['dtype']}." if "dtype" in card else ""
    lines = [
        f"{card['data']} {card['split']} (content {card['split_hash']}): {_gallery(card)}.",
        f"Recall {card['recall']}. Ties {card['ties']}: {card['tie_rule']}.{scores}",
        f"Models: {models}.",
    ]
    if "bootstrap" in card:
        lines[-1] += f" {_bootstrap(card)}"
    notes = list(card["remarks"])
    if card.get("dropped"):
        notes.append(f"{len(card['dropped'])} videos without frames are excluded, the first is {card['dropped'][0]}")
    return "\n".join([*lines, *(f"Note: {note}." for note in notes)])


def _gallery(card: dict[str, Any]) -> str:
    """What was ranked against what."""
    if "sentences" in card:
        return (
            f"{card['videos']} videos, {card['sentences']} distinct sentences of {card['captions']} captions, "
            f"{card['shared_sentences']} of them shared by several videos"
        )
    per_image = card["captions_per_image"]
    captions = (
        f"{per_image['mean']:g}" if per_image["min"] == per_image["max"] else f"{per_image['min']}–{per_image['max']}"
    )
    folds = f", {card['folds']} folds" if card["folds"] > 1 else ""
    return (
        f"gallery {card['gallery_images'][0]} images, {card['gallery_texts'][0]} texts{folds}, "
        f"{captions} captions per image"
    )


def _model_name(model: dict[str, Any]) -> str:
    graphs = f", {model['role_graphs']}" if "role_graphs" in model else ""
    again = model.get("reranker")
    more = f", the first {again['depth']} re-ranked by {again['name']} ({again['fingerprint']})" if again else ""
    return f"{model['name']} ({model['fingerprint']}{graphs}){more}"


def render_cxc(report: CxcReport, console: Console) -> None:
    """Draw a table for retrieval and a line for the correlations."""
    table = Table(title=Text(f"Crisscrossed Captions: {report.name}"), title_justify="left")
    for head in ("task", "R@1", "R@5", "R@10", "queries"):
        table.add_column(head, justify="left" if head == "task" else "right")
    for task, label in TASKS.items():
        side = getattr(report.metrics, task)
        table.add_row(label, *(f"{value:.1f}" for value in side.recalls), f"{side.queries:,}")
        columns = [f"{task}_r{cutoff}" for cutoff in CUTOFFS]
        _add_intervals(table, report.metrics.intervals, columns)
        if report.published is not None:
            table.add_row("  paper", *_published_cells(report.published, columns), style="italic")
    console.print(table)
    if report.published is not None:
        console.print(f"paper: {_describe_published(report.published)}", style="italic", markup=False)
    found = report.metrics.correlations.items()
    console.print("; ".join(f"{task.upper()} {each.mean:.1f} ± {each.deviation:.1f}" for task, each in found))
    console.print(CORRELATION, style="dim")
    console.print(_bootstrap(report.card), style="dim")


def render_eccv(report: EccvReport, console: Console) -> None:
    """Draw one table."""
    table = Table(title=Text(f"ECCV Caption: {report.name}"), title_justify="left")
    for head in ("direction", "mAP@R", "R-Precision", "R@1", "queries"):
        table.add_column(head, justify="left" if head == "direction" else "right")
    for task in ("i2t", "t2i"):
        side = getattr(report.metrics, task)
        figures = (side.map_at_r, side.r_precision, side.r1)
        table.add_row(TASKS[task], *(f"{value:.1f}" for value in figures), f"{side.queries:,}")
        _add_intervals(table, report.metrics.intervals, [f"{task}_{name}" for name in FIGURES])
    console.print(table)
    console.print(DEFINITION, style="dim")
    console.print(_bootstrap(report.card), style="dim")


def _add_intervals(table: Table, intervals: Mapping[str, Interval], columns: Sequence[str]) -> None:
    spread = [intervals[name] for name in columns if name in intervals]
    if spread:
        table.add_row("  95 %", *(f"{each.low:.1f}–{each.high:.1f}" for each in spread), style="dim")


def _bootstrap(card: dict[str, Any]) -> str:
    return f"Intervals: {card['bootstrap']['samples']} bootstrap samples of {card['bootstrap']['unit']}."

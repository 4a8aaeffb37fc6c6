"""Results as people and programs read them: a table like the paper's with its card, JSON, a line of Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vse._util.atomic import write_text
from vse.errors import InputError
from vse.evaluation.bootstrap import SAMPLES, Difference
from vse.evaluation.embeddings import Embeddings
from vse.evaluation.evaluate import Result, agreeing, compare, evaluate
from vse.evaluation.protocols import AUTO, choose_protocols
from vse.evaluation.published import ClosestRow, closest_row, list_protocols
from vse.evaluation.ranks import Ties
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.evaluation.coco.tasks import CocoTasks


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

"""Everything that one call of ``vse eval`` asks for, from vectors to a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vse.errors import InputError
from vse.evaluation.bootstrap import SAMPLES
from vse.evaluation.embeddings import Embeddings
from vse.evaluation.evaluate import Result, agreeing, compare, evaluate
from vse.evaluation.protocols import AUTO, choose_protocols
from vse.evaluation.ranks import Ties
from vse.evaluation.report import Comparison, EvaluationReport, Shown, find_published
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.evaluation.coco_tasks import CocoTasks


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

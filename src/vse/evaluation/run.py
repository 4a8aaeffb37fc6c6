"""Everything that one call of ``vse eval`` asks for, from vectors to a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vse.errors import InputError
from vse.evaluation.bootstrap import SAMPLES
from vse.evaluation.embeddings import Embeddings
from vse.evaluation.evaluate import Result, compare, evaluate
from vse.evaluation.protocols import AUTO, choose_protocols
from vse.evaluation.ranks import Ties
from vse.evaluation.report import Comparison, EvaluationReport, find_published
from vse.progress import ProgressReporter


def run_evaluation(
    embedded: Sequence[Embeddings],
    *,
    protocol: str = AUTO,
    ensemble: bool = False,
    comparing: bool = False,
    against_paper: bool = False,
    cxc: Path | None = None,
    eccv: Path | None = None,
    coco_ids: Path | None = None,
    ties: Ties = "pessimistic",
    samples: int = SAMPLES,
    seed: int = 0,
    progress: ProgressReporter | None = None,
) -> EvaluationReport:
    """Each model by itself, or all as one ensemble; with ``comparing`` also against the first row."""
    if not embedded:
        raise InputError("nothing to evaluate: give at least one model")
    groups = [list(embedded)] if ensemble else [[each] for each in embedded]
    if ensemble and comparing:
        groups += [[each] for each in embedded]
    first = embedded[0]
    results = [
        evaluate(group, chosen, ties=ties, samples=samples, seed=seed, progress=progress)
        for chosen in choose_protocols(protocol, first.header.data, len(first.images))
        for group in groups
    ]
    extras: dict[str, Any] = {}
    if coco_ids is not None:
        from vse.evaluation.coco_ids import read_coco_ids
        from vse.evaluation.coco_tasks import evaluate_cxc, evaluate_eccv

        ids = read_coco_ids(coco_ids)
        if ids.shape[0] != len(first.images) or not np.array_equal(ids.caption_to_image, first.text_to_image):
            raise InputError(
                f"{coco_ids}: {ids.shape[0]} images and {ids.shape[1]} captions, not in the order of "
                f"{first.header.data} {first.header.split} ({len(first.images)} and {len(first.texts)})"
            )
        for number, group in enumerate(groups):
            suffix = f"_{number}" if len(groups) > 1 else ""
            if cxc is not None:
                report = evaluate_cxc(group, ids, cxc, ties=ties, samples=samples, seed=seed, progress=progress)
                extras[f"cxc{suffix}"] = report
            if eccv is not None:
                extras[f"eccv{suffix}"] = evaluate_eccv(group, ids, eccv, progress=progress)
    rows = {number: find_published(result) for number, result in enumerate(results)} if against_paper else {}
    published = {number: row for number, row in rows.items() if row is not None}
    return EvaluationReport(results, _comparisons(results) if comparing else [], published, extras)


def _comparisons(results: Sequence[Result]) -> list[Comparison]:
    """Every other row minus the first of the same protocol."""
    found = []
    for name in dict.fromkeys(result.protocol.name for result in results):
        base, *others = [result for result in results if result.protocol.name == name]
        found += [Comparison(other.name, base.name, name, compare(other, base)) for other in others]
    return found

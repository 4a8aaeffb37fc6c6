"""CxC and ECCV Caption as ``vse eval`` shows them: figures of one model or ensemble, with what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse.evaluation.coco_ids import CocoIds
from vse.evaluation.cxc import CORRELATION, CxcMetrics, CxcScores, cxc_metrics_of_scores, read_cxc
from vse.evaluation.eccv import DEFINITION, EccvMetrics, eccv_metrics_of_scores, read_eccv
from vse.evaluation.embeddings import Embeddings
from vse.evaluation.ranks import Ties
from vse.evaluation.scores import DotScores, MeanScores, Scores
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from rich.console import Console

TASKS = ("i2t", "t2i", "t2t", "i2i")
HEADS = {"i2t": "image→text", "t2i": "text→image", "t2t": "text→text", "i2i": "image→image"}


@dataclass(frozen=True)
class CxcReport:
    """The four retrieval tasks and the three correlations of Crisscrossed Captions."""

    name: str
    metrics: CxcMetrics

    def to_json(self) -> dict[str, Any]:
        """Figures and the definition of the correlations."""
        return {"name": self.name, **self.metrics.to_json(), "correlation": CORRELATION}

    def render(self, console: Console) -> None:
        """One table for retrieval, one line for correlations."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(f"Crisscrossed Captions: {self.name}"), title_justify="left")
        for head in ("task", "R@1", "R@5", "R@10", "queries"):
            table.add_column(head, justify="left" if head == "task" else "right")
        for task in TASKS:
            side = getattr(self.metrics, task)
            table.add_row(HEADS[task], *(f"{value:.1f}" for value in side.recalls), f"{side.queries:,}")
        console.print(table)
        found = self.metrics.correlations.items()
        console.print("; ".join(f"{task.upper()} {each.mean:.1f} ± {each.deviation:.1f}" for task, each in found))
        console.print(CORRELATION, style="dim")


@dataclass(frozen=True)
class EccvReport:
    """mAP@R, R-Precision and R@1 on ECCV Caption."""

    name: str
    metrics: EccvMetrics

    def to_json(self) -> dict[str, Any]:
        """Figures and their definition."""
        return {"name": self.name, **self.metrics.to_json(), "definition": DEFINITION}

    def render(self, console: Console) -> None:
        """One table."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(f"ECCV Caption: {self.name}"), title_justify="left")
        for head in ("direction", "mAP@R", "R-Precision", "R@1", "queries"):
            table.add_column(head, justify="left" if head == "direction" else "right")
        for task in ("i2t", "t2i"):
            side = getattr(self.metrics, task)
            figures = (side.map_at_r, side.r_precision, side.r1)
            table.add_row(HEADS[task], *(f"{value:.1f}" for value in figures), f"{side.queries:,}")
        console.print(table)
        console.print(DEFINITION, style="dim")


def evaluate_cxc(
    members: Sequence[Embeddings],
    ids: CocoIds,
    folder: Path,
    *,
    ties: Ties,
    samples: int,
    seed: int,
    progress: ProgressReporter | None = None,
) -> CxcReport:
    """CxC for one model, or for several as the mean of their scores."""
    scores = CxcScores(
        _mean([DotScores(each.images, each.texts) for each in members]),
        _mean([DotScores(each.images, each.images) for each in members]),
        _mean([DotScores(each.texts, each.texts) for each in members]),
    )
    metrics = cxc_metrics_of_scores(
        scores, ids, read_cxc(folder), ties=ties, samples=samples, seed=seed, progress=progress
    )
    return CxcReport(_name(members), metrics)


def evaluate_eccv(
    members: Sequence[Embeddings], ids: CocoIds, folder: Path, *, progress: ProgressReporter | None = None
) -> EccvReport:
    """ECCV Caption for one model, or for several as the mean of their scores."""
    scores = _mean([DotScores(each.images, each.texts) for each in members])
    return EccvReport(_name(members), eccv_metrics_of_scores(scores, ids, read_eccv(folder), progress=progress))


def _mean(members: Sequence[DotScores]) -> Scores:
    return members[0] if len(members) == 1 else MeanScores(members)


def _name(members: Sequence[Embeddings]) -> str:
    return " + ".join(each.header.model for each in members)

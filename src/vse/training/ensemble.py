"""Several models trained one after the other and asked together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vse._util.atomic import write_json
from vse.data import VideoFrames
from vse.errors import InputError
from vse.evaluation.embeddings import embed_split
from vse.evaluation.metrics import metrics_of_scores
from vse.evaluation.positives import Positives, text_positives
from vse.evaluation.scores import DotScores, MeanScores, Scores
from vse.evaluation.video import VideoTest, video_scores
from vse.hgr.model import NO_VECTORS, HGRModel
from vse.models.storage import TorchModel, load_model
from vse.progress import ProgressReporter, SilentProgress
from vse.training.build import Splits, open_splits
from vse.training.distributed import process_group, ranks_of_environment
from vse.training.recipe import EnsembleRecipe, Member, Recipe
from vse.training.recipes import read_recipe
from vse.training.result import TrainingResult
from vse.training.train import choose_device, train


@dataclass(frozen=True)
class EnsembleResult:
    """What the members reach alone and together on dev."""

    name: str
    folder: Path
    members: tuple[TrainingResult, ...]
    together: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "folder": str(self.folder),
            "members": [member.to_json() for member in self.members],
            "dev": self.together,
        }


def train_ensemble(
    recipe: EnsembleRecipe,
    folder: Path,
    *,
    name: str,
    beside: Path | None = None,
    changes: Sequence[str] = (),
    progress: ProgressReporter | None = None,
) -> EnsembleResult:
    """Train every member into a folder of its own, then measure the mean of their scores on dev.

    Members are looked for in the folder ``beside`` first; ``changes`` are for all of them.
    """
    first = ranks_of_environment().first
    reporter = progress if progress is not None and first else SilentProgress()
    members = [_read_member(member, name, beside, changes) for member in recipe.members]
    results: list[TrainingResult] = []
    measured: list[_Measured] = []
    device = choose_device(members[0][1].run.device)
    with process_group(device):  # once for all: the members could not find each other again
        for called, found in members:
            reporter.note(f"{name}: {called}")
            results.append(train(found, folder / called, name=called, progress=progress))
            if first:
                model = load_model(results[-1].model, device=device)
                measured.append(_measure(model, open_splits(found), called, reporter))
    together: dict[str, Any] = {}
    if first:
        for each in measured:
            if each.test != measured[0].test:
                raise InputError(f"{name}: its members are measured on different dev splits: give them the same data")
        scores = MeanScores([each.scores for each in measured])
        together = metrics_of_scores(scores, measured[0].positives).to_json()
    result = EnsembleResult(name, folder, tuple(results), together)
    if first:
        write_json(folder / "ensemble.json", result.to_json())
    return result


@dataclass(frozen=True, eq=False)
class _Measured:
    """What a member says about dev; ``test`` is the hash of what it was asked."""

    scores: Scores
    positives: Positives
    test: str


def _measure(model: TorchModel, splits: Splits, name: str, report: ProgressReporter) -> _Measured:
    dev = splits.dev
    if isinstance(dev.images, VideoFrames):
        test = VideoTest.of(dev)
        scores = video_scores(model, dev, test, graphs=splits.graphs, progress=report)
        return _Measured(scores, test.positives, test.about["split_hash"])
    if isinstance(model, HGRModel):
        raise InputError(f"{name}: {NO_VECTORS}")
    found = embed_split(model, dev, name=name, progress=report)
    positives = text_positives(found.text_to_image, len(found.images)).T
    return _Measured(DotScores(found.images, found.texts), positives, found.header.split_hash)


def _read_member(member: Member, name: str, beside: Path | None, changes: Sequence[str]) -> tuple[str, Recipe]:
    """What a member's run is called, and its recipe."""
    neighbour = None if beside is None else beside / f"{member.recipe.removesuffix('.toml')}.toml"
    known = neighbour if neighbour is not None and neighbour.is_file() else member.recipe
    found = read_recipe(known, [*changes, f"seed={member.seed}"])
    if not isinstance(found, Recipe):
        raise InputError(f"{name}: its member {member.recipe!r} is an ensemble itself; name single models")
    return f"{Path(member.recipe).stem}-seed{member.seed}", found

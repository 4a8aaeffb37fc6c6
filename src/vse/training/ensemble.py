"""Ensembles: models trained one after the other, scored by the mean of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vse._util.atomic import write_json
from vse.errors import InputError
from vse.evaluation.retrieval_test import RetrievalTest, ScoredModel, mean_scores
from vse.models.storage import load_model
from vse.progress import ProgressReporter, SilentProgress
from vse.training.data import open_splits
from vse.training.distributed import process_group, ranks_of_environment
from vse.training.recipe import EnsembleRecipe, Member, Recipe
from vse.training.recipes import find_recipe, read_recipe, read_values, toml_text
from vse.training.result import TrainingResult
from vse.training.train import choose_device, train


@dataclass(frozen=True)
class EnsembleResult:
    """The figures of the members on dev, alone and together."""

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


def train_recipe(
    recipe: str | Path,
    into: str | Path | None = None,
    *,
    data: str | Path | None = None,
    features: str | Path | None = None,
    changes: Sequence[str] = (),
    progress: ProgressReporter | None = None,
) -> TrainingResult | EnsembleResult:
    """Train a recipe by name, or resume its run.

    Args:
        recipe: A name of :func:`~vse.training.list_recipes`, or a TOML file.
        into: The folder of the run. Default: ``runs/NAME``.
        data: The dataset, instead of the recipe's ``data.path``.
        features: Stored features, instead of the recipe's ``data.features``.
        changes: Values to change, such as ``"optimizer.lr=1e-3"``.
        progress: Receives progress and notes.

    Returns:
        The result of the run; of an ensemble, those of its members and of all together.

    Raises:
        InputError: The recipe or its data cannot be read, or the folder belongs to another run.

    Example:
        >>> import vse
        >>> result = vse.train("flickr8k-vse-infinity", data="data/flickr8k")  # doctest: +SKIP
        >>> result.best["rsum"]  # doctest: +SKIP
    """
    every = changes_with(changes, data, features)
    wanted = read_changed(recipe, every)
    name = Path(recipe).stem
    folder = Path("runs") / name if into is None else Path(into)
    if isinstance(wanted, EnsembleRecipe):
        return train_ensemble(
            wanted, folder, name=name, beside=find_recipe(recipe).parent, changes=every, progress=progress
        )
    return train(wanted, folder, name=name, progress=progress)


def changes_with(changes: Sequence[str], data: str | Path | None, features: str | Path | None) -> list[str]:
    """Return ``changes`` behind those that set the dataset and the features."""
    given = {"data.path": data, "data.features": features}
    return [*(f"{key}={toml_text(value)}" for key, value in given.items() if value), *changes]


def read_changed(recipe: str | Path, changes: Sequence[str]) -> Recipe | EnsembleRecipe:
    """Read a recipe with ``changes``; those of an ensemble are for its members, and it is read as it is."""
    return read_recipe(recipe, [] if "members" in read_values(find_recipe(recipe)) else changes)


def train_ensemble(
    recipe: EnsembleRecipe,
    folder: Path,
    *,
    name: str,
    beside: Path | None = None,
    changes: Sequence[str] = (),
    progress: ProgressReporter | None = None,
) -> EnsembleResult:
    """Train every member into its own folder, then measure the mean of their scores on dev.

    Args:
        recipe: names the members.
        folder: one folder for each member is created in it.
        name: of the ensemble.
        beside: a folder in which the recipes of members are looked up first.
        changes: for the recipes of all members.
        progress: shows steps and messages.
    """
    first = ranks_of_environment().first
    reporter = progress if progress is not None and first else SilentProgress()
    members = [_read_member(member, name, beside, changes) for member in recipe.members]
    results: list[TrainingResult] = []
    scored: list[ScoredModel] = []
    device = choose_device(members[0][1].run.device)
    with process_group(device):  # once for all members: the group cannot be joined again
        for called, found in members:
            reporter.note(f"{name}: {called}")
            results.append(train(found, folder / called, name=called, progress=progress))
            if first:
                scored.append(_score_dev(results[-1], found, called, device, reporter))
    together: dict[str, Any] = {}
    if first:
        test = scored[0].test
        if not all(test.is_same(each.test) for each in scored):
            raise InputError(f"{name}: its members are measured on different dev splits: give them the same data")
        together = test.rank(mean_scores(scored)).metrics.to_json()
    result = EnsembleResult(name, folder, tuple(results), together)
    if first:
        write_json(folder / "ensemble.json", result.to_json())
    return result


def _score_dev(
    trained: TrainingResult, recipe: Recipe, name: str, device: torch.device, report: ProgressReporter
) -> ScoredModel:
    splits = open_splits(recipe)
    model = load_model(trained.model, device=device)
    test = RetrievalTest.of(splits.dev)
    return ScoredModel.of_model(model, splits.dev, test, name=name, graphs=splits.graphs, progress=report)


def _read_member(member: Member, name: str, beside: Path | None, changes: Sequence[str]) -> tuple[str, Recipe]:
    """Return the name of a member's run, and its recipe."""
    neighbour = None if beside is None else beside / f"{member.recipe.removesuffix('.toml')}.toml"
    known = neighbour if neighbour is not None and neighbour.is_file() else member.recipe
    found = read_recipe(known, [*changes, f"seed={member.seed}"])
    if not isinstance(found, Recipe):
        raise InputError(f"{name}: its member {member.recipe!r} is an ensemble itself; name single models")
    return f"{Path(member.recipe).stem}-seed{member.seed}", found

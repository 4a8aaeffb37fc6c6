"""Single steps of a recipe, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vse.progress import SilentProgress
from vse.training import Recipe
from vse.training.data import build_tokenizer, open_splits, training_pairs
from vse.training.distributed import Ranks
from vse.training.mining import mine
from vse.training.model import build_model
from vse.training.run_folder import RunFolder
from vse.training.trainer import Trainer


def trainer_of(values: Mapping[str, Any], folder: Path) -> Trainer:
    """A trainer at step 0, ready for a step."""
    recipe = Recipe.model_validate(values)
    torch.set_num_threads(1)
    splits = open_splits(recipe)
    model = build_model(recipe, build_tokenizer(recipe, splits.train.captions), splits, "test")
    _, negatives = mine(recipe, splits.train, splits.dev, folder, Ranks(), SilentProgress())
    trainer = Trainer(
        recipe,
        model,
        training_pairs(recipe, model, splits.train, splits.graphs, negatives),
        splits.dev,
        RunFolder(folder),
        Ranks(),
        SilentProgress(),
        stored_features=False,
        stopping=lambda: False,
        graphs=splits.graphs,
    )
    trainer.step.prepare(train_backbone=False)
    return trainer


def first_gradients(values: Mapping[str, Any], folder: Path) -> dict[str, torch.Tensor]:
    """Of every parameter, in the first step of sixteen pairs."""
    trainer = trainer_of(values, folder)
    trainer.step(trainer.pairs.batch(0, trainer.pairs.order(0)[:16]), 0)
    return {name: parameter.grad.clone() for name, parameter in trainer.step.parameters.items()}

"""Tiny recipes over images, and the models that are built from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.data.support import entry, write_karpathy
from tests.support_models import RESNET, SIDE, picture
from tests.training.support import tiny_values

from vse._util.strict import parse
from vse.errors import InputError
from vse.models.vse_model import VSEModel
from vse.training.data import build_tokenizer, open_splits
from vse.training.model import build_model
from vse.training.recipe import Recipe

GRID = {"kind": "grid", "backbone": {"name": "caffe-resnet", "options": RESNET}, "image_size": SIDE}


def write_photographs(folder: Path) -> Path:
    """Ten small images with captions, eight of them to train on."""
    images = []
    for number in range(10):
        name = f"{number}.png"
        (folder / "images").mkdir(exist_ok=True)
        Image.fromarray(picture(number)).save(folder / "images" / name)
        split = "train" if number < 8 else "val"
        images.append(entry(name, split, f"a dog number {number}", f"the cat of picture {number}"))
    write_karpathy(folder / "dataset_tiny.json", images)
    return folder


def recipe_over(folder: Path, keys: dict[str, Any], **changes: Any) -> Recipe:
    """A tiny recipe with ``keys`` in its data table."""
    values = tiny_values(folder, **changes)
    return parse(Recipe, values | {"data": values["data"] | keys}, "test")


def grid_recipe(pictures: Path, *, seed: int = 3, features: Path | None = None, **changes: Any) -> Recipe:
    keys = {"dev": "val", **({"features": str(features)} if features else {})}
    model = {"image": GRID} | changes.pop("model", {})
    return recipe_over(pictures, keys, seed=seed, model=model, **changes)


def built(recipe: Recipe) -> VSEModel:
    splits = open_splits(recipe)
    return build_model(recipe, build_tokenizer(recipe, splits.train.captions), splits, "test")


def backbone_of(model: VSEModel) -> Any:
    return model.image_encoder.backbone


def one_line(error: pytest.ExceptionInfo[InputError]) -> str:
    (line,) = str(error.value).splitlines()
    return line

"""Every recipe of a compared system takes a step on a truncated copy of its kind of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support_models import BERT, RESNET, SIDE, write_wordpieces
from tests.training.support import WIDTH, write_pairs, write_pictures
from tests.training.support_steps import trainer_of

from vse.encoders.transformer_text import create_transformer
from vse.training.recipe import EnsembleRecipe, Recipe
from vse.training.recipes import list_recipes, read_recipe

SYSTEMS = ("vsrn", "liwe", "de", "cvse", "sco", "gxn", "scan", "scan-t2i", "scan-i2t", "imram", "caan", "cross-encoder")
ENDINGS = tuple(f"-{system}" for system in SYSTEMS)
NAMES = [each for each in list_recipes() if each.startswith(("coco-", "f30k-")) and each.endswith(ENDINGS)]


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Path]:
    """Region features and captions, image files and captions, and a tiny BERT with its words."""
    folder = tmp_path_factory.mktemp("truncated")
    write_pictures(folder / "pictures", 8, 2)
    bert = folder / "bert"
    create_transformer({**BERT, "num_hidden_layers": 1}).save_pretrained(write_wordpieces(bert))
    return {"regions": write_pairs(folder / "regions", 8, 2), "files": folder / "pictures/table.jsonl", "bert": bert}


def shrunk(name: str, places: dict[str, Path]) -> Recipe:
    """The recipe at the widths of a test, with its own losses, poolings, optimizer and schedule."""
    recipe = read_recipe(name)
    if isinstance(recipe, EnsembleRecipe):
        recipe = read_recipe(recipe.members[0].recipe)
    values = recipe.model_dump(mode="json", exclude_none=True)
    model: dict[str, Any] = values["model"]
    data = values["data"]
    data.pop("vocabulary", None)
    data |= {"path": str(places["regions"]), "min_count": 1}
    values["schedule"]["batch_size"] = 4
    values["run"] |= {"threads": 1, "readers": 1}
    if model["kind"] == "cross":
        model |= {"feature_size": WIDTH, "pretrained_bert": str(places["bert"])}
        return Recipe.model_validate(values)
    model["embed_size"] = 16
    image, text = model["image"], model["text"]
    if image["kind"] == "grid":
        data["path"] = str(places["files"])
        model.pop("backbone_weights", None)
        image |= {"backbone": {"name": "caffe-resnet", "options": RESNET}, "image_size": SIDE}
    else:
        image |= {"feature_size": WIDTH, "hidden_size": 8}
    if text["kind"] == "transformer":
        text["pretrained"] = str(places["bert"])
    else:
        text["word_size"] = 8
    system = model.get("system")
    if isinstance(system, dict):
        system |= {key: 8 for key in ("concept_size", "generator_size") if key in system}
        system |= {"concepts": 2} if "concepts" in system else {}
        if "decoder" in system:
            system["decoder"] |= {"hidden_size": 8, "word_size": 8}
    return Recipe.model_validate(values)


@pytest.mark.parametrize("name", NAMES)
def test_recipe_of_a_system_takes_a_step_on_truncated_data(name, places, tmp_path):
    """A finite loss, and a gradient in every tower."""
    recipe = shrunk(name, places)
    trainer = trainer_of(recipe.model_dump(mode="json", exclude_none=True), tmp_path)
    metrics = trainer.step(trainer.pairs.batch(0, trainer.pairs.order(0)[:4]), 0)
    assert torch.isfinite(torch.as_tensor(metrics.loss))
    moved = {each.split(".")[0] for each, value in trainer.step.parameters.items() if value.grad is not None}
    assert moved >= ({"transformer", "regions"} if recipe.model.kind == "cross" else {"image_encoder", "text_encoder"})


def test_every_system_of_the_paper_has_a_recipe_for_both_datasets():
    """Eleven trained systems and the ensemble of SCAN, on COCO and on Flickr30K."""
    found = {name.split("-", 1)[0]: set() for name in NAMES}
    for name in NAMES:
        found[name.split("-", 1)[0]].add(next(each for each in reversed(SYSTEMS) if name.endswith(f"-{each}")))
    assert found == {"coco": set(SYSTEMS), "f30k": set(SYSTEMS)}

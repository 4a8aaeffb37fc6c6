"""Every extension of the example works by its name alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vse
from vse.cli.main import main
from vse.data import check_data, open_data
from vse.encoders import create_backbone
from vse.index import collection_exists, create_collection, open_collection
from vse.models.build import build_pooling
from vse.pooling import create_pooling, list_poolings
from vse.training.recipe import LossRecipe
from vse.training.recipes import read_recipe
from vse.training.schedule import Objective


def test_plugin_pooling_is_the_median():
    """``median`` is listed, and is what numpy computes, whatever the sizes."""
    features, lengths = torch.randn(3, 6, 4), torch.tensor([6, 5, 1])
    pooled = create_pooling("median")(features, lengths=lengths)
    for row, length, found in zip(features, lengths, pooled, strict=True):
        np.testing.assert_allclose(np.median(row[:length].numpy(), axis=0), found.numpy(), rtol=1e-6)
    assert "median" in list_poolings()


def test_plugin_loss_has_its_options_in_a_recipe():
    """``loss.objective = "sigmoid"``: a small loss for scores that are right, with the options of the recipe."""
    right, wrong = 2 * torch.eye(3) - 1, 1 - 2 * torch.eye(3)
    objective = Objective(LossRecipe(objective="sigmoid", options={"scale": 20.0, "bias": 0.0}), 10, 2)
    assert objective(right, torch.arange(3), 0) < 1e-6 < objective(wrong, torch.arange(3), 0)
    assert objective.describe(0) == "sigmoid"
    assert not objective.can_soften


def test_recipe_takes_plugins_by_name():
    """``--set`` with the names of the plugins makes a valid recipe that keeps them, and builds their pooling."""
    changes = ["model.image.pooling=median", "loss.objective=sigmoid", "loss.options={scale = 5.0}"]
    recipe = read_recipe("scenes-vse-infinity", changes)
    assert (recipe.loss.objective, recipe.loss.options) == ("sigmoid", {"scale": 5.0})
    assert type(build_pooling(recipe.model.image.pooling, 8)).__name__ == "MedianPool"
    assert type(recipe).model_validate(recipe.model_dump(mode="json")) == recipe


def test_model_of_plugins_trains_loads_and_is_evaluated(tmp_path):
    """Backbone, text encoder, pooling and loss by name: ``vse.train`` writes a model that loads and has recalls."""
    assert main(["data", "scenes", str(tmp_path / "scenes"), "--train", "8", "--dev", "4", "--test", "4"]) == 0
    (tmp_path / "mine.toml").write_text(f"""
        data = {{ path = {str(tmp_path / "scenes")!r}, min_count = 1 }}
        loss = {{ objective = "sigmoid", options = {{ scale = 5.0 }} }}
        schedule = {{ epochs = 1, batch_size = 8, decay_epochs = 0 }}
        run = {{ threads = 1, readers = 1 }}
        [model]
        embed_size = 16
        text = {{ kind = "plugin", encoder = "convolved", options = {{ word_size = 8 }}, pooling = "gpo" }}
        [model.image]
        kind = "grid"
        backbone = {{ name = "patches", options = {{ channels = 8 }} }}
        image_size = 64
        pooling = "median"
    """)
    result = vse.train(tmp_path / "mine.toml", tmp_path / "run")
    model = vse.load(result.model)
    assert type(model.image_encoder.pooling).__name__ == "MedianPool"
    texts = model.encode_texts(["a red circle", "a blue square"])
    np.testing.assert_allclose(texts[:1], model.encode_texts(["a red circle"]), atol=1e-6)
    np.testing.assert_allclose(texts, vse.load(result.model).encode_texts(["a red circle", "a blue square"]))
    evaluated = vse.evaluate(result.model, tmp_path / "scenes", split="test").results[0]
    assert 0 <= evaluated.metrics.rsum <= 600


def test_plugin_backbone_takes_options():
    """``patches`` maps pixels to one cell per patch."""
    backbone = create_backbone("patches", channels=8)
    assert backbone(torch.zeros(2, 3, 64, 32)).shape == (2, 8, 8)
    assert backbone.grid(64, 32) == (4, 2)


def test_plugin_layout_is_detected(tmp_path):
    """A file with the header of the layout is read by it, and checked as any other."""
    (tmp_path / "a.jpg").write_bytes(b"x")
    (tmp_path / "list.txt").write_text("# pairs\na.jpg: a dog\na.jpg: a brown dog\n")
    data = open_data(tmp_path / "list.txt", "all")
    assert (data.layout, len(data.images), data.captions) == ("pairs", 1, ("a dog", "a brown dog"))
    assert check_data(tmp_path / "list.txt").layout == "pairs"


def test_plugin_backend_opens_its_addresses(tmp_path, monkeypatch):
    """``temp+NAME`` creates and opens a collection; an address that the plugin refuses is its error."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert not collection_exists("temp+mine")
    create_collection("temp+mine", model="m", dimensions=4).close()
    with open_collection("temp+mine") as collection:
        assert collection.info().dimensions == 4
    assert (tmp_path / "vse-mine.vse").is_dir()
    with pytest.raises(ValueError, match=r"expected temp\+NAME"):
        open_collection("temp+../x")


def test_plugin_command_runs(capsys):
    """``vse hello`` is a command, with help of its own."""
    assert main(["hello", "plugin"]) == 0
    assert capsys.readouterr().out == "hello plugin\n"
    assert main(["hello", "--help"]) == 0
    assert "Greet somebody." in capsys.readouterr().out

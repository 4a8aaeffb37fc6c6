"""Fine-tuning of a public dual encoder: it starts as published, learns, resumes, and needs nothing of its origin."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.models.published import SIZE, WIDTH, save_open_clip, save_transformers, transformers
from tests.training.support import tiny_recipe
from tests.training.support_recipes import refusal
from tests.training.support_runs import EVERY_STEP, assert_same_run, interrupted

import vse
from vse._util.strict import parse
from vse.cli.main import main
from vse.evaluation.retrieval_test import evaluate_split
from vse.models import inspect_folder
from vse.models.config import PoolingConfig
from vse.models.dual_model import base_repository, with_pooling
from vse.training import Recipe, train
from vse.training.data import build_tokenizer, open_splits, training_pairs
from vse.training.log import read_metrics
from vse.training.model import build_model
from vse.training.optimizer import create_optimizer

pytest.importorskip("transformers")
COLOURS = {"red": (220, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 220), "white": (240, 240, 240)}
PLACES = {"top": (slice(0, 16), slice(None)), "bottom": (slice(16, 32), slice(None)), "left": (..., slice(0, 16))}


def write_squares(folder: Path, copies: int = 2) -> Path:
    """Noise with a coloured half, and a caption that names colour and half."""
    folder.mkdir(parents=True)
    rows = []
    for number, (split, copy) in enumerate([("train", n) for n in range(copies)] + [("dev", 0), ("test", 0)]):
        generator = np.random.default_rng(number)
        for colour, values in COLOURS.items():
            for place, (down, across) in PLACES.items():
                pixels = generator.integers(0, 80, (32, 32, 3), dtype=np.uint8)
                pixels[down if across == slice(None) else slice(None), across] = values
                name = f"{split}-{copy}-{colour}-{place}.png"
                Image.fromarray(pixels).save(folder / name)
                rows.append({"path": name, "caption": f"a {colour} stripe at the {place}", "split": split})
    table = folder / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return table


def dual_values(folder: Path, start: Path, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "seed": 3,
        "data": {"path": str(folder / "data/table.jsonl")},
        "model": {"start": str(start), "image": {"kind": "dual", "pooling": "gpo"}, "text": {"kind": "dual"}},
        "schedule": {"epochs": 10, "batch_size": 12, "decay": "cosine", "frozen_epochs": 0},
        "loss": {"objective": "contrastive", "temperature": 0.1, "reduction": "mean"},
        "optimizer": {"lr": 0.02, "backbone_factor": 0.2, "transformer_factor": 0.2},
        "augmentation": {"image": "drop", "text": "none"},
        "run": {"threads": 1, "readers": 1},
    }
    for table, given in changes.items():
        values[table] = values[table] | given
    return values


def dual_recipe(folder: Path, start: Path, **changes: Any) -> Recipe:
    if not (folder / "data").is_dir():
        write_squares(folder / "data")
    return parse(Recipe, dual_values(folder, start, **changes), "test")


def built(recipe: Recipe) -> Any:
    splits = open_splits(recipe)
    return build_model(recipe, build_tokenizer(recipe, splits.train.captions), splits, "mine")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    save_transformers(folder)
    return folder


@pytest.fixture(scope="module")
def siglip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("siglip")
    save_transformers(folder, "siglip")
    return folder


class TestDualStart:
    """Step 0."""

    @pytest.mark.parametrize("family", ["clip", "siglip"])
    def test_step_0_is_the_published_model(self, tmp_path, family, request):
        """Same scores, zero-shot; the pooling is there with weight 0 and the origin is recorded."""
        start = request.getfixturevalue(family)
        recipe = dual_recipe(tmp_path, start)
        model, published, dev = built(recipe), vse.load(start), open_splits(recipe).dev
        assert model.grid_cells == 16
        assert float(model.image_encoder.gate.detach()) == 0
        torch.testing.assert_close(model.image_encoder.pooling.coefficients(16), torch.full((16,), 1 / 16))
        assert evaluate_split(model, dev) == evaluate_split(published, dev)
        images = list(dev.images)[:3]
        np.testing.assert_array_equal(model.encode_images(images), published.encode_images(images))
        assert model.config.foreign == published.config.foreign
        about = model.config.about
        assert (about.name, about.source) == ("mine", "trained with vse")
        assert about.recipe["model.embed_size"] == published.embed_size
        assert (about.recipe["model.start"], about.base_model) == (start.name, None)

    def test_a_model_of_the_hub_is_named_as_the_base(self, clip):
        """By its id, whichever name of it the recipe has; a folder is none."""
        model = vse.load(clip)
        assert base_repository(model, "anything") is None
        model.config = model.config.model_copy(update={"foreign": {"source": "hub:openai/clip"}})
        assert base_repository(model, "runs/mine/best") == "openai/clip"

    def test_a_saved_dual_model_is_a_start_too(self, tmp_path, clip):
        """Its pooling is kept as trained, and another one is refused."""
        tuned = with_pooling(vse.load(clip), PoolingConfig(name="gpo"))
        with torch.no_grad():
            tuned.image_encoder.gate.fill_(0.5)
        tuned.save(tmp_path / "tuned")
        again = built(dual_recipe(tmp_path, tmp_path / "tuned"))
        assert float(again.image_encoder.gate.detach()) == 0.5
        other = dual_recipe(tmp_path, tmp_path / "tuned", model={"image": {"kind": "dual", "pooling": "max"}})
        assert "pools patches with 'gpo' already" in refusal(lambda: built(other))

    def test_groups_of_a_dual_model_have_their_rates(self, tmp_path, clip):
        """Both towers are slow, pooling and its weight are not."""
        recipe = dual_recipe(tmp_path, clip)
        model = built(recipe)
        groups = create_optimizer(dict(model.named_parameters()), recipe.optimizer).param_groups
        assert [group["lr"] for group in groups] == pytest.approx([0.004, 0.004, 0.02])
        rest = {id(value) for value in groups[2]["params"]}
        names = {name for name, value in model.named_parameters() if id(value) in rest}
        assert "image_encoder.gate" in names
        assert all(name.startswith(("image_encoder.gate", "image_encoder.pooling.")) for name in names)

    @pytest.mark.parametrize("pooling", ["own", "gpo"])
    def test_patches_are_dropped_where_they_are_pooled(self, tmp_path, clip, pooling):
        """A mask over patches for GPO, none for the model alone; views are random for both."""
        image = "drop" if pooling == "gpo" else "none"
        recipe = dual_recipe(
            tmp_path, clip, model={"image": {"kind": "dual", "pooling": pooling}}, augmentation={"image": image}
        )
        pairs = training_pairs(recipe, built(recipe), open_splits(recipe).train)
        first, second = (pairs.batch(epoch, np.arange(4)) for epoch in (0, 1))
        assert first.images.shape == (4, 3, SIZE, SIZE)
        assert not np.array_equal(first.images, second.images)
        if pooling == "own":
            assert first.mask is None
        else:
            assert first.mask.shape == (4, 16)
            assert not first.mask.all()


class TestDualRefusals:
    """One line each."""

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"model": {"start": None}}, "start is missing"),
            ({"model": {"text": {"kind": "bigru"}}}, 'image.kind is "dual" and text.kind "bigru"'),
            ({"model": {"image": {"kind": "dual"}}}, 'augmentation.image "drop" drops patches'),
            ({"model": {"pretrained": True}}, "all weights come from start"),
            ({"model": {"image": {"kind": "dual", "pooling": "gpoo"}}}, "gpoo"),
            ({"data": {"features": "store"}}, "data.features is not for a dual encoder"),
            ({"data": {"max_tokens": 20}}, "data.max_tokens is not for a dual encoder"),
        ],
    )
    def test_recipes_that_no_dual_encoder_fits(self, tmp_path, changes, words):
        """The message names the key."""
        assert words in refusal(lambda: dual_recipe(tmp_path, tmp_path / "clip", **changes))

    def test_other_models_are_no_start_of_a_dual_recipe(self, tmp_path, clip):
        """Another width that was asked for, an export, a region model, patches of open_clip."""
        assert "leave it out" in refusal(lambda: built(dual_recipe(tmp_path, clip, model={"embed_size": 64})))
        assert built(dual_recipe(tmp_path, clip, model={"embed_size": 12})).embed_size == 12
        assert "already an export" in refusal(lambda: built(dual_recipe(tmp_path, Path("photo"))))
        save_open_clip(tmp_path / "open")
        assert "patches of open_clip" in refusal(lambda: built(dual_recipe(tmp_path, tmp_path / "open")))


class TestDualRuns:
    """Whole runs."""

    def test_fine_tuning_improves_and_the_result_stands_alone(self, tmp_path, clip, monkeypatch):
        """Dev rsum rises over zero-shot, the gate opens; best is evaluated and exported without the start."""
        monkeypatch.chdir(tmp_path)
        start = shutil.copytree(clip, tmp_path / "start")
        recipe = dual_recipe(tmp_path, start)
        before = evaluate_split(vse.load(start), open_splits(recipe).dev).rsum
        result = train(recipe, tmp_path / "run")
        losses = [row["loss"] for row in read_metrics(tmp_path / "run") if "loss" in row and "dev" not in row]
        assert np.mean(losses[-4:]) < 0.8 * np.mean(losses[:2])
        shutil.rmtree(start)
        model = vse.load(tmp_path / "run/best")
        assert abs(float(model.image_encoder.gate.detach())) > 1e-3
        after = evaluate_split(model, open_splits(recipe).dev).rsum
        assert after > before + 50
        assert result.model.samefile(tmp_path / "run/best")
        assert model.pooling_curves()[0].size == 4
        options = ["--data", "data/table.jsonl", "--split", "dev", "--out", "scores.json"]
        assert main(["eval", "run/best", *options, "--samples", "5"]) == 0
        assert main(["export", "run/best", "exported"]) == 0
        for folder in ("run/best", "exported"):
            report = inspect_folder(tmp_path / folder)
            assert (report.about.name, report.embed_size, len(report.towers)) == ("run", 12, 2)
            assert report.towers[0].pooling == "gpo"
        exported = vse.load(tmp_path / "exported")
        texts = ["a red stripe at the top", "a green stripe"]
        np.testing.assert_allclose(exported.encode_texts(texts), model.encode_texts(texts), atol=1e-4)
        images = sorted((tmp_path / "data").glob("dev-*.png"))[:4]
        np.testing.assert_allclose(exported.encode_images(images), model.encode_images(images), atol=1e-4)

    def test_an_interrupted_fine_tuning_resumes_exactly(self, tmp_path, siglip):
        """With dropped patches, random views, averaged weights, and a tower frozen at first."""
        changes: dict[str, Any] = {
            "schedule": {"epochs": 3, "frozen_epochs": 1},
            "run": EVERY_STEP | {"average": 0.9},
        }
        recipe = dual_recipe(tmp_path, siglip, **changes)
        interrupted(recipe, tmp_path / "whole")
        interrupted(recipe, tmp_path / "parts", at=5)
        interrupted(recipe, tmp_path / "parts", at=4)
        interrupted(recipe, tmp_path / "parts")
        assert_same_run(tmp_path / "parts", tmp_path / "whole")

    @pytest.mark.parametrize("changes", [{"micro_batches": 2}, {"precision": "bf16"}, {"precision": "fp64"}], ids=str)
    def test_a_dual_model_trains_in_other_precisions_and_in_parts(self, tmp_path, clip, changes):
        """A step in each."""
        recipe = dual_recipe(tmp_path, clip, schedule={"epochs": 1}, run={"threads": 1, **changes})
        assert train(recipe, tmp_path / "run").model.is_dir()


def test_a_grid_of_dinov2_starts_as_the_average(tmp_path):
    """A vision transformer from a folder below a GPO that starts as the average: equal weights at step 0."""
    hf = transformers()
    config = hf.Dinov2Config(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=2, image_size=28, patch_size=14
    )
    torch.manual_seed(0)
    hf.Dinov2Model(config).save_pretrained(tmp_path / "dino")
    hf.BitImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}).save_pretrained(
        tmp_path / "dino"
    )
    image = {
        "kind": "grid",
        "backbone": f"transformers:{tmp_path / 'dino'}",
        "image_size": 28,
        "pooling": {"name": "gpo", "options": {"start": "average"}},
    }
    data = write_squares(tmp_path / "data")
    model = {"image": image, "text": {"kind": "bigru"}, "embed_size": 8, "pretrained": True}
    recipe = tiny_recipe(data, model=model, schedule={"epochs": 1, "batch_size": 12, "decay_epochs": 0})
    start = built(recipe).eval()
    assert start.grid_cells == 4
    pixels = torch.randn(2, 3, 28, 28)
    cells, _ = start.image_encoder.elements(pixels)
    expected = torch.nn.functional.normalize(cells.mean(1), dim=-1)
    torch.testing.assert_close(start.image_encoder(pixels), expected)
    trained = vse.load(train(recipe, tmp_path / "run").model)
    assert trained.embed_size == 8

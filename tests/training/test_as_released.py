"""Training as the authors' code does: the options that the preset turns on, and what each of them changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.support import tiny_recipe, write_pairs, write_pictures, write_toml

from vse.cli.main import main
from vse.encoders.image import create_projection
from vse.errors import InputError
from vse.inputs import Vocabulary
from vse.training import train
from vse.training.augmentation import TextAugmentation
from vse.training.data import open_splits
from vse.training.log import read_metrics
from vse.training.recipe import ReleasedRecipe, ScheduleRecipe
from vse.training.recipes import read_recipe, released_changes
from vse.training.schedule import rate_factor, warmup_factor

PLAIN = ReleasedRecipe()


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("released") / "data")


def test_recipes_have_no_habit_of_the_released_code_by_default():
    """Neither the defaults nor a recipe of the paper turn one on."""
    recipe = read_recipe("f30k-butd-region-bigru-vse-infinity")
    assert recipe.released == PLAIN
    assert not any(PLAIN.model_dump().values())
    assert recipe.data.dev_captions is None


@pytest.mark.parametrize(
    ("name", "warmup"), [("coco-butd-region-bigru-vse-infinity", 0), ("coco-wsl-grid-bert-vse-infinity", 1)]
)
def test_as_released_sets_every_habit(name, warmup):
    """Regions have no warm-up, grids scale the loss; everything else is the same for both."""
    recipe = read_recipe(name, released_changes(name))
    assert all(recipe.released.model_dump().values())
    assert recipe.schedule.warmup_epochs == warmup
    assert recipe.data.dev_captions == 5000
    assert recipe.loss.same_image == "negatives"
    assert (recipe.augmentation.image, recipe.augmentation.text) == ("released", "released")


@pytest.mark.parametrize("name", ["msvd-hgr", "msvd-vse-infinity", "clip-gpo", "f30k-butd-both-bigru-vse-infinity"])
def test_as_released_refuses_models_that_the_code_does_not_train(name):
    """Videos, dual encoders, and an ensemble, which has no values of its own."""
    with pytest.raises(InputError, match=r"ensemble|not this one"):
        released_changes(name)


def test_command_shows_recipe_as_released(data, tmp_path, capsys):
    """``--set`` has the last word."""
    path = write_toml(tmp_path / "tiny.toml", {"data": {"path": str(data)}})
    assert main(["train", str(path), "--as-released", "--set", "released.padded_norm=false", "--show"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["released"] == {
        "scaled_loss": True,
        "padded_norm": False,
        "partial_batch": True,
        "special_words": True,
    }


def test_scaled_loss_begins_at_zero_and_keeps_the_rate():
    """Step i of n of the warm-up has the loss times i / n and the full learning rate."""
    schedule = ScheduleRecipe(epochs=3, warmup_from=1, warmup_epochs=1, decay_epochs=0)
    assert [warmup_factor(schedule, step, 4, first=0) for step in range(12)] == [1] * 4 + [0, 0.25, 0.5, 0.75] + [1] * 4
    assert [rate_factor(schedule, step, 4, warm_up=False) for step in range(12)] == [1] * 12


def test_scaled_loss_leaves_weights_alone_in_its_first_step(data, tmp_path):
    """The gradient of the first step of the warm-up is zero, that of the second is not."""
    recipe = tiny_recipe(
        data,
        schedule={"epochs": 2, "batch_size": 16, "decay_epochs": 0, "warmup_from": 1, "warmup_epochs": 1},
        released={"scaled_loss": True},
    )
    train(recipe, tmp_path / "run")
    steps = [line for line in read_metrics(tmp_path / "run") if line["kind"] == "step"]
    assert steps[8]["gradient"] > 0
    assert steps[9]["gradient"] == 0
    assert steps[10]["gradient"] > 0
    assert len({line["lr"] for line in steps}) == 1


def test_padded_norm_counts_padding_in_training_alone():
    """Statistics are those of all rows with zeros for the padding; valid rows of an evaluation are the same."""
    torch.manual_seed(0)
    features = torch.randn(3, 4, 5)
    mask = torch.tensor([[True] * 4, [True, True, False, False], [True, False, False, False]])
    features[~mask] = float("nan")
    usual, padded = (create_projection("residual-mlp", 5, 6, 7) for _ in range(2))
    padded.load_state_dict(usual.state_dict())
    padded.padded_norm = True
    usual(features, mask), padded(features, mask)
    hidden = usual.hidden(features.masked_fill(~mask.unsqueeze(-1), 0))
    torch.testing.assert_close(padded.norm.running_mean, 0.1 * hidden.flatten(0, 1).mean(0))
    torch.testing.assert_close(usual.norm.running_mean, 0.1 * hidden[mask].mean(0))
    padded.load_state_dict(usual.state_dict())
    usual.eval(), padded.eval()
    torch.testing.assert_close(usual(features, mask)[mask], padded(features, mask)[mask])


def test_dev_captions_keep_first_images(data, tmp_path):
    """The first captions of dev with their images; all of dev if there are fewer."""
    some = open_splits(tiny_recipe(data, data={"path": str(data), "dev_captions": 9})).dev
    every = open_splits(tiny_recipe(data)).dev
    assert (len(some.images), some.captions) == (3, every.captions[:9])
    np.testing.assert_array_equal(some.images[2], every.images[2])
    many = open_splits(tiny_recipe(data, data={"path": str(data), "dev_captions": 5000})).dev
    assert many.captions == every.captions


def test_special_words_may_replace_a_word():
    """Without the option no random word is a special token."""
    tokenizer = Vocabulary.build([f"w{n}" for n in range(4)], min_count=1).tokenizer(60)
    batch = tokenizer.encode(["w0 w1 w2 w3"])
    tokens, words = batch.tokens[0].astype(np.int32), batch.words[0].astype(np.int32)
    found = {}
    for special in (False, True):
        augment, draws = TextAugmentation("released", 0.9, tokenizer, special_words=special), np.random.default_rng(0)
        found[special] = {int(token) for _ in range(2000) for token in augment(tokens, words, draws)}
    assert tokenizer.pad_id not in found[False]
    assert tokenizer.pad_id in found[True]


def test_partial_batch_ends_an_epoch_of_image_files(tmp_path):
    """Sixteen pairs in batches of six are two steps, with the remainder three; features never have one."""
    table = write_pictures(tmp_path / "pictures")
    image = {"backbone": {"name": "timm:resnet18"}, "kind": "grid", "pooling": "avg"}
    steps = {}
    for partial in (False, True):
        recipe = tiny_recipe(
            table,
            model={"embed_size": 8, "image": image, "text": {"kind": "bigru", "word_size": 8}},
            schedule={"epochs": 1, "batch_size": 6, "decay_epochs": 0},
            released={"partial_batch": partial},
        )
        train(recipe, tmp_path / str(partial))
        steps[partial] = sum(line["kind"] == "step" for line in read_metrics(tmp_path / str(partial)))
    assert steps == {False: 2, True: 3}


def test_partial_batch_refuses_micro_batches(data):
    """A smaller batch cannot be split into equal parts."""
    with pytest.raises(InputError, match=r"partial_batch and run\.micro_batches"):
        tiny_recipe(data, released={"partial_batch": True}, run={"micro_batches": 2})

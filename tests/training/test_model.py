"""From a recipe to a model: which data a run may be continued with, and what is refused before training begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support_models import RESNET, SIDE, write_wordpieces
from tests.training.support import WIDTH, tiny_recipe, write_pairs
from tests.training.support_build import GRID, backbone_of, built, grid_recipe, one_line, recipe_over, write_photographs

from vse.data.features import FeatureStore
from vse.errors import InputError
from vse.inputs import Vocabulary
from vse.models.extract import extract_features, find_images
from vse.training.augmentation import keep_cells_as_released
from vse.training.data import build_tokenizer, open_splits, training_pairs
from vse.training.keyed import Purpose, keyed
from vse.training.model import build_model
from vse.training.recipe import Recipe, flat


@pytest.fixture
def regions(tmp_path) -> Path:
    return write_pairs(tmp_path / "regions", train=8, dev=4)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    return write_photographs(tmp_path_factory.mktemp("pictures"))


# What a run is about


def identity(path: Path) -> dict[str, Any]:
    return identity_of(tiny_recipe(path))


def identity_of(recipe: Recipe) -> dict[str, Any]:
    splits = open_splits(recipe)
    return splits.identity(build_tokenizer(recipe, splits.train.captions))


def test_other_words_are_other_data(regions):
    """The same captions read with another vocabulary."""
    fewer = tiny_recipe(regions, model={"text": {"kind": "bigru", "word_size": 8}})
    changed = fewer.model_copy(update={"data": fewer.data.model_copy(update={"min_count": 10})})
    assert identity_of(fewer)["train"] == identity_of(changed)["train"]
    assert identity_of(fewer)["tokenizer"] != identity_of(changed)["tokenizer"]


def test_the_same_data_has_the_same_identity(regions, tmp_path):
    """Wherever it lies."""
    copy = write_pairs(tmp_path / "elsewhere", train=8, dev=4)
    assert identity(copy) == identity(regions)


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("file", ["caps", "ids"])
def test_other_captions_or_names_are_other_data(regions, split, file):
    """One word of one caption, or one name, and only that split's part changes."""
    before = identity(regions)
    path = regions / f"{split}_{file}.txt"
    lines = path.read_text().splitlines()
    lines[3] += "x"
    path.write_text("\n".join(lines) + "\n")
    after = identity(regions)
    assert after[split] != before[split]
    other = "dev" if split == "train" else "train"
    assert after[other] == before[other]


def test_names_are_told_apart_by_their_order(regions):
    """The same names for other images."""
    before = identity(regions)
    path = regions / "train_ids.txt"
    path.write_text("\n".join(reversed(path.read_text().splitlines())) + "\n")
    assert identity(regions)["train"] != before["train"]


def test_other_region_features_are_other_data(regions):
    """A run does not resume with other features."""
    before = identity(regions)
    np.save(regions / "train_ims.npy", 2 * np.load(regions / "train_ims.npy"))
    assert identity(regions) != before


def test_stored_features_are_part_of_the_identity(pictures, tmp_path):
    """The fingerprint of the backbone that made them; images themselves have none."""
    recipe = grid_recipe(pictures)
    found = {}
    for seed in (3, 4):
        store = tmp_path / str(seed)
        extract_features(find_images(pictures), backbone_of(built(grid_recipe(pictures, seed=seed))), store, size=SIDE)
        found[seed] = identity_of(grid_recipe(pictures, features=store))
        assert found[seed]["features"] == FeatureStore.open(store).header.fingerprint
    assert found[3]["features"] != found[4]["features"]
    plain = identity_of(recipe)
    assert plain["features"] is None
    assert plain["train"] == found[3]["train"]


def test_data_that_cannot_be_trained_on(regions):
    """No path, and a split that is not there."""
    with pytest.raises(InputError, match=r"data\.path is missing: name the dataset in the recipe, or with --data DIR"):
        open_splits(recipe_over(regions, {"path": ""}))
    with pytest.raises(InputError, match="unknown split 'other'") as error:
        open_splits(recipe_over(regions, {"dev": "other"}))
    one_line(error)


# Models


def test_a_seed_decides_the_weights(regions):
    """Equal seeds, equal weights, whatever torch drew before, whose own generator is left alone."""
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = built(tiny_recipe(regions))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    again, other = built(tiny_recipe(regions)), built(tiny_recipe(regions, seed=4))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def test_trained_model_records_recipe_and_words(regions):
    """Its card holds the recipe under dotted keys; its words are those of the training captions."""
    recipe = recipe_over(regions, {"min_count": 2})
    model = built(recipe)
    assert model.config.about.name == "test"
    assert model.config.about.recipe["schedule.epochs"] == 3
    assert model.config.about.recipe["model.text.word_size"] == 8
    captions = (regions / "train_caps.txt").read_text().split()
    words = {word for word in captions if captions.count(word) >= 2}
    assert model.tokenizer.vocab_size == len(words) + 5
    assert model.config.text.vocabulary_size == len(words) + 5


def test_double_precision_is_in_the_weights(regions):
    """``fp64`` converts every one of them."""
    model = built(tiny_recipe(regions, run={"precision": "fp64", "threads": 1}))
    assert {value.dtype for value in model.parameters()} == {torch.float64}


def test_training_refuses_features_of_another_width(regions):
    """The message names both widths and the key to set."""
    image = {"kind": "region", "feature_size": WIDTH + 1, "hidden_size": 8, "head": "linear"}
    recipe = tiny_recipe(regions, model={"image": image})
    with pytest.raises(InputError) as error:
        built(recipe)
    assert f"features of {WIDTH} values, and the model takes {WIDTH + 1}" in one_line(error)
    assert "model.image.feature_size" in one_line(error)


def test_a_transformer_brings_its_own_tokenizer(regions, tmp_path):
    """Its pieces, cut where the recipe says; without a source there is nothing to train from."""
    folder = write_wordpieces(tmp_path / "bert")
    text = {"kind": "transformer", "pretrained": str(folder)}
    recipe = recipe_over(regions, {"max_tokens": 7}, model={"text": text})
    tokenizer = build_tokenizer(recipe, ())
    assert tokenizer.kind == "subwords"
    assert tokenizer.max_length == 7
    with pytest.raises(InputError, match=r"model\.text\.pretrained is missing"):
        build_tokenizer(tiny_recipe(regions, model={"text": {"kind": "transformer", "architecture": {}}}), ())


def test_a_vocabulary_from_a_file(regions, tmp_path):
    """Its words in its order, not those of the captions."""
    Vocabulary(["<pad>", "<start>", "<end>", "<unk>", "zebra"]).save(tmp_path / "words.json")
    recipe = recipe_over(regions, {"vocabulary": str(tmp_path / "words.json")})
    assert build_tokenizer(recipe, ("a dog",)).encode(["zebra dog"]).tokens.tolist() == [[1, 4, 3, 2]]


# Stored features


@pytest.fixture(scope="module")
def store(pictures, tmp_path_factory) -> Path:
    """The features of the backbone that the recipe builds from its seed."""
    folder = tmp_path_factory.mktemp("store") / "features"
    extract_features(find_images(pictures), backbone_of(built(grid_recipe(pictures))), folder, size=SIDE)
    return folder


def test_a_store_of_this_backbone_is_taken(pictures, store):
    """Features in the place of images, and the rule for cells is still that of a grid."""
    recipe = grid_recipe(pictures, features=store, augmentation={"image": "released", "rate": 0.5})
    splits = open_splits(recipe)
    model = build_model(recipe, build_tokenizer(recipe, splits.train.captions), splits, "test")
    pairs = training_pairs(recipe, model, splits.train)
    samples = np.arange(6)
    batch = pairs.batch(0, samples)
    cells = FeatureStore.open(store).array.shape[1]
    kept = [
        keep_cells_as_released(cells, 0.5, keyed(recipe.seed, 0, Purpose.IMAGE_ELEMENTS, sample)).sum()
        for sample in samples.tolist()
    ]
    assert batch.lengths.tolist() == kept
    assert batch.images.dtype == np.float16


def test_pictures_are_cut_into_the_cells_of_the_backbone(pictures):
    """The mask of a batch has as many columns as the backbone makes cells."""
    recipe = grid_recipe(pictures)
    splits = open_splits(recipe)
    model = build_model(recipe, build_tokenizer(recipe, splits.train.captions), splits, "test")
    batch = training_pairs(recipe, model, splits.train).batch(0, np.arange(3))
    cells = backbone_of(model).eval()(torch.from_numpy(batch.images))
    assert batch.mask.shape == cells.shape[:2]


def test_training_refuses_features_of_another_backbone(pictures, store):
    """Other weights of the same architecture: the seed differs."""
    with pytest.raises(InputError) as error:
        built(grid_recipe(pictures, seed=4, features=store))
    assert str(store) in one_line(error)
    assert "with other weights than the recipe's backbone" in one_line(error)


def test_a_store_of_other_preparation_is_refused(pictures, tmp_path):
    """The same backbone, images brought to another size."""
    recipe = grid_recipe(pictures, features=tmp_path / "small")
    extract_features(find_images(pictures), backbone_of(built(grid_recipe(pictures))), tmp_path / "small", size=64)
    with pytest.raises(InputError, match="preprocessed in another way") as error:
        built(recipe)
    assert str(tmp_path / "small") in one_line(error)


def test_a_store_of_another_width_is_refused(pictures, tmp_path):
    """Another backbone altogether; the message names its store or what to set."""
    wide = {"image": GRID | {"backbone": {"name": "caffe-resnet", "options": RESNET | {"width": 4}}}}
    extract_features(find_images(pictures), backbone_of(built(grid_recipe(pictures, model=wide))), tmp_path / "wide")
    with pytest.raises(InputError, match="features of 128 values, and the model takes 64") as error:
        built(grid_recipe(pictures, features=tmp_path / "wide"))
    one_line(error)


def test_recipe_differences_are_dotted_keys():
    """Dotted keys; what is absent or empty stays."""
    nested = {"a": {"b": 1, "c": {"d": None, "e": False}}, "f": {}, "g": [], "h": 0, "i": ""}
    assert flat(nested) == {"a.b": 1, "a.c.d": None, "a.c.e": False, "f": {}, "g": [], "h": 0, "i": ""}

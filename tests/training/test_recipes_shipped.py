"""The recipes that come with the package are the paper's."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from tests.training.support_recipes import at

from vse.models.config import About, ModelConfig
from vse.training.model_recipe import COUNTED
from vse.training.recipe import EnsembleRecipe, Recipe
from vse.training.recipes import find_recipe, list_recipes, read_recipe

# What follows is copied from the paper (and from its released code where the paper is silent), not from the files.
EVERYWHERE = {
    "model.embed_size": 1024,
    "loss.objective": "triplet",
    "loss.warmup_epochs": 1,
    "loss.margin": 0.2,
    "loss.reduction": "sum",
    "optimizer.name": "adamw",
    "optimizer.lr": 5e-4,
    "optimizer.weight_decay": 1e-4,
    "optimizer.clip": 2.0,
    "schedule.batch_size": 128,
    "schedule.epochs": 25,
    "schedule.decay": "step",
    "schedule.decay_epochs": 10,
    "schedule.decay_factor": 0.1,
    "schedule.warmup_from": 1,
    "schedule.warmup_epochs": 1,
    "guard.action": "warn",
    "data.features": None,
    "data.captions_per_image": None,
}
GRID = {
    "model.image.kind": "grid",
    "model.image.image_size": 512,
    "model.image.head": "linear",
    "schedule.frozen_epochs": 1,
    "augmentation.views": True,
}
FEATURES = {
    "butd-region": {
        "model.image.kind": "region",
        "model.image.feature_size": 2048,
        "model.image.head": "residual-mlp",
        "model.image.hidden_size": 512,
        "model.pretrained": False,
        "model.backbone_weights": None,
    },
    "butd-grid": GRID
    | {
        "model.image.backbone.name": "caffe-resnet101",
        "model.image.backbone.options": {"detector": True},
        "model.backbone_weights": "weights/original_updown_backbone.pth",
        "model.pretrained": False,
        "optimizer.backbone_factor": 0.01,
    },
    "resnet152-grid": GRID
    | {
        "model.image.backbone.name": "caffe-resnet152",
        "model.image.backbone.options": {},
        "model.backbone_weights": "timm:resnet152.tv_in1k",
        "model.pretrained": False,
        "optimizer.backbone_factor": 0.1,
    },
    "wsl-grid": GRID
    | {
        "model.image.backbone.name": "timm:resnext101_32x8d.fb_wsl_ig1b_ft_in1k",
        "model.image.backbone.options": {},
        "model.backbone_weights": None,
        "model.pretrained": True,
        "optimizer.backbone_factor": 0.01,
    },
}
TEXT = {
    "bigru": {"model.text.kind": "bigru", "model.text.word_size": 300},
    "bert": {
        "model.text.kind": "transformer",
        "model.text.pretrained": "bert-base-uncased",
        "optimizer.transformer_factor": 0.1,
        "data.vocabulary": None,
    },
}
LEARNED = {
    "model.image.pooling.name": "gpo",
    "model.text.pooling.name": "gpo",
    "loss.negatives": "hardest",
    "augmentation.image": "drop",
    "augmentation.text": "released",
    "augmentation.rate": 0.2,
}
STANDARD = {
    "model.image.pooling.name": "avg",
    "loss.negatives": "hardest",
    "augmentation.image": "none",
    "augmentation.text": "none",
}
METHODS = {"vse-infinity": LEARNED, "vse-plus-plus": STANDARD, "uvs": STANDARD | {"loss.negatives": "all"}}
STANDARD_TEXT_POOLING = {"bigru": "avg", "bert": "cls"}

# Features, text, method: the published rsum on COCO (5-fold 1K) and Flickr30K (1K), or None where none is printed.
SINGLE = {
    ("butd-region", "bigru", "vse-plus-plus"): (490.5, 442.3),
    ("butd-region", "bigru", "vse-infinity"): (520.8, 498.1),
    ("butd-region", "bert", "vse-plus-plus"): (488.9, 449.7),
    ("butd-region", "bert", "vse-infinity"): (527.5, 513.5),
    ("butd-grid", "bigru", "vse-plus-plus"): None,
    ("butd-grid", "bigru", "vse-infinity"): (521.5, 500.2),
    ("butd-grid", "bert", "vse-plus-plus"): None,
    ("butd-grid", "bert", "vse-infinity"): (531.6, 522.3),
    ("resnet152-grid", "bigru", "uvs"): (448.1, 367.8),
    ("resnet152-grid", "bigru", "vse-plus-plus"): (500.6, 456.3),
    ("resnet152-grid", "bigru", "vse-infinity"): (519.6, 500.9),
    ("wsl-grid", "bert", "vse-plus-plus"): (528.7, 524.8),
    ("wsl-grid", "bert", "vse-infinity"): (545.4, 550.9),
}
ENSEMBLES = {
    ("butd-both", "bigru", "vse-plus-plus"): None,
    ("butd-both", "bigru", "vse-infinity"): (528.8, 514.8),
    ("butd-both", "bert", "vse-plus-plus"): None,
    ("butd-both", "bert", "vse-infinity"): (537.4, 532.0),
    ("wsl-grid", "bert", "vse-infinity-ensemble"): (548.1, 555.1),
}
DATA = ("coco", "f30k")
PROJECTED = {
    "regions-vse-infinity",
    "regions-vse-plus-plus",
    "regions-searched",
    "flickr8k-small",
    "flickr8k-medium-vse-infinity",
    "flickr8k-medium-vse-plus-plus",
}  # on cells that the experiments project themselves
CROSS = {
    "coco-butd-region-bert-cross-encoder",
    "f30k-butd-region-bert-cross-encoder",
    "flickr8k-small-cross-encoder",
}
PHOTO = {"photo", "photo-features"}
"""The steps of the model that comes with the package."""
OWN = {
    "flickr8k-vse-infinity",
    "flickr8k-vse-plus-plus",
    "flickr8k-paper-schedule",
    "scenes-vse-infinity",
    "scenes-vse-plus-plus",
}
CELLS = {"cells-vse-infinity", "cells-vse-plus-plus"}
"""On image files, with the last block of a packaged backbone trained."""

VIDEO = {
    f"{data}-{method}"
    for data in ("msrvtt", "vatex", "msvd", "msvd-small")
    for method in ("vse-plus-plus", "vse-infinity", "hgr", "hgr-infinity")
} | {"msvd-sentence-vse-plus-plus", "msvd-sentence-vse-infinity"}

PAIRS = ("scan-t2i", "scan-i2t", "scan", "imram", "caan")
"""Systems that score pairs; ``scan`` is the ensemble of its two directions."""
SMALL_PAIRS = {f"flickr8k-small-{system}" for system in ("scan-t2i", "scan-i2t", "imram", "caan")}
PAIR_RECIPES = {f"{data}-butd-region-bigru-{system}" for data in ("coco", "f30k") for system in PAIRS} | SMALL_PAIRS
PAIR_RECIPES |= {"flickr8k-small-scan"}

SYSTEMS = {f"{data}-butd-region-bigru-{name}" for data in DATA for name in ("vsrn", "liwe", "cvse")}
SYSTEMS |= {f"{data}-butd-region-bert-de" for data in DATA}
SYSTEMS |= {f"{data}-resnet152-grid-gru-{name}" for data in DATA for name in ("sco", "gxn")}
SYSTEMS |= {f"flickr8k-small-{name}" for name in ("vsrn", "liwe", "de", "cvse", "sco", "gxn")}
"""Other systems of two towers; tests/systems has their constants."""
DUAL = {"clip-gpo", "siglip-gpo"}
"""Public models that are fine-tuned; they describe themselves."""

ALL = [(data, *key) for data in DATA for key in (SINGLE | ENSEMBLES)]


class TestShipped:
    """What comes with the package."""

    def test_every_configuration_of_the_paper_is_there_and_no_other(self):
        """Every row of its tables, for all datasets; besides them what anybody can run."""
        own = OWN | CELLS | PROJECTED | PHOTO | VIDEO | DUAL | PAIR_RECIPES | CROSS | SYSTEMS
        assert set(list_recipes()) == {"-".join(key) for key in ALL} | own

    @pytest.mark.parametrize("name", list_recipes())
    def test_each_can_be_read_and_says_what_it_is(self, name):
        """A sentence of its own, not that of the recipe it extends."""
        recipe = read_recipe(name)
        own = tomllib.loads(find_recipe(name).read_text(encoding="utf-8"))
        assert recipe.about == own["about"]
        assert recipe.about.endswith(".")
        assert isinstance(recipe, EnsembleRecipe) or recipe.data.path

    @pytest.mark.slow
    def test_each_model_can_be_built(self):
        """Backbones, poolings and their options exist; a grid model of the paper sees 512 × 512 pixels."""
        torch = pytest.importorskip("torch")
        from vse.models.build import build_image_encoder, build_text_encoder
        from vse.models.vse_model import VSEModel

        configs = {
            describe(recipe).model_dump_json(): recipe
            for recipe in map(read_recipe, sorted(set(list_recipes()) - VIDEO - DUAL - PAIR_RECIPES - CROSS))
            if isinstance(recipe, Recipe)
        }
        for text, recipe in configs.items():
            config = ModelConfig.model_validate_json(text)
            with torch.device("meta"):
                _, image = build_image_encoder(config.image, config.embed_size)
                if config.system is not None:
                    VSEModel.build(config, training=True)
                build_text_encoder(config.text, config.embed_size)
            if image.kind == "grid" and recipe.loss.objective == "triplet" and recipe.data.features is None:
                size = 448 if image.backbone.name == "efficientnet-lite2" else 512  # the paper's, and cells for a CPU
                assert image.preprocessing["size"] == [size, size]
                assert (image.preprocessing["channels"] == "bgr") == (image.backbone.name == "caffe-resnet101")

    @pytest.mark.parametrize(("data", "features", "text", "method"), [(d, *key) for d in DATA for key in SINGLE])
    def test_image_recipes_have_the_papers_constants(self, data, features, text, method):
        """Optimiser, schedule, objective, poolings, encoders: each value, in each recipe."""
        recipe = read_recipe(f"{data}-{features}-{text}-{method}")
        pooling = {} if method == "vse-infinity" else {"model.text.pooling.name": STANDARD_TEXT_POOLING[text]}
        paths = {"data.path": f"data/{data}"}
        if text == "bigru":
            paths["data.vocabulary"] = f"vocab/{data}_precomp_vocab.json"
        expected = EVERYWHERE | FEATURES[features] | TEXT[text] | METHODS[method] | pooling | paths
        assert {key: at(recipe, key) for key in expected} == expected

    @pytest.mark.parametrize("key", ALL, ids="-".join)
    def test_the_published_figure_is_told(self, key):
        """``rsum`` of this data set, or that the paper has none."""
        about = read_recipe("-".join(key)).about
        figures = (SINGLE | ENSEMBLES)[key[1:]]
        if figures is None:
            assert "no figure" in about
        else:
            assert f"rsum {figures[DATA.index(key[0])]:.1f} " in about

    @pytest.mark.parametrize(("data", "features", "text", "method"), [(d, *key) for d in DATA for key in ENSEMBLES])
    def test_an_ensemble_is_region_and_grid_or_two_seeds(self, data, features, text, method):
        """Its members are recipes of the same data, text and method."""
        ensemble = read_recipe(f"{data}-{features}-{text}-{method}")
        assert isinstance(ensemble, EnsembleRecipe)
        members = [(member.recipe, member.seed) for member in ensemble.members]
        if features == "butd-both":
            assert members == [(f"{data}-butd-{kind}-{text}-{method}", 0) for kind in ("region", "grid")]
        else:
            assert members == [(f"{data}-{features}-{text}-vse-infinity", seed) for seed in (0, 1)]
        assert all(isinstance(read_recipe(name), Recipe) for name, _ in members)

    @pytest.mark.parametrize("name", sorted(OWN))
    def test_flickr8k_recipes_use_packaged_backbone(self, name):
        """No file of weights, no hub: the backbone is one whose weights come in a package."""
        recipe = read_recipe(name)
        assert recipe.data.features is not None
        assert recipe.model.image.backbone.name == "efficientnet-lite0"
        assert recipe.model.text.kind == "bigru"
        assert (recipe.data.vocabulary, recipe.model.backbone_weights) == (None, None)
        expected = (
            STANDARD | {"model.text.pooling.name": "avg"}
            if "plus-plus" in name
            else LEARNED | {"augmentation.text": "drop"}
        )
        if name.startswith("scenes"):  # too few epochs for augmentation, in both methods
            expected = expected | {"augmentation.image": "none", "augmentation.text": "none"}
        if name != "flickr8k-paper-schedule":
            expected = expected | {"loss.negatives": Recipe().loss.negatives}
        assert {key: at(recipe, key) for key in expected} == expected

    @pytest.mark.parametrize("name", sorted(CELLS))
    def test_recipes_of_cells_train_the_last_block(self, name):
        """Images of 448 pixels, every other value as the recipe of windows of the same cells."""
        recipe, windows = read_recipe(name), read_recipe(name.replace("cells", "regions"))
        assert recipe.data.features is None
        assert (recipe.model.image.backbone.name, recipe.model.image.image_size) == ("efficientnet-lite2", 448)
        assert recipe.optimizer.backbone_parts == ("model.blocks.6", "model.conv_head", "model.bn2")
        assert recipe.model.image.pooling == windows.model.image.pooling
        assert (recipe.model.text, recipe.schedule, recipe.loss) == (windows.model.text, windows.schedule, windows.loss)
        assert recipe.optimizer.lr == windows.optimizer.lr
        assert recipe.augmentation.text == windows.augmentation.text

    def test_only_the_papers_schedule_mines_the_hardest_negatives_on_small_data(self):
        """There they collapse easily: the other recipes take the default objective and a guard that acts."""
        ours, paper = read_recipe("flickr8k-vse-infinity"), read_recipe("flickr8k-paper-schedule")
        assert (ours.loss, ours.guard.action) == (Recipe().loss, "soften")
        assert (paper.loss.objective, paper.loss.negatives, paper.loss.warmup_epochs) == ("triplet", "hardest", 1)
        assert (paper.guard.action, paper.model) == ("warn", ours.model)


# Constants of SCAN's README, of IMRAM's scripts, and rsum as the paper's Table 2 cites it: COCO, Flickr30K.
RSUM = {"scan": (507.9, 465.0), "imram": (516.6, 484.2), "caan": (515.6, 478.6)}
PAIR_OPTIONS = {
    "scan-t2i": {"direction": "t2i", "aggregation": "mean", "lambda_softmax": 9.0},
    "scan-i2t": {"direction": "i2t", "aggregation": "lse", "lambda_softmax": 4.0},
    "imram": {"mode": "full", "steps": 3},
    "caan": {"intra": "semantic"},
}
PAIR_DATA = {
    "coco": {"optimizer.lr": 5e-4, "schedule.epochs": 20, "schedule.decay_epochs": 10},
    "f30k": {"optimizer.lr": 2e-4, "schedule.epochs": 30, "schedule.decay_epochs": 15},
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("system", sorted(PAIR_OPTIONS))
def test_recipes_of_pairs_have_the_constants_of_their_papers(data, system):
    """Schedule, optimiser, loss, encoders and options; and the cited figure in the description."""
    recipe = read_recipe(f"{data}-butd-region-bigru-{system}")
    sharp = {
        "scan-i2t": {"lambda_lse": {"coco": 20.0, "f30k": 5.0}},
        "imram": {"lambda_softmax": {"coco": 11.0, "f30k": 9.0}},
    }
    options = PAIR_OPTIONS[system] | {name: values[data] for name, values in sharp.get(system, {}).items()}
    expected = PAIR_DATA[data] | {
        "data.path": f"data/{data}",
        "data.vocabulary": f"vocab/{data}_precomp_vocab.json",
        "model.kind": "pairs",
        "model.system": system.split("-")[0],
        "model.options": options,
        "model.embed_size": 1024,
        "model.image.feature_size": 2048,
        "model.image.head": "linear",
        "model.text.word_size": 300,
        "loss.negatives": "hardest",
        "loss.warmup_epochs": 0,
        "loss.margin": 0.2,
        "optimizer.name": "adam",
        "optimizer.weight_decay": 0.0,
        "optimizer.clip": 2.0,
        "schedule.batch_size": 128,
        "augmentation.image": "none",
        "augmentation.text": "none",
    }
    assert {key: at(recipe, key) for key in expected} == expected
    assert f"rsum {RSUM[system.split('-')[0]][DATA.index(data)]:.1f} " in recipe.about
    both = read_recipe(f"{data}-butd-region-bigru-scan")
    assert [each.recipe for each in both.members] == [f"{data}-butd-region-bigru-scan-{way}" for way in ("t2i", "i2t")]


@pytest.mark.parametrize("name", sorted(SMALL_PAIRS))
def test_small_recipes_of_pairs_read_the_data_of_the_small_recipe(name):
    """The same cells, captions and augmentation: only the model and the length of the run differ."""
    ours, towers = read_recipe(name), read_recipe("flickr8k-small")
    assert (ours.data, ours.augmentation, ours.loss) == (towers.data, towers.augmentation, towers.loss)
    assert ours.model.config(10, About(), None).system == ours.model.system


@pytest.mark.parametrize("name", sorted(CROSS))
def test_cross_encoder_recipes_match_pairs_of_stored_features(name):
    """Hard negatives from a first stage that the user names; BERT-base for the paper's data, four layers for ours."""
    recipe = read_recipe(name)
    assert (recipe.model.kind, recipe.loss.objective, recipe.loss.first_stage) == ("cross", "matching", None)
    assert recipe.loss.candidates == 30
    if name.startswith("flickr8k"):
        assert (recipe.model.feature_size, recipe.model.architecture["num_hidden_layers"]) == (256, 4)
    else:
        assert (recipe.model.feature_size, recipe.model.pretrained_bert) == (2048, "bert-base-uncased")
        assert (recipe.optimizer.lr, recipe.optimizer.weight_decay, recipe.optimizer.clip) == (5e-5, 0.01, 2.0)


@pytest.mark.parametrize("name", sorted(DUAL))
def test_recipes_of_public_models_add_gpo_at_low_rates(name):
    """GPO is added to towers that change little; a recipe names the model, and nothing of its architecture."""
    recipe = read_recipe(name)
    assert (recipe.model.image.kind, recipe.model.text.kind) == ("dual", "dual")
    assert recipe.model.image.pooling.name == "gpo"
    assert recipe.model.start
    optimizer = recipe.optimizer
    for factor in (optimizer.backbone_factor, optimizer.transformer_factor):
        assert optimizer.lr * factor <= 1e-5


def describe(recipe: Recipe) -> ModelConfig:
    """The model of a recipe with a vocabulary of ten words, or BERT's architecture without its weights."""
    text = recipe.model.text
    if text.kind == "transformer":
        complete: Any = text.model_copy(update={"architecture": {"model_type": "bert"}})
    else:
        complete = COUNTED[text.kind](vocabulary_size=11, **text.model_dump())
    model = recipe.model
    return ModelConfig(embed_size=model.embed_size, image=model.image, text=complete, system=model.system)

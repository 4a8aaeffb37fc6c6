"""The recipes that come with the package are the paper's, and a recipe that is wrong says so in one line."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.configuration import BiGRUConfig, ModelConfig
from vse.errors import InputError
from vse.inputs import imagenet
from vse.training.recipe import EnsembleRecipe, Recipe
from vse.training.recipes import apply_change, find_recipe, list_recipes, merged, read_recipe

Write = Callable[..., Path]

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
    "augmentation.text": "drop",
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
OWN = {
    "flickr8k-vse-infinity",
    "flickr8k-vse-plus-plus",
    "flickr8k-paper-schedule",
    "scenes-vse-infinity",
    "scenes-vse-plus-plus",
}

ALL = [(data, *key) for data in DATA for key in (SINGLE | ENSEMBLES)]


def at(value: Any, key: str) -> Any:
    return reduce(getattr, key.split("."), value)


def refusal(call: Callable[[], object]) -> str:
    """The message of the error that ``call`` raises, which must be one line."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(content: str, name: str = "mine") -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(content, encoding="utf-8")
        return path

    return to_file


class TestShipped:
    """What comes with the package."""

    def test_every_configuration_of_the_paper_is_there_and_no_other(self):
        """Every row of its image-text tables, for both data sets; besides them what anybody can run."""
        assert set(list_recipes()) == {"-".join(key) for key in ALL} | OWN

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
        from vse.encoders import build_image_encoder, build_text_encoder

        configs = {
            describe(recipe).model_dump_json(): recipe
            for recipe in map(read_recipe, list_recipes())
            if isinstance(recipe, Recipe)
        }
        for text, recipe in configs.items():
            config = ModelConfig.model_validate_json(text)
            with torch.device("meta"):
                _, image = build_image_encoder(config.image, config.embed_size)
                build_text_encoder(config.text, config.embed_size)
            if image.kind == "grid" and recipe.loss.objective == "triplet" and recipe.data.features is None:
                assert image.preprocessing["size"] == [512, 512]
                assert (image.preprocessing["channels"] == "bgr") == (image.backbone.name == "caffe-resnet101")

    @pytest.mark.parametrize(("data", "features", "text", "method"), [(d, *key) for d in DATA for key in SINGLE])
    def test_the_constants_are_those_of_the_paper(self, data, features, text, method):
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
    def test_what_anybody_can_run_learns_on_stored_features(self, name):
        """No file of weights, no hub: the backbone is one whose weights come in a package."""
        recipe = read_recipe(name)
        assert recipe.data.features is not None
        assert recipe.model.image.backbone.name == "efficientnet-lite0"
        assert recipe.model.text.kind == "bigru"
        assert (recipe.data.vocabulary, recipe.model.backbone_weights) == (None, None)
        expected = STANDARD | {"model.text.pooling.name": "avg"} if "plus-plus" in name else LEARNED
        if name.startswith("scenes"):  # too few epochs for augmentation, in both methods
            expected = expected | {"augmentation.image": "none", "augmentation.text": "none"}
        assert {key: at(recipe, key) for key in expected} == expected

    def test_only_the_papers_schedule_mines_the_hardest_negatives_on_small_data(self):
        """There they collapse easily: the other recipes take the default objective and a guard that acts."""
        ours, paper = read_recipe("flickr8k-vse-infinity"), read_recipe("flickr8k-paper-schedule")
        assert (ours.loss, ours.guard.action) == (Recipe().loss, "soften")
        assert (paper.loss.objective, paper.loss.negatives, paper.loss.warmup_epochs) == ("triplet", "hardest", 1)
        assert (paper.guard.action, paper.model) == ("warn", ours.model)


def describe(recipe: Recipe) -> ModelConfig:
    """The model of a recipe with a vocabulary of ten words, or BERT's architecture without its weights."""
    text = recipe.model.text
    if text.kind == "bigru":
        complete: Any = BiGRUConfig(vocabulary_size=10, **text.model_dump())
    else:
        complete = text.model_copy(update={"architecture": {"model_type": "bert"}})
    return ModelConfig(embed_size=recipe.model.embed_size, image=recipe.model.image, text=complete)


GRID_TEXT = '[model.image]\nkind = "grid"\nbackbone = "efficientnet-lite0"\n'
BERT_TEXT = '[model.text]\nkind = "transformer"\npretrained = "bert"\n'


class TestErrors:
    """One line that names the file, the key and what would be right."""

    @pytest.mark.parametrize(
        ("content", "unknown", "closest"),
        [
            ("sead = 3", "sead", "seed"),
            ("[optimiser]\nlr = 1", "optimiser", "optimizer"),
            ('[data]\nfeature = "a"', "feature", "features"),
            ("[model]\nembed_sise = 3", "embed_sise", "embed_size"),
            ('[model.image]\nkind = "region"\nfeatures_size = 3', "features_size", "feature_size"),
            (GRID_TEXT + "image_sizes = 3", "image_sizes", "image_size"),
            (GRID_TEXT + 'pooling = {name = "gpo", option = {}}', "option", "options"),
            ('[model.image]\nkind = "grid"\nbackbone = {name = "a", option = {}}', "option", "options"),
            ('[model.text]\nkind = "bigru"\nword_sise = 3', "word_sise", "word_size"),
            (BERT_TEXT + "architectur = {}", "architectur", "architecture"),
            ("[loss]\nmargins = 1", "margins", "margin"),
            ("[optimizer]\nwieght_decay = 1", "wieght_decay", "weight_decay"),
            ("[schedule]\nepoch = 1", "epoch", "epochs"),
            ("[augmentation]\nrates = 0.1", "rates", "rate"),
            ('[guard]\nactions = "warn"', "actions", "action"),
            ("[run]\nthread = 1", "thread", "threads"),
            ('mambers = []\nabout = ""', "mambers", None),
        ],
    )
    def test_an_unknown_key_is_named_at_every_level(self, write, content, unknown, closest):
        """The closest of the keys that are valid in that place is offered."""
        path = write(content)
        message = refusal(lambda: read_recipe(path))
        assert message.startswith(f"{path}: ")
        assert unknown in message
        assert closest is None or f"did you mean '{closest}'?" in message

    def test_an_unknown_key_of_a_member_is_named(self, write):
        """The closest of a member's keys is offered."""
        path = write('[[members]]\nrecipe = "a"\nseeds = 1\n[[members]]\nrecipe = "b"')
        message = refusal(lambda: read_recipe(path))
        assert message.startswith(f"{path}: ")
        assert "did you mean 'seed'?" in message

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("seed = -1", "'seed' is -1"),
            ("seed = 1.5", "'seed' is 1.5"),
            ("seed = [1]", "'seed' is [1]"),
            ("schedule = 3", "'schedule' is 3"),
            ("[[schedule]]\nepochs = 3", "'schedule' is ["),
            ("[schedule]\nepochs = 0", "'schedule.epochs' is 0"),
            ('[schedule]\nepochs = "many"', "'schedule.epochs' is 'many'"),
            ("[schedule]\nepochs = 5", "schedule.decay_epochs is 10"),
            ("[schedule]\nbatch_size = 1", "'schedule.batch_size' is 1"),
            ("[run]\nmicro_batches = 3", "micro batches"),
            ("[run]\naverage = 1.0", "'run.average' is 1.0"),
            ("[optimizer]\nlr = 0", "'optimizer.lr' is 0"),
            ("[optimizer]\nlr = nan", "'optimizer.lr' is nan"),
            ("[optimizer]\nclip = inf", "'optimizer.clip' is inf"),
            ("[augmentation]\nrate = 1", "'augmentation.rate' is 1"),
            ('[loss]\nobjective = "tripelt"', "'triplet'"),
            ("[data]\npath = 3", "'data.path' is 3"),
            ('[model.image]\nkind = "gird"', "gird"),
            ('[model.image]\nkind = "grid"', "backbone' is missing"),
            ('[data]\nfeatures = "a"', "data.features is for grid models"),
            ('[[members]]\nrecipe = "a"', "members"),
            ('members = "a"', "members"),
            ('[[members]]\n[[members]]\nrecipe = "a"', "recipe' is missing"),
        ],
    )
    def test_a_bad_value_is_named(self, write, content, said):
        """Out of range, of another type, outside a closed set, missing, or at odds with another."""
        path = write(content)
        message = refusal(lambda: read_recipe(path))
        assert message.startswith(f"{path}: ")
        assert said in message

    @pytest.mark.parametrize(
        "content", ["seed = ", "[data", "a = 1\na = 2", "[run]\n[run]", "seed 3", "\ufeffseed = 3"]
    )
    def test_what_is_not_toml_is_told_with_its_place(self, write, content):
        """The parser's own words, with line and column."""
        path = write(content)
        message = refusal(lambda: read_recipe(path))
        assert message.startswith(f"{path}: not TOML (")
        assert "line" in message or "end of document" in message

    @pytest.mark.parametrize("content", ["seed = " + "1" * 5_000, "seed = " + "[" * 50_000])
    def test_what_only_hostile_files_hold_is_told_too(self, write, content):
        """Numbers and nestings beyond what Python reads, in a file or on the command line."""
        path = write(content)
        assert refusal(lambda: read_recipe(path)).startswith(f"{path}: not TOML (")
        assert refusal(lambda: read_recipe(write(""), [content]))

    def test_what_cannot_be_read_is_told(self, tmp_path):
        """Another encoding, a folder, nothing at all."""
        path = tmp_path / "mine.toml"
        assert refusal(lambda: read_recipe(path)).startswith(f"{path}: no such recipe")
        path.write_bytes(b'about = "\xff"')
        assert refusal(lambda: read_recipe(path)) == f"{path}: not UTF-8 text"
        assert "no such recipe" in refusal(lambda: read_recipe(tmp_path))

    def test_an_unknown_name_gets_the_closest(self):
        """Among those that come with the package."""
        message = refusal(lambda: read_recipe("coco-butd-region-bigru-vse-infinty"))
        assert message.startswith("unknown recipe 'coco-butd-region-bigru-vse-infinty'")
        assert "did you mean 'coco-butd-region-bigru-vse-infinity'?" in message
        assert "base-" not in message

    @given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=30))
    def test_any_name_is_a_recipe_or_one_line(self, name):
        """Also names with dots, slashes and signs."""
        said = "a file"
        try:
            assert find_recipe(name).is_file()
        except InputError as error:
            said = str(error)
        assert len(said.splitlines()) == 1


class TestSet:
    """Single values changed, as ``--set`` does."""

    @pytest.mark.parametrize(
        ("change", "key", "value"),
        [
            ("seed=7", "seed", 7),
            ("schedule.epochs=30", "schedule.epochs", 30),
            (" schedule . epochs = 30 ", "schedule.epochs", 30),
            ("optimizer.lr=1e-3", "optimizer.lr", 1e-3),
            ("run.compile=true", "run.compile", True),
            ("data.path=/data/my set", "data.path", "/data/my set"),
            ('data.path="12"', "data.path", "12"),
            ("data.path=a=b", "data.path", "a=b"),
            ("data.path=", "data.path", ""),
            ("about='''a'''", "about", "a"),
            ("loss.objective=annealed", "loss.objective", "annealed"),
            ("model.image.pooling=avg", "model.image.pooling.name", "avg"),
            ("model.image.pooling.name=max", "model.image.pooling.name", "max"),
            ("model.image.pooling.options.k=5", "model.image.pooling.options", {"k": 5}),
            ('model.image.pooling={name = "k-max", options = {k = 2}}', "model.image.pooling.options", {"k": 2}),
            ('model.image={kind = "grid", backbone = "caffe-resnet50"}', "model.image.backbone.name", "caffe-resnet50"),
        ],
    )
    def test_one_value_changes_and_no_other(self, change, key, value):
        """Nested keys; TOML values, and text where the value is not TOML; the short form of something named."""
        name = "coco-butd-region-bigru-vse-infinity"
        changed, original = read_recipe(name, [change]), read_recipe(name)
        assert at(changed, key) == value
        table = key.split(".")[0]
        for other in set(Recipe.model_fields) - {table}:
            assert getattr(changed, other) == getattr(original, other)

    def test_a_short_form_is_opened_where_its_options_are_set(self):
        """``pooling = "gpo"`` stays a GPO when an option is set, and another name followed by its option is that."""
        name = "coco-butd-region-bigru-vse-infinity"
        pooling = read_recipe(name, ["model.text.pooling.options.temperature=0.2"]).model.text.pooling
        assert (pooling.name, pooling.options) == ("gpo", {"temperature": 0.2})
        changes = ["model.image.pooling=k-max", "model.image.pooling.options.k=5"]
        pooling = read_recipe(name, changes).model.image.pooling
        assert (pooling.name, pooling.options) == ("k-max", {"k": 5})

    def test_later_changes_win(self):
        """They are applied one after the other."""
        assert read_recipe("flickr8k-vse-infinity", ["seed=1", "seed=2"]).seed == 2

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("schedule.epochs", "expected KEY=VALUE"),
            ("=3", "expected KEY=VALUE"),
            ("schedule..epochs=3", "expected KEY=VALUE"),
            ("", "expected KEY=VALUE"),
            ("schedule.epoch=3", "did you mean 'epochs'?"),
            ("shedule.epochs=3", "did you mean 'schedule'?"),
            ("schedule.epochs=many", "'schedule.epochs' is 'many'"),
            ("schedule.epochs.first=3", "'schedule.epochs' is {'first': 3}"),
            ("schedule=3", "'schedule' is 3"),
            ("data.path=12", "'data.path' is 12"),
            ("model.image.kind=gird", "gird"),
            ("extends=base-paper", "unknown key 'extends'"),
        ],
    )
    def test_a_bad_change_is_quoted(self, change, said):
        """The error begins with the change, so that of several the wrong one is known."""
        message = refusal(lambda: read_recipe("flickr8k-vse-infinity", ["seed=3", change, "run.threads=1"]))
        assert message.startswith(f"--set {change}: ")
        assert said in message

    def test_a_bad_file_is_not_blamed_on_a_change(self, write):
        """What is wrong in the file is told first, by its name."""
        path = write("sead = 3")
        assert refusal(lambda: read_recipe(path, ["seed=3"])).startswith(f"{path}: ")

    def test_an_ensemble_has_nothing_to_set(self):
        """Its members do."""
        message = refusal(lambda: read_recipe("coco-butd-both-bert-vse-infinity", ["seed=1"]))
        assert "coco-butd-both-bert-vse-infinity.toml: " in message
        assert "members" in message

    @given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=40))
    def test_any_change_is_applied_or_one_line(self, change):
        """Whatever is typed."""
        said = f"--set model.{change}: fine"
        try:
            assert isinstance(read_recipe("scenes-vse-infinity", [f"model.{change}"]), Recipe)
        except InputError as error:
            said = str(error)
        assert said.startswith("--set model.")
        assert len(said.splitlines()) == 1

    @given(
        st.lists(st.text("abc_", min_size=1, max_size=3), min_size=1, max_size=4),
        st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.text(max_size=9), st.floats(allow_nan=False)),
        st.recursive(st.integers(), lambda inner: st.dictionaries(st.text("abc_", min_size=1), inner, max_size=3)),
    )
    def test_what_is_set_is_what_is_read_back(self, parts, value, under):
        """Any scalar at any depth, whatever stood there or on the way to it."""
        values = {"abc": under}
        written = json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else repr(value)
        apply_change(
            values, f"{'.'.join(parts)}={written.replace(chr(127), chr(92) + 'u007f')}"
        )  # TOML has no bare DEL
        assert reduce(lambda table, part: table[part], parts, values) == value


class TestExtends:
    """One recipe laid over another."""

    def test_tables_are_joined_and_values_replaced(self, write):
        """A file beside it is found first; what only one of the two says stays."""
        write('seed = 1\nabout = "base"\n[schedule]\nepochs = 30\nbatch_size = 64\n[run]\nthreads = 1', "base-mine")
        recipe = read_recipe(write('extends = "base-mine"\nseed = 2\n[schedule]\nepochs = 40\n[loss]\nmargin = 0.3'))
        assert (recipe.seed, recipe.about, recipe.schedule.epochs, recipe.schedule.batch_size) == (2, "base", 40, 64)
        assert (recipe.run.threads, recipe.loss.margin) == (1, 0.3)

    def test_a_recipe_of_the_package_can_be_extended_from_anywhere(self, write):
        """By its name, also if it is a base."""
        recipe = read_recipe(write('extends = "coco-butd-grid-bert-vse-infinity"\nseed = 5'))
        shipped = read_recipe("coco-butd-grid-bert-vse-infinity")
        assert recipe == shipped.model_copy(update={"seed": 5})
        assert read_recipe(write('extends = "base-paper"')).schedule.warmup_from == 1

    def test_a_file_beside_it_goes_before_one_of_the_package(self, write):
        """So that a copy of the recipes can be changed as a whole."""
        write("seed = 9", "base-paper")
        assert read_recipe(write('extends = "base-paper"')).seed == 9

    def test_another_kind_takes_nothing_from_the_one_below(self, write):
        """Neither the options of another pooling nor the fields of another encoder."""
        write(
            '[model.image]\nkind = "region"\nfeature_size = 7\n'
            'pooling = {name = "k-max", options = {k = 5}}\n[model.text]\nkind = "bigru"\nword_size = 7',
            "base-mine",
        )
        head = 'extends = "base-mine"\n'
        assert read_recipe(write(head + BERT_TEXT)).model.text.pretrained == "bert"
        assert read_recipe(write(head + GRID_TEXT)).model.image.pooling.name == "gpo"
        image = read_recipe(write(head + '[model.image]\npooling = "avg"')).model.image
        assert (image.feature_size, image.pooling.name, image.pooling.options) == (7, "avg", {})
        image = read_recipe(write(head + '[model.image]\npooling = {name = "top-percent", options = {percent = 5}}'))
        assert image.model.image.pooling.options == {"percent": 5}
        image = read_recipe(write(head + '[model.image]\nkind = "region"\npooling = {options = {k = 3}}'))
        assert (image.model.image.pooling.name, image.model.image.pooling.options) == ("k-max", {"k": 3})

    def test_a_short_form_below_is_joined_with_its_options(self, write):
        """``pooling = "k-max"`` means ``{name = "k-max"}``, below as well as above."""
        write('[model.image]\nkind = "region"\npooling = "k-max"', "base-mine")
        pooling = read_recipe(write('extends = "base-mine"\n[model.image.pooling.options]\nk = 5')).model.image.pooling
        assert (pooling.name, pooling.options) == ("k-max", {"k": 5})

    @pytest.mark.parametrize("length", [1, 2, 3])
    def test_a_circle_is_told(self, write, length):
        """Also one that goes through others."""
        paths = [write(f'extends = "r{(i + 1) % length}"', f"r{i}") for i in range(length)]
        message = refusal(lambda: read_recipe(paths[0]))
        assert "extends itself" in message
        assert any(message.startswith(f"{path}: ") for path in paths)

    @pytest.mark.parametrize("base", ["3", "[]", "true"])
    def test_a_base_is_a_name(self, write, base):
        """Anything else is refused."""
        path = write(f"extends = {base}")
        assert refusal(lambda: read_recipe(path)).startswith(f"{path}: 'extends' is ")

    def test_a_base_that_is_broken_is_blamed_by_its_own_name(self, write):
        """Not the file that extends it."""
        base = write("seed = ", "base-mine")
        assert refusal(lambda: read_recipe(write('extends = "base-mine"'))).startswith(f"{base}: not TOML")

    def test_a_missing_base_is_named(self, write):
        """In one line."""
        assert "'base-papr'" in refusal(lambda: read_recipe(write('extends = "base-papr"')))

    def test_a_missing_base_is_named_with_the_file_that_asks_for_it(self, write):
        """And with the closest of those there are, bases included."""
        path = write('extends = "base-papr"')
        message = refusal(lambda: read_recipe(path))
        assert message.startswith(f"{path}: ")
        assert "did you mean 'base-paper'?" in message

    trees = st.recursive(st.integers(), lambda inner: st.dictionaries(st.text("ab", max_size=2), inner, max_size=3))
    tables = st.dictionaries(st.text("ab", max_size=2), trees, max_size=3)

    @given(tables, tables)
    def test_merging_keeps_what_is_above_and_adds_what_is_only_below(self, under, over):
        """Every value above is there, every value below that nothing above covers, and nothing else."""
        before = json.dumps([under, over])
        below = {path: value for path, value in leaves(under).items() if not covered(over, path)}
        assert leaves(merged(under, over)) == below | leaves(over)
        assert json.dumps([under, over]) == before


def leaves(table: dict[str, Any], prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every value of nested tables that is no table, by the keys that lead to it."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in table.items():
        found |= leaves(value, (*prefix, key)) if isinstance(value, dict) else {(*prefix, key): value}
    return found


def covered(table: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Whether ``table`` says something about the value at ``path``: there, or in the place of a table on the way."""
    here: Any = table
    for key in path:
        if not isinstance(here, dict):
            return True
        if key not in here:
            return False
        here = here[key]
    return True


PLACES = {"data.path", "data.images", "data.features", "data.vocabulary", "model.backbone_weights"}
MACHINE = {"threads", "readers", "checkpoint_minutes", "tensorboard", "device", "micro_batches", "compile"}
FREE = {"about"} | PLACES | {f"run.{key}" for key in MACHINE}
START = {"model": {"image": {"kind": "grid", "backbone": "caffe-resnet50"}, "text": {"kind": "bigru"}}}
OTHER = {
    "about": "another",
    "seed": 1,
    "data.path": "elsewhere",
    "data.layout": "table",
    "data.images": "pictures",
    "data.features": "store",
    "data.train": "all",
    "data.dev": "val",
    "data.vocabulary": "words.json",
    "data.min_count": 1,
    "data.max_tokens": 30,
    "data.captions_per_image": 2,
    "model.embed_size": 512,
    "model.image.backbone.name": "caffe-resnet101",
    "model.image.backbone.options": {"detector": True},
    "model.image.image_size": 256,
    "model.image.preprocessing": imagenet(64).to_json(),
    "model.image.head": "residual-mlp",
    "model.image.hidden_size": 256,
    "model.image.pooling.name": "max",
    "model.image.pooling.options": {"temperature": 0.2},
    "model.text.word_size": 100,
    "model.text.pooling.name": "avg",
    "model.text.pooling.options": {"temperature": 0.3},
    "model.pretrained": True,
    "model.backbone_weights": "weights.safetensors",
    "loss.objective": "triplet",
    "loss.negatives": "all",
    "loss.warmup_epochs": 0,
    "loss.margin": 0.1,
    "loss.temperature": 0.1,
    "loss.final_temperature": 0.1,
    "loss.reduction": "mean",
    "loss.same_image": "negatives",
    "optimizer.name": "adam",
    "optimizer.lr": 1e-3,
    "optimizer.weight_decay": 0.0,
    "optimizer.clip": 0.0,
    "optimizer.backbone_factor": 1.0,
    "optimizer.transformer_factor": 1.0,
    "schedule.epochs": 30,
    "schedule.batch_size": 64,
    "schedule.warmup_from": 1,
    "schedule.warmup_epochs": 0.5,
    "schedule.decay": "cosine",
    "schedule.decay_epochs": 5,
    "schedule.decay_factor": 0.5,
    "schedule.frozen_epochs": 0,
    "augmentation.image": "none",
    "augmentation.text": "released",
    "augmentation.rate": 0.1,
    "augmentation.views": False,
    "guard.action": "off",
    "guard.spread": 0.1,
    "guard.patience": 10,
    "run.precision": "bf16",
    "run.micro_batches": 2,
    "run.average": 0.99,
    "run.compile": True,
    "run.device": "cpu",
    "run.threads": 1,
    "run.readers": 1,
    "run.checkpoint_minutes": 1,
    "run.tensorboard": True,
}


def changed(*keys: str) -> Recipe:
    """A recipe in which each of ``keys`` has another value than in :data:`START`."""
    values: dict[str, Any] = json.loads(json.dumps(START))
    for key in keys:
        table = values
        *parents, last = key.split(".")
        for part in parents:
            inner = table.get(part, {})
            table[part] = {"name": inner} if isinstance(inner, str) else inner
            table = table[part]
        table[last] = OTHER[key]
    values["model"]["image"].setdefault("backbone", "caffe-resnet50")
    return Recipe.model_validate(values)


def keys_of(value: Any, prefix: str = "") -> set[str]:
    """Every key of a recipe, dotted; what is no model of its own ends a key."""
    if not hasattr(type(value), "model_fields"):
        return {prefix.removesuffix(".")}
    return {key for name in type(value).model_fields for key in keys_of(getattr(value, name), f"{prefix}{name}.")}


class TestIdentity:
    """What must be equal for a run to be continued."""

    def test_every_key_is_decided_on(self):
        """A new key must be added here, and with it the question whether it may change in the middle of a run."""
        assert keys_of(changed()) - {"model.image.kind", "model.text.kind"} == set(OTHER)

    @pytest.mark.parametrize("key", OTHER)
    def test_only_how_the_machine_is_used_may_differ(self, key):
        """Threads, readers, device, how often is saved, what is shown, and the description."""
        assert (changed(key).identity() == changed().identity()) == (key in FREE)

    @pytest.mark.parametrize(
        "model", [{"image": {"kind": "region"}}, {"text": {"kind": "transformer", "pretrained": "bert-base-uncased"}}]
    )
    def test_another_kind_of_encoder_is_another_run(self, model):
        """The kind is part of it."""
        assert Recipe.model_validate({"model": START["model"] | model}).identity() != changed().identity()

    @given(st.sets(st.sampled_from(sorted(OTHER))))
    def test_identities_are_equal_if_and_only_if_nothing_else_differs(self, keys):
        """Any number of changes together; and an identity survives being written as JSON."""
        identity = changed(*keys).identity()
        assert (identity == changed().identity()) == (keys <= FREE)
        assert identity == changed(*(keys - FREE)).identity()
        assert json.loads(json.dumps(identity)) == identity

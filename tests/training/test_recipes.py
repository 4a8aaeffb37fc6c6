"""A recipe that is wrong says so in one line, and single values of it can be changed."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.support_recipes import BERT_TEXT, GRID_TEXT, Write, at, refusal, writer

from vse.errors import InputError
from vse.training.recipe import Recipe
from vse.training.recipes import apply_change, find_recipe, read_recipe


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return writer(tmp_path)


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
            ("[schedule]\nepochs = 5", ": schedule.decay_epochs is 10, which leaves no epoch of 5 at the full rate"),
            ("[schedule]\nepochs = 5", "--set schedule.decay_epochs=0"),
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
    def test_invalid_toml_is_reported_with_position(self, write, content):
        """The parser's own words, with line and column."""
        path = write(content)
        message = refusal(lambda: read_recipe(path))
        assert message.startswith(f"{path}: not TOML (")
        assert "line" in message or "end of document" in message

    @pytest.mark.parametrize("content", ["seed = " + "1" * 5_000, "seed = " + "[" * 50_000])
    def test_hostile_toml_is_refused(self, write, content):
        """Numbers and nestings beyond what Python reads, in a file or on the command line."""
        path = write(content)
        assert refusal(lambda: read_recipe(path)).startswith(f"{path}: not TOML (")
        assert refusal(lambda: read_recipe(write(""), [content]))

    def test_unreadable_recipe_is_refused(self, tmp_path):
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

    def test_later_recipe_changes_win(self):
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
        """What is wrong in the file is reported first, by its name."""
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
    def test_set_values_are_read_back(self, parts, value, under):
        """Any scalar at any depth, whatever stood there or on the way to it."""
        values = {"abc": under}
        written = json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else repr(value)
        apply_change(
            values, f"{'.'.join(parts)}={written.replace(chr(127), chr(92) + 'u007f')}"
        )  # TOML has no bare DEL
        assert reduce(lambda table, part: table[part], parts, values) == value

"""A recipe that extends another is that one with its own values laid over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.support_recipes import BERT_TEXT, GRID_TEXT, Write, refusal, writer

from vse.training.recipes import merged, read_recipe


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return writer(tmp_path)


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

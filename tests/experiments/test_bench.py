"""``vse experiment bench``: systems of every family on tiny data, through the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.training.support import WIDTH, write_pairs

from vse.cli.main import main
from vse.experiments.bench import SYSTEMS
from vse.training.recipes import read_recipe
from vse.training.result import TrainingResult

ROWS = ("VSE++", "DE", "SCAN t2i")
TINY = (
    "data.min_count=1",
    "model.embed_size=16",
    f"model.image.feature_size={WIDTH}",
    "model.text.word_size=8",
    "schedule.batch_size=16",
    "run.threads=1",
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """The folder of data and results of three systems, and the result."""
    folder = tmp_path_factory.mktemp("bench")
    write_pairs(folder / "data", train=32, dev=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingResult, "draw", lambda *_: None)  # takes longer than a tiny training
        assert run(folder) == 0
    return folder, json.loads((folder / "out/result.json").read_text())


def run(folder, *options, rows=ROWS):
    chosen = [part for row in rows for part in ("--row", row)]
    small = [part for change in TINY for part in ("--set", change)]
    given = ["--data", str(folder / "data"), "--out", str(folder / "out"), "--jobs", "1"]
    return main(["experiment", "bench", "--quick", *given, *chosen, *small, *options])


def test_bench_ranks_systems_of_both_families(bench):
    """Each row has its figures with an interval around them, and what it cost."""
    _, result = bench
    assert [row["label"] for row in result["rows"]] == list(ROWS)
    for row in result["rows"]:
        low, high = row["rsum_interval"]
        assert 0 <= low <= high <= 600
        assert row["training_seconds"] > 0
        assert row["seconds_per_million_pairs"] > 0
        assert [each["seed"] for each in row["seeds"]] == [0]
        assert row["mean"]["rsum"] == pytest.approx(row["seeds"][0]["test"]["rsum"])
    assert result["test"]["protocol"] == "all"


def test_bench_counts_the_values_of_saved_models(bench):
    """Parameters are those in the file of the best model."""
    _, result = bench
    for row in result["rows"]:
        weights = load_file(f"{row['seeds'][0]['folder']}/best/model.safetensors")
        assert row["parameters"] == sum(int(np.prod(each.shape)) for each in weights.values())


def test_bench_writes_table_and_plot(bench):
    """The table has a line for each system and names the protocol; the plot is an image."""
    folder, result = bench
    table = (folder / "out/table.md").read_text()
    assert table.startswith("| system | rsum | 95 % | seeds | training, s | parameters | µs per pair |\n")
    assert all(f"\n| {row['label']}" in table for row in result["rows"])
    assert "Protocol all on data test" in table
    assert (folder / "out/quality.png").read_bytes().startswith(b"\x89PNG")


def test_bench_reads_finished_systems_again(bench, capsys):
    """A second call trains and ranks nothing: the costs of the first one are kept."""
    folder, result = bench
    assert run(folder, "--json", rows=ROWS[1:]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == result["rows"][1:]


def test_bench_has_a_recipe_for_every_row():
    """All recipes are valid, distinct, and of one dataset."""
    recipes = [read_recipe(each.recipe, each.changes) for each in SYSTEMS]
    assert len({each.key for each in SYSTEMS}) == len({each.label for each in SYSTEMS}) == len(SYSTEMS)
    assert {recipe.data.path for recipe in recipes} == {"data/flickr8k-projected"}
    assert {recipe.model.image.feature_size for recipe in recipes} == {256}


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--row", "SCAM"), "unknown row 'SCAM'"), (("--recipe", "photo"), "--recipe photo: bench trains the recipes")],
)
def test_bench_refuses_what_it_cannot_train(bench, capsys, options, message):
    """One line before any training."""
    assert run(bench[0], *options) == 1
    assert message in capsys.readouterr().err

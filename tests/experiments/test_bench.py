"""``vse experiment bench``: systems of every family on tiny data, through the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.training.support import WIDTH, write_pairs

from vse.cli.main import main
from vse.data import open_data
from vse.evaluation import MatrixScores
from vse.evaluation.retrieval_test import RetrievalTest
from vse.experiments import bench as module
from vse.experiments.bench import DEPTH, ENSEMBLE, MEMBERS, RERANKED, SYSTEMS, best_systems, further_seeds
from vse.experiments.grid.compare import TrainedSeed, recipe_of
from vse.experiments.image_table import RECIPE
from vse.experiments.plan import Grid
from vse.models.storage import load_model
from vse.training.recipes import read_recipe
from vse.training.result import TrainingResult

ROWS = ("VSE++", "DE", ENSEMBLE.label)
LITTLE = tuple(
    f"model.architecture.{name}={value}"
    for name, value in (("hidden_size", 16), ("num_hidden_layers", 1), ("intermediate_size", 16))
)
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
    """The folder of data and results of five systems, and the result."""
    folder = tmp_path_factory.mktemp("bench")
    write_pairs(folder / "data", train=32, dev=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingResult, "draw", lambda *_: None)  # takes longer than a tiny training
        patch.setattr(module, "TIMED", 0.0)
        patch.setattr(module, "RERANKED", replace(RERANKED, changes=(*RERANKED.changes, *LITTLE)))
        assert run(folder, rows=(*ROWS, RERANKED.label)) == 0
    return folder, json.loads((folder / "out/result.json").read_text())


def run(folder, *options, rows=ROWS):
    chosen = [part for row in rows for part in ("--row", row)]
    small = [part for change in TINY for part in ("--set", change)]
    given = ["--data", str(folder / "data"), "--out", str(folder / "out"), "--jobs", "1"]
    return main(["experiment", "bench", "--quick", *given, *chosen, *small, *options])


def test_bench_ranks_systems_of_both_families(bench):
    """Each row has its figures with an interval around them, and what it cost."""
    _, result = bench
    assert [row["label"] for row in result["rows"]] == ["VSE++", "VSE∞", "DE", *MEMBERS, ENSEMBLE.label, RERANKED.label]
    for row in result["rows"]:
        low, high = row["rsum_interval"]
        assert 0 <= low <= high <= 600
        assert row["training_seconds"] > 0
        assert row["scoring_seconds_per_million_pairs"] > 0
        assert row["test_seconds"] > 0
        assert row["seeds"][0]["pairs_seen"] == (64 if row["label"] == ENSEMBLE.label else 2 * row["batch_size"])
        assert [each["seed"] for each in row["seeds"]] == [0]
        assert row["mean"]["rsum"] == pytest.approx(row["seeds"][0]["test"]["rsum"])
    assert result["test"]["protocol"] == "all"


def test_bench_counts_the_values_of_saved_models(bench):
    """Parameters are those in the file of the best model."""
    _, result = bench
    for row in [each for each in result["rows"] if each["label"] not in {ENSEMBLE.label, RERANKED.label}]:
        weights = load_file(f"{row['seeds'][0]['folder']}/best/model.safetensors")
        assert row["parameters"] == sum(int(np.prod(each.shape)) for each in weights.values())


def test_bench_writes_table_and_plot(bench):
    """The table has a line for each system and names the protocol; the plot is an image."""
    folder, result = bench
    table = (folder / "out/table.md").read_text()
    heads = "| rsum | 95 % | seeds | epochs × batch | pairs seen | training, s | parameters |"
    assert table.startswith(f"| system (augmentation: none) {heads}")
    assert "| 1 × 16 |" in table
    assert all(f"\n| {row['label']}" in table for row in result["rows"])
    assert "Protocol all on data test" in table
    assert (folder / "out/quality.png").read_bytes().startswith(b"\x89PNG")


def test_bench_reads_finished_systems_again(bench, capsys, monkeypatch):
    """A second call trains and ranks nothing, and keeps the rows of the first one that it does not name."""
    folder, result = bench
    monkeypatch.setattr(module, "RERANKED", replace(RERANKED, changes=(*RERANKED.changes, *LITTLE)))
    assert run(folder, "--json", rows=ROWS[1:2]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == result["rows"]


def test_bench_reranks_the_first_stage_with_a_cross_encoder(bench):
    """It is trained on the results of VSE∞, which is trained before though no --row names it."""
    folder, result = bench
    first, second = result["rows"][1], result["rows"][-1]
    assert [first["label"], second["label"]] == ["VSE∞", RERANKED.label]
    recipe = json.loads(Path(second["seeds"][0]["folder"], "run.json").read_text())["recipe"]
    assert recipe["model"]["feature_size"] == WIDTH
    assert second["parameters"] > first["parameters"]
    assert second["training_seconds"] > first["training_seconds"]
    assert second["depth"] == DEPTH
    assert "the first 20 candidates" in (folder / "out/table.md").read_text()


def test_bench_averages_the_scores_of_both_directions_of_scan(bench):
    """The row ranks by the mean of the scores of both models, trains nothing, and costs what both cost."""
    folder, result = bench
    first, second, both = result["rows"][3:6]
    data = open_data(folder / "data", "test")
    test = RetrievalTest.of(data)
    models = [load_model(Path(each["seeds"][0]["folder"], "best")) for each in (first, second)]
    one, other = (each.score_pairs(data.images, test.texts, unknown="allow") for each in models)
    expected = test.rank(MatrixScores((one + other) / 2)).metrics.figures()
    assert both["mean"] == pytest.approx(expected)
    assert expected != test.rank(MatrixScores(one)).metrics.figures()
    for cost in ("parameters", "training_seconds", "scoring_seconds_per_million_pairs"):
        assert both[cost] == pytest.approx(first[cost] + second[cost])
    assert both["seeds"][0]["dev_rsum"] is None
    assert f"{ENSEMBLE.label}: the mean of the scores of two systems" in (folder / "out/table.md").read_text()


def test_bench_leaves_out_rows_of_other_settings(bench, capsys, monkeypatch):
    """What the folder of runs holds of another batch size is no row of this table."""
    monkeypatch.setattr(TrainingResult, "draw", lambda *_: None)
    assert run(bench[0], "--json", "--set", "schedule.batch_size=8", rows=("UVS",)) == 0
    assert [row["label"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["UVS"]


def test_best_systems_by_dev_get_seeds_that_they_lack():
    """Four of them, up to three seeds; the order is that of the table, and the test split is not asked."""
    found = [trained(each, 10 * place) for place, each in enumerate(SYSTEMS)]
    found[0] = trained(SYSTEMS[0], 1000)
    assert best_systems(found) == (SYSTEMS[0], *SYSTEMS[-3:])
    assert [further_seeds(seeds) for seeds in ((0,), (1,), (0, 1, 2), (5, 1))] == [[1, 2], [0, 2], [], [0]]


def trained(variant, dev):
    result = TrainingResult("run", Path(), {"rsum": dev}, 1, 1, 1.0, 0.0)
    return TrainedSeed(variant, 0, read_recipe(RECIPE), result)


def test_bench_has_a_recipe_for_every_row():
    """All recipes are valid, distinct, and of one dataset."""
    recipes = [read_recipe(each.recipe, each.changes) for each in SYSTEMS]
    assert len({each.key for each in SYSTEMS}) == len({each.label for each in SYSTEMS}) == len(SYSTEMS)
    assert {recipe.data.path for recipe in recipes} == {"data/flickr8k-projected"}
    assert {recipe.model.image.feature_size for recipe in recipes} == {256}
    liwe = next(recipe for each, recipe in zip(SYSTEMS, recipes, strict=True) if each.label == "LIWE")
    assert liwe.loss.negatives == "blended"


def test_bench_trains_every_row_at_equal_augmentation():
    """None on either side, unless --set gives all rows the same."""
    for change, expected in (((), {("none", "none")}), (('augmentation.image="drop"',), {("drop", "none")})):
        grid = Grid("bench", "", (), changes=change)
        used = [recipe_of(grid, each, 0).augmentation for each in (*SYSTEMS, RERANKED)]
        assert {(each.image, each.text) for each in used} == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--row", "SCAM"), "unknown row 'SCAM'"), (("--recipe", "photo"), "--recipe photo: bench trains the recipes")],
)
def test_bench_refuses_what_it_cannot_train(bench, capsys, options, message):
    """One line before any training."""
    assert run(bench[0], *options) == 1
    assert message in capsys.readouterr().err

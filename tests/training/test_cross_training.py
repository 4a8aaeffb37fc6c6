"""Train a cross-encoder: mined negatives, an exact resume, and recipes that do not fit."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from tests.training.support import WIDTH, tiny_recipe, tiny_values, write_pairs, write_pictures

import vse
from vse._util.strict import parse
from vse.cli.main import main
from vse.data import FeatureStore, open_data
from vse.data.feature_folder import Extracted, FeaturePlan
from vse.data.feature_writer import open_writer
from vse.errors import InputError
from vse.evaluation.models import evaluate
from vse.systems import pair_model as module
from vse.systems.pair_model import PairModel
from vse.training.mining import FOLDER, HardNegatives, mine_candidates
from vse.training.recipe import Recipe
from vse.training.train import train
from vse.training.trainer import Trainer

BERT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SCAN = {"kind": "pairs", "system": "scan"}
MODEL = {"kind": "cross", "feature_size": WIDTH, "architecture": BERT}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("cross") / "data", 24, 6, captions=2)


@pytest.fixture(scope="module")
def first_stage(data, tmp_path_factory):
    """A tiny VSE model, trained for one epoch."""
    recipe = tiny_recipe(data, schedule={"epochs": 1, "decay_epochs": 0, "batch_size": 16})
    return str(train(recipe, tmp_path_factory.mktemp("first") / "run").model)


def cross_recipe(data, first_stage, /, **changes):
    values = tiny_values(
        data,
        loss={"objective": "matching", "reduction": "mean", "first_stage": first_stage, "candidates": 5},
        schedule={"epochs": 2, "decay_epochs": 1, "batch_size": 8},
        augmentation={"image": "drop", "text": "drop"},
    )
    values["model"] = MODEL
    for name, given in changes.items():
        values[name] = values[name] | given
    if first_stage is None:
        del values["loss"]["first_stage"]
    return parse(Recipe, values, "test")


@pytest.fixture(scope="module")
def whole(data, first_stage, tmp_path_factory):
    """The folder of a run that was not stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(cross_recipe(data, first_stage, loss={"dev_depth": 3}), folder)
    return folder


def test_cross_encoder_resumes_where_it_was_stopped(data, first_stage, whole, tmp_path, monkeypatch):
    """A run that was stopped in its second epoch ends with the weights and metrics of one that was not."""
    recipe = cross_recipe(data, first_stage, loss={"dev_depth": 3})
    steps: list[int] = []
    original = Trainer._one_step

    def stop(self, *args):
        if len(steps) == 7:
            raise KeyboardInterrupt
        steps.append(self.position.step)
        original(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_one_step", stop)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "stopped")
    moved = cross_recipe(data, "no/such/model", loss={"dev_depth": 3})  # its candidates are in the run's folder
    again = train(moved, tmp_path / "stopped")
    assert vse.load(str(again.model)).fingerprint() == vse.load(str(whole / "best")).fingerprint()
    assert (tmp_path / "stopped/metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()


def test_eval_command_reranks_with_a_cross_encoder(data, first_stage, whole, tmp_path, capsys):
    """The card names the re-ranker; re-ranking everything equals the cross-encoder alone; options are checked."""
    best, options = str(whole / "best"), ["--data", str(data), "--samples", "10", "--out", str(tmp_path / "r.json")]
    assert main(["eval", first_stage, *options, "--rerank", best, "--depth", "4", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["results"][0]
    assert "→ run-best" in row["name"]
    assert row["name"].endswith("@4")
    assert row["card"]["models"][0]["reranker"]["depth"] == 4
    alone = evaluate(best, data, samples=10).results[0].metrics.rsum
    deep = evaluate(first_stage, data, rerank=best, depth=12, samples=10).results[0].metrics.rsum
    assert deep == pytest.approx(alone)
    for given, words in (
        (["--depth", "4"], "--depth is for re-ranking: add --rerank MODEL"),
        (["--rerank", best, "--depth", "5001"], "depth 5001: expected a whole number from 0 to 5,000"),
        (["--rerank", best, "--cxc", "x", "--coco-ids", "y"], "--rerank needs models"),
        (["--rerank", first_stage], "cannot re-rank what another one found"),
    ):
        assert main(["eval", first_stage, *options, *given]) in {1, 2}
        error = capsys.readouterr().err.splitlines()[-1]
        assert words in error


@pytest.fixture(scope="module")
def scan(data, tmp_path_factory):
    """A tiny SCAN model, trained for one epoch."""
    recipe = tiny_recipe(data, model=SCAN, schedule={"epochs": 1, "decay_epochs": 0, "batch_size": 16})
    return str(train(recipe, tmp_path_factory.mktemp("scan") / "run").model)


def test_eval_command_reranks_with_scan_and_scores_no_other_pairs(data, first_stage, scan, capsys, monkeypatch):
    """Depth bounds the pairs; re-ranking everything equals the system alone."""
    asked, scored = [], []
    ask, score = PairModel.score_candidates, module.score_blocks

    def counted_blocks(*args, **options):
        for rows, columns, block in score(*args, **options):
            scored.append(block.numel())
            yield rows, columns, block

    def counted(self, images, texts, rows, columns, **options):
        asked.append(len(rows))
        return ask(self, images, texts, rows, columns, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, "score_blocks", counted_blocks)
        patch.setattr(PairModel, "score_candidates", counted)
        options = ["--data", str(data), "--samples", "5", "--json"]
        assert main(["eval", first_stage, *options, "--rerank", scan, "--depth", "1"]) == 0
    card = json.loads(capsys.readouterr().out)["results"][0]["card"]
    assert card["models"][0]["reranker"]["depth"] == 1
    assert sum(scored) == sum(asked) <= 6 + 12  # one candidate of each image and of each caption, of 72 pairs
    alone = evaluate(scan, data, samples=5).results[0].metrics.rsum
    deep = evaluate(first_stage, data, rerank=scan, depth=12, samples=5).results[0].metrics.rsum
    assert deep == pytest.approx(alone)


@pytest.fixture
def tagged(tmp_path):
    """Image files with captions, and a store of their features with tags of all images but one."""
    table = write_pictures(tmp_path / "pictures")
    ids = tuple(each for split in ("train", "dev") for each in open_data(table, split).images.ids)
    plan = FeaturePlan("tiny", {}, {"size": [8, 8]}, channels=WIDTH, fingerprint="f" * 16, ids=ids, grid=(1, 3))
    draw = np.random.default_rng(0)
    with open_writer(tmp_path / "store", plan) as writer:
        writer.commit({row: Extracted(draw.normal(size=(3, WIDTH)).astype(np.float16)) for row in writer.todo})
        writer.finish()
    write_tags(
        tmp_path / "store", [{"id": each, "tags": ["picture", f"word{n % 7}"]} for n, each in enumerate(ids[1:])]
    )
    return table, tmp_path / "store"


def write_tags(store, lines):
    (store / "tags.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_cross_encoder_trains_with_tags_of_a_store(tagged, tmp_path):
    """They are saved with the model and read in evaluation; a resumed run needs the same; bad lines are named."""
    table, store = tagged
    schedule = {"epochs": 1, "decay_epochs": 0, "batch_size": 8}
    recipe = cross_recipe(table, None, data={"features": str(store)}, model={"tags": True}, schedule=schedule)
    done = train(recipe, tmp_path / "run")
    model = vse.load(done.model)
    assert model.tags == ("picture", *(f"word{n}" for n in range(7)))
    found = evaluate(str(done.model), table, split="dev", features=store, samples=5).results[0].metrics.rsum
    assert found == pytest.approx(done.best["rsum"])
    rows = FeatureStore.open(store).rows_for(open_data(table, "train").images.ids, tags=("word1", "picture"))
    assert [rows[n][:, -1].tolist() for n in range(3)] == [[-1, -1, -1], [1, -1, -1], [1, 0, -1]]
    write_tags(store, [{"id": "0.png", "tags": ["dog"]}])
    with pytest.raises(InputError, match="holds a run of other data: tags"):
        train(recipe, tmp_path / "run")
    write_tags(store, [{"id": "0.png", "tags": ["dog"]}, {"id": "1.png", "tags": "dog"}])
    with pytest.raises(InputError, match=r'tags\.jsonl, line 2: expected \{"id"'):
        train(recipe, tmp_path / "other")
    (store / "tags.jsonl").unlink()
    with pytest.raises(InputError, match=r"has no tags\.jsonl, and the model reads tags: write lines of"):
        train(recipe, tmp_path / "other")


def rerank_benchmark():
    path = Path(__file__).parents[2] / "benchmarks/rerank.py"
    spec = importlib.util.spec_from_file_location("rerank_benchmark", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    return benchmark


def test_rerank_benchmark_says_that_no_depth_has_equal_quality(tmp_path):
    """A re-ranker that is worse than the first stage has no such point; K = 0 is none."""
    benchmark = rerank_benchmark()
    points = [
        {"depth": depth, "rsum": rsum, "milliseconds": 1.0 + depth} for depth, rsum in ((0, 300), (1, 301), (9, 290))
    ]
    assert benchmark.equal_point(points, "rsum", 0.0) is None
    assert benchmark.equal_point([*points[:2], points[1] | {"depth": 9}], "rsum", 0.0) == points[1]
    said = benchmark.no_equal(points, "rsum", "full ranking", 0.0)
    assert said == "full ranking (290.0) is worse than the first stage (300.0)"
    found = {"points": points, "full_ranking": True, "equal": None, "best": points[1], "above": points[1]}
    assert [benchmark.marks(found, depth) for depth in (0, 1, 9)] == ["no equal", "best, above", ""]
    benchmark.draw(found, "rsum", 0.0, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("second", ["cross", "scan"])
def test_rerank_benchmark_draws_the_curve_of_a_tiny_test(second, data, first_stage, whole, scan, tmp_path):
    """Depth 0 is the first stage, the last point the whole ranking, and the marked point reaches its quality."""
    benchmark = rerank_benchmark()
    places = ["--out", str(tmp_path / "c.json"), "--plot", str(tmp_path / "c.png")]
    model = scan if second == "scan" else str(whole / "best")
    found = benchmark.main([first_stage, model, "--data", str(data), "--depths", "0,1,3", *places])
    points = json.loads((tmp_path / "c.json").read_text())["points"]
    assert [point["depth"] for point in points] == [0, 1, 3, 12]
    pairs = [point["pairs_per_query"] * (6 + 12) for point in points]
    assert pairs[0] == 0
    assert pairs[1] <= 6 + 12
    assert pairs[-1] == pytest.approx(6 * 12)
    assert points[0]["rsum"] == pytest.approx(evaluate(first_stage, data, samples=5).results[0].metrics.rsum)
    assert points[-1]["rsum"] == pytest.approx(evaluate(model, data, samples=5).results[0].metrics.rsum)
    gained = points[-1]["rsum"] > points[0]["rsum"]
    assert found["equal"]["rsum"] >= points[-1]["rsum"] if gained else found["equal"] is None
    assert found["best"]["rsum"] == max(point["rsum"] for point in points)
    assert found["above"]["rsum"] >= points[0]["rsum"]
    assert (tmp_path / "c.png").stat().st_size < 100_000


def test_mined_candidates_are_the_best_wrong_ones():
    """Against a sort by hand: no right pair, the best first, and only members of the same pool."""
    draw = np.random.default_rng(0)
    images, texts = (draw.normal(size=(count, 5)).astype(np.float32) for count in (9, 20))
    owners = np.sort(np.concatenate([np.arange(9), draw.integers(0, 9, 11)]))
    scores = texts.astype(np.float64) @ images.T
    wrong_images, wrong_texts = mine_candidates(images, texts, owners, 4)
    for text in range(20):
        order = [image for image in np.argsort(-scores[text]) if image != owners[text]]
        assert wrong_images[text].tolist() == order[:4]
    for image in range(9):
        order = [text for text in np.argsort(-scores[:, image]) if owners[text] != image]
        assert wrong_texts[image].tolist() == order[:4]
    pooled, _ = mine_candidates(images, texts, owners, 4, pool=3)
    assert all((row >= 0).sum() == 2 for row in pooled)  # two others in each pool of three


def test_negatives_are_wrong_and_drawn_by_key():
    """Mined or not, a drawn image or caption never belongs to the pair, and a key draws the same again."""
    owners = np.repeat(np.arange(5), 3)
    samples = np.arange(15)
    mined = HardNegatives(owners, 5, (owners[:, None] + [[1, 2]]).astype(np.int32) % 5, np.full((5, 2), -1, np.int32))
    for negatives in (HardNegatives(owners, 5), mined):
        drawn = [negatives.draw(1, epoch, samples, owners) for epoch in (0, 0, 1)]
        for images, texts in drawn:
            assert (images != owners).all()
            assert (owners[texts] != owners).all()
        assert all(np.array_equal(one, other) for one, other in zip(drawn[0], drawn[1], strict=True))
        assert not np.array_equal(drawn[0][1], drawn[2][1])
    assert set(((mined.draw(1, 0, samples, owners)[0] - owners) % 5).tolist()) <= {1, 2}
    with pytest.raises(InputError, match="at least two images"):
        HardNegatives(np.zeros(3, np.int64), 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": {"objective": "triplet"}}, 'expected "matching" for model.kind "cross"'),
        ({"model": {**MODEL, "kind": "vse"}}, "unknown key in 'model.vse' 'feature_size'"),
        ({"model": MODEL | {"boxes": True}}, "model.boxes needs data.features"),
        ({"model": MODEL | {"tags": True}}, "model.tags needs data.features"),
        ({"model": MODEL | {"layers": 1}}, "layers is for pretrained_bert"),
        ({"model": MODEL | {"pretrained_bert": "x"}}, "leave one of them out"),
        (
            {"model": MODEL | {"feature_size": 5}},
            "features of 16 values, and the model takes 5: set model.feature_size",
        ),
        ({"run": {"compile": True}}, "run.compile is for towers of vectors"),
    ],
)
def test_cross_recipes_that_do_not_fit_are_one_line(data, tmp_path, changes, message):
    with pytest.raises(InputError, match=message) as error:
        train(cross_recipe(data, None, **changes), tmp_path / "run")
    assert "\n" not in str(error.value)


def test_first_stage_that_does_not_fit_is_one_line(data, whole, tmp_path):
    """A model without embeddings, candidates for other captions, and those of this run, which are used again."""
    other = write_pairs(tmp_path / "other", 12, 6, captions=1, seed=5)
    with pytest.raises(InputError, match="holds candidates for other captions"):
        train(cross_recipe(other, str(whole / FOLDER)), tmp_path / "two")
    with pytest.raises(InputError, match="has no single vector of either"):
        train(cross_recipe(data, str(whole / "best")), tmp_path / "three")
    shared = cross_recipe(data, str(whole / FOLDER), schedule={"epochs": 1, "decay_epochs": 0})
    assert train(shared, tmp_path / "shared").model.is_dir()

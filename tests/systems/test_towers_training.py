"""Systems of two towers are trained, resumed, evaluated, described and exported as every model is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.systems.support_towers import SYSTEMS, built, recipe_of
from tests.training.support import tiny_recipe, write_pairs
from tests.training.support_recipes import at, refusal
from tests.training.support_runs import EVERY_STEP, assert_same_run, interrupted, position
from tests.training.support_steps import first_gradients

import vse
from vse.cli.render.models import _system
from vse.convert.onnx_export import export_onnx
from vse.errors import InputError
from vse.evaluation.retrieval_test import evaluate_split
from vse.inputs.vocabulary import Vocabulary
from vse.models import inspect_folder
from vse.models.card import escaped
from vse.models.pair_options import OPTIONS as PAIR_SYSTEMS
from vse.models.storage import read_weights
from vse.systems.concepts import Concepts, choose_concepts
from vse.systems.registry import DIFFERENCES
from vse.systems.registry import SYSTEMS as REGISTRY
from vse.training import train
from vse.training.data import open_splits
from vse.training.log import read_metrics
from vse.training.recipes import read_recipe

GENERATING = ("vsrn", "sco", "gxn")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("systems") / "data", 16, 6)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, data) -> dict[str, Path]:
    """A finished run of every system."""
    folder = tmp_path_factory.mktemp("runs")
    for name in SYSTEMS:
        train(recipe_of(name, data, run=EVERY_STEP), folder / name)
    return {name: folder / name for name in SYSTEMS}


@pytest.mark.parametrize("name", SYSTEMS)
def test_system_run_resumes_bit_for_bit(name, runs, data, tmp_path):
    """Interrupted in its second epoch, a run ends with the same checkpoint, metrics and models."""
    recipe = recipe_of(name, data, run=EVERY_STEP)
    interrupted(recipe, tmp_path / "run", at=6)
    assert 0 < position(tmp_path / "run")["step"] < 6
    train(recipe, tmp_path / "run")
    assert_same_run(tmp_path / "run", runs[name])


@pytest.mark.parametrize("name", SYSTEMS)
def test_auxiliary_losses_are_logged_and_add_to_the_loss(name, runs):
    """Each is in every line of the metrics; a saved model embeds images and texts without them."""
    steps = [line for line in read_metrics(runs[name]) if line["kind"] == "step"]
    expected = {f"loss_{loss}" for loss in REGISTRY[name].weights}
    assert all({key for key in line if key.startswith("loss_")} == expected for line in steps)
    assert all(np.isfinite(line["loss"]) for line in steps)
    model = vse.load(runs[name] / "best")
    assert model.auxiliary is None
    vectors = model.encode_texts(["a red dog", "the blue cat"], unknown="allow")
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert model.encode_images(np.ones((2, 3, 16), np.float32)).shape == vectors.shape


def test_evaluation_of_saved_system_repeats_dev_figures(runs, data):
    """What training reports is what the loaded model scores."""
    for name in ("cvse", "vsrn"):
        splits = open_splits(recipe_of(name, data))
        found = evaluate_split(vse.load(runs[name] / "last"), splits.dev)
        last = [line for line in read_metrics(runs[name]) if line["kind"] == "epoch"][-1]
        assert found.rsum == pytest.approx(last["dev"]["rsum"])


def test_inspection_counts_parameters_of_training_alone(runs):
    """Decoders are in the saved weights, and the report tells them from the towers."""
    for name, folder in runs.items():
        report = inspect_folder(folder / "best")
        state, _ = read_weights(folder / "best" / "model.safetensors")
        extra = {key: value for key, value in state.items() if key.startswith("auxiliary.")}
        wanted = sum(value.numel() for key, value in extra.items() if not key.endswith("of_token"))
        assert (report.system, report.training_parameters) == (name, wanted)
        assert (wanted > 0) == (name in GENERATING)
        assert report.embed_size == vse.load(folder / "best").encode_texts(["a"], unknown="allow").shape[1]
        assert ("only training needs" in _system(report)) == (name in GENERATING)
        assert json.dumps(report.to_json())


def test_cards_and_docs_say_how_each_system_differs(runs):
    """The same line in both, from one place; every named system has one."""
    docs = (Path(__file__).parents[2] / "docs/systems.md").read_text(encoding="utf-8")
    assert {*REGISTRY, *PAIR_SYSTEMS} == {*DIFFERENCES}
    for name, line in DIFFERENCES.items():
        assert f"| {name.upper()} | {line} |" in docs
    for name, folder in runs.items():
        assert escaped(DIFFERENCES[name]) in (folder / "best/README.md").read_text(encoding="utf-8")


def test_concepts_are_words_of_training_captions(runs, data):
    """Function words are none; a saved model lists its concepts and knows them by their tokens."""
    model = vse.load(runs["cvse"] / "best")
    chosen = model.config.system.words
    captions = open_splits(recipe_of("cvse", data)).train.captions
    assert len(chosen) == 5
    assert all(any(word in caption.split() for caption in captions) for word in chosen)
    assert not {"a", "the", "is", "in"} & set(chosen)
    graph = model.image_encoder.pooling.graph
    tokens = model.tokenizer.encode([f"the {chosen[3]} here"]).tokens
    assert graph.labels(torch.from_numpy(tokens), None)[0].tolist() == [0, 0, 0, 1, 0]
    assert choose_concepts({"dog": 3, "red": 1, "runs": 2, "the": 9, "cat": 2}, 4) == ("dog", "cat", "runs", "red")


@pytest.mark.parametrize("name", ["cvse", "sco"])
def test_micro_batches_of_a_system_have_whole_batch_gradients(name, data, tmp_path):
    """Scores, rows of auxiliary losses and both passes: the gradients of one batch."""
    values = recipe_of(name, data, run={"precision": "fp64", "threads": 1, "readers": 1}, optimizer={"clip": 0.0})
    whole = first_gradients(values.model_dump(), tmp_path / "whole")
    parts = values.model_dump() | {"run": values.run.model_dump() | {"micro_batches": 2}}
    for key, gradient in first_gradients(parts, tmp_path / "parts").items():
        torch.testing.assert_close(gradient, whole[key], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["vsrn", "de", "sco", "gxn"])
def test_export_of_a_system_agrees_with_torch(name, runs, tmp_path):
    """Graph reasoning, readouts with a frozen pooling inside, and a GRU of one direction run in ONNX Runtime."""
    pytest.importorskip("onnx")
    report = export_onnx(vse.load(runs[name] / "best"), tmp_path / "onnx", largest_set=8)
    assert max(value.max_difference for value in report.agreement.values()) < 1e-4


@pytest.mark.parametrize(("name", "reason"), [("liwe", "number of words"), ("cvse", "concepts of the tokens")])
def test_export_refuses_towers_that_cannot_be_traced(name, reason, tmp_path):
    """In one line, before anything is written."""
    message = refusal(lambda: export_onnx(built(name), tmp_path / "onnx"))
    assert reason in message
    assert not (tmp_path / "onnx").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"system": "vsr"}}, "unknown system 'vsr'"),
        ({"model": {"system": {"name": "vsrn", "heads": 2}}}, "heads"),
        ({"model": {"system": "vsrn", "text": {"kind": "gru"}}}, 'needs image.pooling "gcn-seq2seq", got "gpo"'),
        ({"model": {"system": "liwe"}}, "does not go with text.kind \"bigru\": expected 'characters'"),
        ({"model": {"system": "cvse"}}, 'needs image.pooling "avg", got "gpo"'),
        ({"model": {"system": "de"}, "loss": {"objective": "triplet"}}, 'is trained with "contrastive"'),
        ({"model": {"system": "sco"}, "augmentation": {"text": "drop"}}, "captions that lack words"),
        ({"model": {"system": "gxn"}, "augmentation": {"text": "none"}, "run": {"compile": True}}, "run.compile"),
        ({"model": {"text": {"kind": "characters"}}, "augmentation": {"text": "released"}}, "masks whole words"),
        ({"model": {"text": {"kind": "bigru", "pooling": "last"}}}, "pooling 'last'"),
        ({"loss": {"auxiliary": {"caption": -1.0}}}, "loss.auxiliary.caption"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_recipe_refuses_options_that_do_not_fit_a_system(changes, said, data):
    """Before any data is read."""
    assert said in refusal(lambda: tiny_recipe(data, **changes))


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("vsrn", {"loss": {"auxiliary": {"captions": 1.0}}}, "loss.auxiliary.captions: no such auxiliary loss"),
        ("de", {"loss": {"auxiliary": {"caption": 1.0}}}, "the model has none"),
        ("vsrn", {"run": {"micro_batches": 2}}, "image_encoder.pooling.blocks.0.norm takes statistics"),
        ("cvse", {"model": {"system": {"name": "cvse", "concepts": 99}}}, "model.system.concepts is 99: lower it"),
        ("sco", {"model": {"system": {"name": "sco", "words": ["zebra"]}}}, "concepts of another dataset?"),
        ("sco", {"model": {"system": {"name": "sco", "words": ["dog", "dog"]}}}, "'dog' is listed twice"),
    ],
    ids=["misspelt-loss", "no-losses", "batch-statistics", "too-few-words", "foreign-concepts", "twice"],
)
def test_training_refuses_what_a_system_cannot_use(name, changes, said, data, tmp_path):
    """In one line, before the first step."""
    assert said in refusal(lambda: train(recipe_of(name, data, **changes), tmp_path / "run"))


def test_concepts_need_captions():
    """An empty split has no concepts."""
    tokenizer = Vocabulary.build(["a dog"], 1).tokenizer()
    with pytest.raises(InputError, match="no captions to build concepts from"):
        Concepts.build([], tokenizer, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("coco-butd-region-bigru-vsrn", {"model.embed_size": 2048, "schedule.decay_epochs": 15, "optimizer.lr": 2e-4}),
        ("f30k-butd-region-bigru-vsrn", {"schedule.decay_epochs": 20, "model.system.decoder.hidden_size": 512}),
        (
            "coco-butd-region-bigru-liwe",
            {"optimizer.lr": 7e-4, "loss.blend": 0.991, "model.text.hidden_sizes": (384, 448)},
        ),
        (
            "f30k-butd-region-bigru-liwe",
            {"optimizer.lr": 1e-3, "loss.negatives": "blended", "model.text.characters": 26},
        ),
        (
            "coco-butd-region-bigru-cvse",
            {
                "model.system.fusion": 0.9,
                "model.system.training_fusion": 0.85,
                "model.system.consensus_share": 0.05,
                "optimizer.clip": 2 / 3,
            },
        ),
        (
            "f30k-butd-region-bigru-cvse",
            {
                "model.system.fusion": 0.85,
                "model.system.consensus_share": 0.05,
                "schedule.epochs": 50,
                "schedule.decay_epochs": 25,
                "optimizer.clip": 2 / 3,
            },
        ),
        ("coco-butd-region-bert-de", {"loss.objective": "contrastive", "model.text.kind": "transformer"}),
        ("f30k-resnet152-grid-gru-sco", {"model.system.concepts": 256, "loss.margin": 0.2, "model.text.kind": "gru"}),
        ("coco-resnet152-grid-gru-gxn", {"model.system.balance": 0.5, "model.embed_size": 1024}),
    ],
)
def test_recipes_of_systems_have_documented_constants(name, expected):
    """VSRN, LIWE and CVSE: copied from their released code, not from the files. DE, SCO and GXN: ours."""
    recipe = read_recipe(name)
    common = {"schedule.batch_size": 128, "loss.margin": 0.2, "optimizer.clip": 2.0, "augmentation.text": "none"}
    wanted: dict[str, Any] = common | expected
    assert {key: at(recipe, key) for key in wanted} == wanted
    known = REGISTRY[recipe.model.system.name].weights
    assert recipe.loss.auxiliary.keys() <= known.keys()
    assert all(recipe.loss.auxiliary[key] == pytest.approx(known[key]) for key in recipe.loss.auxiliary)

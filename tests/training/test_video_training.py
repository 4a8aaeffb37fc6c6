"""The four video models learn through the same command and loop as the models of images."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from tests.training.support import write_toml
from tests.training.support_runs import EVERY_STEP, assert_same_run, interrupted, position
from tests.training.support_steps import first_gradients, trainer_of
from tests.training.support_video import CALM, MODELS, video_recipe, video_values, without_matplotlib, write_videos

import vse
from vse.cli.main import main
from vse.data import open_data
from vse.data.roles import NOTE, parse_roles
from vse.errors import InputError
from vse.evaluation.retrieval_test import RetrievalTest, evaluate_split
from vse.hgr import GraphBatch, HGRModel, RoleGraph
from vse.hgr.scores import plain_level_scores
from vse.training import Recipe, train
from vse.training.augmentation import keep_elements
from vse.training.keyed import Purpose, keyed
from vse.training.log import read_metrics
from vse.training.run_folder import CURVES

HGRS = ("hgr", "hgr-infinity")
UNDISTURBED = EVERY_STEP | {"checkpoint_minutes": 0}  # a checkpoint takes twice as long as a step


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_videos(tmp_path_factory.mktemp("videos") / "tiny")


def chance(data: Path) -> float:
    """The expected rsum of random scores: drawing K candidates of which some are right, at least one of them."""
    test = RetrievalTest.of(open_data(data, "val"))
    total = 0.0
    for right in (test.positives, test.positives.T):
        for cutoff in (1, 5, 10):
            left = np.ones(right.queries)
            for drawn in range(cutoff):
                left *= np.clip(1 - right.counts / max(1, right.candidates - drawn), 0, 1)
            total += 100 * float((1 - left).mean())
    return total


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory) -> dict[str, Path]:
    """One finished run of each model, by the command."""
    folder = tmp_path_factory.mktemp("runs")
    for model in MODELS:
        recipe = write_toml(folder / f"{model}.toml", video_values(data, model, run={"threads": 1, "readers": 2}))
        with without_matplotlib():
            assert main(["train", str(recipe), "--into", str(folder / model), "--json"]) == 0
    return {model: folder / model for model in MODELS}


@pytest.mark.parametrize("model", MODELS)
def test_two_epochs_are_better_than_chance(model, runs, data):
    """rsum on dev is that of distinct sentences, well above what random scores would reach, and kept in the card."""
    result = json.loads((runs[model] / "result.json").read_text())
    assert result["best"]["rsum"] > 2 * chance(data)
    reached = [line["dev"]["rsum"] for line in read_metrics(runs[model]) if line["kind"] == "epoch"]
    assert len(reached) == 2
    assert (result["best"]["rsum"], result["best"]["epoch"]) == (max(reached), reached.index(max(reached)))
    card = (runs[model] / "best" / "README.md").read_text()
    assert f"{result['best']['rsum']:.5g}" in card
    assert (NOTE.split(":", maxsplit=1)[0] in card.replace("\\", "")) == (model in HGRS)
    assert not (runs[model] / "frames").exists()  # packed for as long as the run lasted


def test_narration_tells_of_videos_and_of_guessed_roles(data, tmp_path, capsys):
    """Numbers of videos and captions, and once where role graphs come from; in the end the curves are drawn."""
    recipe = write_toml(tmp_path / "hgr.toml", video_values(data, "hgr"))
    assert main(["train", str(recipe), "--into", str(tmp_path / "run")]) == 0
    output = capsys.readouterr()
    assert "tiny: 40 videos with 160 captions to train on, 15 with 60 to choose by" in output.err
    assert output.err.count(NOTE) == 1
    assert "video → text" in output.out
    assert (tmp_path / "run" / CURVES).stat().st_size > 10_000


@pytest.mark.parametrize("augmentation", ["none", "drop"])
def test_interrupted_anywhere_a_run_ends_with_the_same_bits(data, tmp_path, augmentation):
    """HGR, with and without frames dropped: parameters, optimizer, metrics and models."""
    values = {"run": EVERY_STEP, "augmentation": {"image": augmentation, "text": "none"}}
    recipe = video_recipe(data, "hgr-infinity", **values)
    interrupted(video_recipe(data, "hgr-infinity", **values | {"run": UNDISTURBED}), tmp_path / "whole")
    for report in (6, 9, 13, 17):
        interrupted(recipe, tmp_path / "run", at=report)
        assert position(tmp_path / "run")["step"] > 0
        shutil.rmtree(tmp_path / "run" / "frames")  # a cache: it is made again
    interrupted(recipe, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_killed_by_the_system_the_same_command_goes_on(data, tmp_path):
    """kill -9 in the middle of a run of HGR, more than once: the same bits as a run that nobody disturbed."""
    schedule = {"epochs": 5, "batch_size": 16, "decay_epochs": 1}
    values = video_values(data, "hgr", run=EVERY_STEP, schedule=schedule)
    recipe, run = write_toml(tmp_path / "hgr.toml", values), tmp_path / "run"
    command = [sys.executable, "-m", "vse", "train", str(recipe), "--into", str(run)]
    for least in (2, 14):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 120
            while steps_saved(run) < least and time.monotonic() < deadline:
                time.sleep(0.01)
            process.kill()
        assert process.returncode == -signal.SIGKILL
    interrupted(Recipe.model_validate(values), run)
    interrupted(video_recipe(data, "hgr", run=UNDISTURBED, schedule=schedule), tmp_path / "whole")
    assert_same_run(run, tmp_path / "whole")


def steps_saved(run: Path) -> int:
    """Of the checkpoint that counts; one that is being replaced counts as none."""
    try:
        return int(position(run)["step"])
    except (OSError, ValueError):
        return 0


@pytest.mark.parametrize("model", MODELS)
def test_video_micro_batches_have_whole_batch_gradients(data, tmp_path, model):
    """In double precision, with masks and sets of several levels; both are those of a batch that is encoded once."""
    calm = CALM if model in HGRS else {}
    table = {"model": calm} if calm else {"model": _without_dropout(model)}
    run = {"threads": 1, "readers": 1, "precision": "fp64"}
    values = [video_values(data, model, run=run | {"micro_batches": n}, **table) for n in (1, 4)]
    whole, parts = (first_gradients(each, tmp_path) for each in values)
    scale = max(gradient.abs().max() for gradient in whole.values())
    assert scale > 0
    for name, expected in whole.items():
        assert expected.dtype == torch.float64
        torch.testing.assert_close(parts[name] / scale, expected / scale, rtol=0, atol=1e-9)


def naive_hardest(scores: list[list[float]], owners: list[int]) -> float:
    """The hinge of margin 0.2 with the hardest video and the hardest sentence that are not of the same video."""
    total = 0.0
    for i, owner in enumerate(owners):
        others = [j for j, other in enumerate(owners) if other != owner]
        total += max(max(0.0, 0.2 + scores[i][j] - scores[i][i]) for j in others)
        total += max(max(0.0, 0.2 + scores[j][i] - scores[i][i]) for j in others)
    return total / len(owners)


def naive_contrastive(scores: list[list[float]], owners: list[int]) -> float:
    """Cross-entropy of both directions at temperature 0.05; other sentences of the same video are left out."""
    total = 0.0
    for i, owner in enumerate(owners):
        kept = [j for j, other in enumerate(owners) if other != owner or j == i]
        for row in ([scores[i][j] for j in kept], [scores[j][i] for j in kept]):
            total += math.log(sum(math.exp((score - scores[i][i]) / 0.05) for score in row))
    return total / len(owners)


LOSSES = {
    "contrastive": ({"objective": "contrastive"}, naive_contrastive),
    "hardest": ({"objective": "triplet", "negatives": "hardest", "warmup_epochs": 0}, naive_hardest),
}


@pytest.mark.parametrize(("augmentation", "loss"), [("none", "contrastive"), ("none", "hardest"), ("drop", "hardest")])
def test_the_loss_is_that_of_the_definition(data, tmp_path, augmentation, loss):
    """HGR's first loss, from captions and frames one by one: parsed, never padded, scored by the plain formula."""
    run = {"threads": 1, "readers": 1, "precision": "fp64"}
    table, naive_loss = LOSSES[loss]
    changes = {"augmentation": {"image": augmentation, "text": "none"}, "loss": {"reduction": "mean"} | table}
    trainer = trainer_of(video_values(data, "hgr", run=run, model=CALM, **changes), tmp_path)
    pairs, model, split = trainer.pairs, trainer.model, open_data(data, "train")
    samples = pairs.order(0)[:16]
    scores = torch.empty(16, 16, dtype=torch.float64)
    for j, sample in enumerate(samples):
        sentence = split.captions[sample]
        graph = RoleGraph.from_official(parse_roles(sentence).graph(), len(sentence.split()))
        arrays = {name: torch.from_numpy(array) for name, array in GraphBatch.of([graph]).arrays().items()}
        tokens = torch.from_numpy(model.tokenizer.encode([sentence]).tokens)
        read = model.embed_sentences(tokens, None, **arrays)
        for i, other in enumerate(samples):
            frames = split.images[split.caption_to_image[other]]
            if augmentation == "drop":
                frames = frames[keep_elements(len(frames), 0.2, keyed(3, 0, Purpose.IMAGE_ELEMENTS, int(other)))]
            scores[i, j] = plain_level_scores(model.embed_videos(torch.from_numpy(frames)[None]), read).mean.item()
    owners = split.caption_to_image[samples].tolist()
    assert len(set(owners)) < len(owners)  # a video stands in the batch twice
    figures = trainer.step(pairs.batch(0, samples), 0)
    assert figures.loss == pytest.approx(naive_loss(scores.tolist(), owners), rel=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_figures_on_dev_are_those_of_the_evaluation(model, runs, data):
    """Distinct sentences, each right for every video that has it; what was recorded is what the best model reaches."""
    split = open_data(data, "dev")
    test = RetrievalTest.of(split)
    assert test.about["shared_sentences"] > 0
    found = evaluate_split(vse.load(runs[model] / "best"), split)
    best = json.loads((runs[model] / "result.json").read_text())["best"]
    assert best["dev"] == found.to_json()


def _without_dropout(model: str) -> dict:
    return {side: MODELS[model][side] | {"dropout": 0.0} for side in ("image", "text")}


@pytest.mark.parametrize("model", MODELS)
def test_a_saved_model_gives_the_same_scores(model, runs, data, tmp_path):
    """Loaded, saved and loaded again: the same fingerprint and the same scores of every pair, exactly."""
    first = vse.load(runs[model] / "best")
    with without_matplotlib():
        second = vse.load(first.save(tmp_path / "again"))
    assert first.fingerprint() == second.fingerprint()
    split = open_data(data, "test")
    sentences = RetrievalTest.of(split).texts
    if isinstance(first, HGRModel):
        found = [each.score_pairs(split.images, sentences) for each in (first, second)]
    else:
        found = [each.encode_videos(split.images) @ each.encode_texts(sentences).T for each in (first, second)]
    assert found[0].shape == (15, len(sentences))
    np.testing.assert_array_equal(found[0], found[1])


def test_an_hgr_model_has_no_vectors(runs, capsys):
    """Asked for one it says so in a line, and how it is asked; so do commands that need vectors."""
    model = vse.load(runs["hgr"] / "best")
    for call in (model.encode_texts, model.encode_images, model.encode_videos):
        with pytest.raises(InputError, match="scores pairs of a video and a sentence and has no single vector"):
            call(["a dog"])
    assert main(["export", str(runs["hgr"] / "best"), str(runs["hgr"] / "export")]) == 1
    assert "has no single vector" in capsys.readouterr().err
    assert main(["inspect", str(runs["hgr"] / "best")]) == 0
    shown = capsys.readouterr().out
    assert "attention" in shown
    assert "of three levels" in shown


@pytest.mark.slow
def test_an_export_of_frames_and_words_agrees(runs, tmp_path, data):
    """A VSE model of videos runs without torch: the same vectors to 1e-4."""
    assert main(["export", str(runs["vse-infinity"] / "best"), str(tmp_path / "export"), "--json"]) == 0
    torch_model, exported = vse.load(runs["vse-infinity"] / "best"), vse.load(tmp_path / "export")
    videos = open_data(data, "test").images
    np.testing.assert_allclose(exported.encode_images(videos), torch_model.encode_images(videos), atol=1e-4)
    texts = ["a dog runs", "the bird swims outside"]
    np.testing.assert_allclose(exported.encode_texts(texts), torch_model.encode_texts(texts), atol=1e-4)


def test_videos_that_collapse_are_called_videos(data, tmp_path, capsys):
    """The same frames in every video, sentences apart: the guard names the side, in its line and in the event."""
    copy = shutil.copytree(data, tmp_path / "tiny")
    with h5py.File(copy / "ordered_feature" / "SA" / "resnet" / "trn_ft.hdf5", "r+") as stored:
        for frames in stored.values():
            frames[:] = 1
    values = video_values(
        copy,
        "vse-plus-plus",
        model=_without_dropout("vse-plus-plus"),
        guard={"action": "warn", "spread": 0.02, "patience": 1},
    )
    with without_matplotlib():
        recipe = write_toml(tmp_path / "mine.toml", values)
        assert main(["train", str(recipe), "--into", str(tmp_path / "run")]) == 0
    (event,) = (line for line in read_metrics(tmp_path / "run") if line["kind"] == "event")
    assert (event["event"], event["side"]) == ("collapsed", "videos")
    assert "the embeddings are collapsing, different videos have a mean cosine of 1.000" in capsys.readouterr().err


def test_other_graphs_are_other_data(data, tmp_path):
    """A file of role graphs that appears in the middle of a run is noticed: the run is of other data."""
    copy = shutil.copytree(data, tmp_path / "tiny")
    recipe = video_recipe(copy, "hgr", run=EVERY_STEP)
    interrupted(recipe, tmp_path / "run", at=8)
    sentence = open_data(copy, "train").captions[0]
    graph = [{"ROOT": {"role": "ROOT", "spans": []}, "1": {"role": "V", "spans": [0]}}, []]
    file = copy / "annotation" / "RET" / "sent2rolegraph.augment.json"
    file.write_text(json.dumps({sentence: graph}))
    with pytest.raises(InputError, match="holds a run of other data: graphs"):
        train(recipe, tmp_path / "run")

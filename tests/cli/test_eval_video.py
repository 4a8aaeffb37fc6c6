"""``vse eval`` on videos."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.evaluation import naive
from tests.training.support_video import video_recipe, without_matplotlib, write_videos

import vse
from vse.cli.main import main
from vse.data import open_data
from vse.data.roles import parse_roles
from vse.evaluation.retrieval_test import RetrievalTest, model_scores
from vse.hgr import GraphBatch, RoleGraph
from vse.hgr.graphs import SentenceGraphs
from vse.hgr.scores import plain_level_scores
from vse.progress import SilentProgress
from vse.training import train

SHORT = {"epochs": 1, "batch_size": 16, "decay_epochs": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_videos(tmp_path_factory.mktemp("eval") / "tiny", 16, 9)


@pytest.fixture(scope="module")
def models(data, tmp_path_factory):
    """A model of embeddings and one of pairs."""
    folder = tmp_path_factory.mktemp("models")
    with without_matplotlib():
        return {
            name: str(train(video_recipe(data, name, schedule=SHORT), folder / name).model)
            for name in ("vse-infinity", "hgr")
        }


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """Results are written into the current folder."""
    monkeypatch.chdir(tmp_path)


def evaluate(capsys, *arguments) -> dict:
    assert main(["eval", *map(str, arguments), "--json", "--samples", "50"]) == 0
    return json.loads(capsys.readouterr().out)


def naive_scores(model, split, sentences) -> np.ndarray:
    """One video and one sentence at a time, nothing padded; HGR's by the definition of its score."""
    scores = np.empty((len(split.images), len(sentences)))
    for i in range(len(split.images)):
        frames = torch.from_numpy(split.images[i])[None]
        for j, sentence in enumerate(sentences):
            tokens = torch.from_numpy(model.tokenizer.encode([sentence]).tokens)
            if hasattr(model, "score_pairs"):
                graph = RoleGraph.from_official(parse_roles(sentence).graph(), len(sentence.split()))
                arrays = {name: torch.from_numpy(a) for name, a in GraphBatch.of([graph]).arrays().items()}
                with torch.no_grad():
                    seen, read = model.embed_videos(frames), model.embed_sentences(tokens, None, **arrays)
                scores[i, j] = plain_level_scores(seen, read).mean
            else:
                with torch.no_grad():
                    scores[i, j] = model.image_encoder(frames) @ model.text_encoder(tokens)[0]
    return scores


def naive_interval(ranks: list[int], owners: list[set[int]], videos: int) -> list[float]:
    """The middle 95 % of R@5 over fifty draws of videos; a query counts as often as its videos on average."""
    generator = np.random.Generator(np.random.Philox(key=np.array([0, 0], dtype=np.uint64)))
    values = []
    for draw in generator.integers(0, videos, size=(50, videos)).tolist():
        counts = [sum(draw.count(video) for video in own) / len(own) for own in owners]
        hits = sum(count for count, rank in zip(counts, ranks, strict=True) if rank <= 5)
        values.append(100 * hits / sum(counts))
    return np.quantile(values, [0.025, 0.975]).tolist()


@pytest.mark.parametrize("name", ["vse-infinity", "hgr"])
def test_eval_of_videos_equals_naive_loop(name, models, data, capsys):
    """Recall, ranks, rsum and intervals, from scores computed one by one."""
    found = evaluate(capsys, models[name], "--data", data)["results"][0]
    model, split = vse.load(models[name]), open_data(data, "test")
    sentences = list(dict.fromkeys(split.captions))
    scores = naive_scores(model, split, sentences)
    right = [{j for j, s in enumerate(sentences) if s in split.captions_of(i)} for i in range(len(split.images))]
    owners = [{i for i in range(len(right)) if j in right[i]} for j in range(len(sentences))]
    assert max(map(len, owners)) > 1  # sentences are shared
    rsum = 0.0
    alone = [{i} for i in range(len(right))]
    for way, matrix, positives, asked in (("v2t", scores, right, alone), ("t2v", scores.T, owners, owners)):
        ranks = naive.ranks(matrix.tolist(), positives, 1e-6)
        side = found["metrics"][way]
        rsum += sum(naive.recall(ranks, k) for k in (1, 5, 10))
        assert [side[f"r{k}"] for k in (1, 5, 10)] == pytest.approx([naive.recall(ranks, k) for k in (1, 5, 10)])
        assert side["median_rank"] == naive.median(ranks)
        assert side["mean_rank"] == pytest.approx(naive.mean(ranks))
        assert found["intervals"][f"{way}_r5"] == pytest.approx(naive_interval(ranks, asked, len(right)))
    assert found["metrics"]["rsum"] == pytest.approx(rsum)
    assert found["card"]["sentences"] == len(sentences)
    assert ("role_graphs" in found["card"]["models"][0]) == (name == "hgr")


def test_eval_of_video_ensemble_averages_scores(models, data, capsys):
    """Of embeddings and of pairs; a model does not differ from itself."""
    both = evaluate(capsys, *models.values(), "--data", data, "--ensemble")["results"]
    assert [row["card"]["ensemble"] for row in both] == [True]
    split = open_data(data, "test")
    sentences = list(dict.fromkeys(split.captions))
    mean = sum(naive_scores(vse.load(path), split, sentences) for path in models.values()) / 2
    right = [{j for j, s in enumerate(sentences) if s in split.captions_of(i)} for i in range(len(split.images))]
    ranks = naive.ranks(mean.tolist(), right, 1e-6)
    assert both[0]["metrics"]["v2t"]["mean_rank"] == pytest.approx(naive.mean(ranks))
    report = evaluate(capsys, models["hgr"], models["hgr"], "--data", data, "--compare")
    assert report["comparisons"][0]["differences"].keys() == report["results"][0]["intervals"].keys()
    assert report["comparisons"][0]["differences"]["rsum"] == {"value": 0.0, "interval": [0.0, 0.0], "real": False}


def test_eval_of_videos_tells_models_of_a_run_apart(models, data, capsys):
    """Its best and its last model record the same name, and a comparison says which is subtracted."""
    best = Path(models["vse-infinity"])
    report = evaluate(capsys, best, best.with_name("last"), "--data", data, "--compare")
    (difference,) = report["comparisons"]
    assert {difference["first"], difference["second"]} == {"vse-infinity-best", "vse-infinity-last"}


def test_eval_shares_role_graphs_between_models(models, data, capsys, monkeypatch):
    """Models that read as many words of a sentence share the graphs."""
    made = []

    def of(sentences, *arguments, **options) -> SentenceGraphs:
        made.append(options)
        return make(sentences, *arguments, **options)

    make = SentenceGraphs.of
    monkeypatch.setattr(SentenceGraphs, "of", of)
    rows = evaluate(capsys, models["hgr"], models["vse-infinity"], models["hgr"], "--data", data)["results"]
    assert len(rows) == 3
    assert made == [{"limit": 30}]


def test_eval_progress_counts_videos(models, data):
    """Both kinds of models report videos, not images."""

    class Told(SilentProgress):
        def __init__(self) -> None:
            self.of: list[tuple[int, str]] = []

        def start(self, total: int, description: str) -> None:
            self.of.append((total, description))

    split = open_data(data, "test")
    for path in models.values():
        reported = Told()
        model_scores(vse.load(path), split, RetrievalTest.of(split), progress=reported)
        assert reported.of[0] == (9, "videos")
        assert "images" not in dict(reported.of).values()


def test_eval_prints_video_table(models, data, capsys):
    """Directions are those of videos, the card is below, and the paper has no row for this data."""
    arguments = [models["vse-infinity"], models["hgr"], "--compare", "--against", "paper", "--samples", "20"]
    assert main(["eval", *arguments, "--data", str(data), "--split", "dev"]) == 0
    output = capsys.readouterr()
    assert "v→t" in output.out
    assert "v2t_median_rank" in output.out
    assert "9 videos" in output.out
    assert "tiny val, all: another test" in output.err


@pytest.mark.parametrize(
    ("option", "value"), [("--protocol", "coco-5k"), ("--images", "x"), ("--save-embeddings", "x"), ("--markdown", "x")]
)
def test_eval_refuses_image_options_for_videos(option, value, models, data, capsys):
    """One line, exit code 2, before anything is computed."""
    assert main(["eval", models["hgr"], "--data", str(data), option, value]) == 2
    assert f"{option} is for images, and" in capsys.readouterr().err


def test_eval_names_video_feature_width(models, tmp_path, capsys):
    """One line that names both widths, for both kinds of models."""
    wide = write_videos(tmp_path / "wide", 4, 4, width=5)
    for name in models.values():
        assert main(["eval", name, "--data", str(wide)]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("vse: error: ")
        assert "5)" in error
        assert "12)" in error

"""``vse experiment video`` as a person runs it, on videos that can be learned."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.training.support_video import write_videos

import vse
from vse.cli.main import main
from vse.data import open_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A quick run of two seeds, and its folder."""
    folder = tmp_path_factory.mktemp("video")
    write_videos(folder / "data", train=30, dev=10, width=512)
    command = [
        "experiment",
        "video",
        "--quick",
        "--seeds",
        "0,1",
        "--data",
        str(folder / "data"),
        "--set",
        "schedule.batch_size=16",
    ]
    assert main([*command, "--out", str(folder / "out")]) == 0
    return folder, [*command, "--out", str(folder / "out")]


def naive_recall(scores, right, k):
    """The share of rows with a right column among the ``k`` best; ties count against."""
    hits = [
        any(int((row >= row[c]).sum()) - sum(row[d] >= row[c] for d in answers if d != c) <= k for c in answers)
        for row, answers in zip(scores, right, strict=True)
    ]
    return 100 * float(np.mean(hits))


def test_video_experiment_figures_match_loops(finished):
    """The table holds what the chosen models reach on the test split, computed from their scores by loops."""
    folder, _ = finished
    result = json.loads((folder / "out/result.json").read_text())
    data = open_data(folder / "data", "test", use="features")
    sentences = list(dict.fromkeys(data.captions))
    pairs = {(int(owner), sentences.index(text)) for text, owner in zip(data.captions, data.caption_to_image)}  # noqa: B905
    videos = [data.images[n] for n in range(len(data.images))]
    assert [row["label"] for row in result["rows"]] == ["VSE++", "VSE∞", "HGR", "HGR∞"]
    for row in result["rows"]:
        for seed in row["seeds"]:
            model = vse.load(f"{seed['folder']}/best")
            if row["label"].startswith("HGR"):
                scores = model.score_pairs(videos, sentences)
            else:
                scores = model.encode_videos(videos).astype(np.float64) @ model.encode_texts(sentences).T
            v2t = [[c for v, c in pairs if v == video] for video in range(len(videos))]
            t2v = [[v for v, c in pairs if c == text] for text in range(len(sentences))]
            for k in (1, 5, 10):
                assert seed["test"][f"i2t_r{k}"] == pytest.approx(naive_recall(scores, v2t, k), abs=1e-6)
                assert seed["test"][f"t2i_r{k}"] == pytest.approx(naive_recall(scores.T, t2v, k), abs=1e-6)
        rsums = [seed["test"]["rsum"] for seed in row["seeds"]]
        assert row["mean"]["rsum"] == pytest.approx(np.mean(rsums))
    rsum = {row["label"]: row["mean"]["rsum"] for row in result["rows"]}
    assert [claim["claim"] for claim in result["claims"]] == ["VSE∞ above VSE++", "HGR∞ above HGR"]
    assert result["claims"][0]["difference"] == pytest.approx(rsum["VSE∞"] - rsum["VSE++"])
    assert (folder / "out/table.md").read_text().startswith("|  | augmentation | seeds | v→t R@1 |")
    assert all((folder / "out" / name).stat().st_size for name in ("seeds.png", "dev.png"))


def test_nothing_is_done_twice(finished, capsys):
    """A second call trains and ranks nothing and says the same; a run that is missing is trained again."""
    folder, command = finished
    before = {path: path.stat().st_mtime_ns for path in folder.glob("out/runs/*/*.json*")}
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.glob("out/runs/*/*.json*")} == before
    assert json.loads(capsys.readouterr().out)["rows"] == json.loads((folder / "out/result.json").read_text())["rows"]


def test_other_settings_need_another_folder(finished, capsys):
    """Rows of one table are trained alike."""
    _, command = finished
    assert main([*command, "--set", "optimizer.lr=0.5"]) == 1
    assert "another recipe: optimizer.lr 0.0001 (now 0.5)" in capsys.readouterr().err


def test_video_experiment_names_data_option(capsys):
    """The option is named."""
    assert main(["experiment", "video"]) == 1
    assert "--data DIR" in capsys.readouterr().err

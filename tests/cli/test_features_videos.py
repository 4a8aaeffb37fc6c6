"""``vse features`` for videos: detection, reports, and training on the result."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from tests.clip_support import CHANNELS, SIDE, use_tiny, write_clips
from tests.data.support import entry, write_karpathy
from tests.data.video_support import write_hgr
from tests.training.support import write_toml
from tests.training.support_video import towers, video_values

import vse
from vse.cli.main import main
from vse.data.features import FeatureStore
from vse.data.video_sources import FrameFolder

pytestmark = pytest.mark.usefixtures("tiny")


@pytest.fixture
def tiny(monkeypatch):
    use_tiny(monkeypatch)


@pytest.fixture
def clips(tmp_path):
    """Two videos and a corrupt one."""
    folder = write_clips(tmp_path / "clips", "a.mp4", "more/b.webm")
    (folder / "[bold]broken.mp4").write_text("no clip")
    return folder


def call(place, out, *more: str) -> list[str]:
    return ["features", str(place), "--backbone", "tiny", "--into", str(out), "--size", str(SIDE), *more]


def test_video_features_prints_result_and_progress(clips, tmp_path, capsys):
    """A folder of videos is recognised; the result is on stdout, progress on stderr."""
    assert main(call(clips, tmp_path / "out")) == 0
    output = capsys.readouterr()
    assert f"tiny: 3 videos, up to 20 frames of {CHANNELS} channels" in output.out
    assert "2 videos with 25 frames computed now" in output.out
    assert "no features for [bold]broken: not a video" in output.out
    assert f"The features are in {tmp_path / 'out'}" in output.out
    assert "videos/s" in output.err
    assert FrameFolder(tmp_path / "out").names() == {"a", "more_b"}


def test_video_features_json_and_second_run(clips, tmp_path, capsys):
    """``--json`` prints one object; a second call finds everything done and tries only what failed."""
    assert main(call(clips, tmp_path / "out", "--frames", "4", "--kind", "videos", "--json")) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["clips"], first["computed"], first["kept"], first["frames"]) == (3, 2, 0, 8)
    assert (first["frames_per_clip"], first["channels"], first["clipped"], first["notes"]) == (4, CHANNELS, 0, [])
    assert main(call(clips, tmp_path / "out", "--frames", "4", "--json")) == 0
    output = capsys.readouterr()
    second = json.loads(output.out)
    assert (second["clips"], second["computed"], second["kept"], second["frames"]) == (3, 0, 2, 0)
    assert [problem["id"] for problem in second["problems"]] == ["[bold]broken"]
    assert "2 videos were done before" in output.err


def test_features_of_mixed_folder_need_kind(clips, tmp_path, capsys):
    """--kind selects images or videos."""
    Image.new("RGB", (40, 30), (10, 50, 245)).save(clips / "photo.png")
    assert main(call(clips, tmp_path / "out")) == 1
    assert "holds images and videos: choose with --kind images or --kind videos" in capsys.readouterr().err
    assert main(call(clips, tmp_path / "pictures", "--kind", "images")) == 0
    assert FeatureStore.open(tmp_path / "pictures").ids == ("photo.png",)
    assert main(call(clips, tmp_path / "videos", "--kind", "videos")) == 0
    assert FrameFolder(tmp_path / "videos").names() == {"a", "more_b"}


def test_features_of_dataset_read_images(clips, tmp_path):
    """Whatever else its folder holds."""
    Image.new("RGB", (40, 30), (10, 50, 245)).save(clips / "photo.png")
    write_karpathy(clips / "dataset_x.json", [entry("photo.png", "train", "a")])
    assert main(call(clips, tmp_path / "out")) == 0
    assert FeatureStore.open(tmp_path / "out").ids == ("photo.png",)


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--frames", "5"], 1, "frames 20, now it is 5"),
        (["--size", "32"], 1, "preprocessing.size [64, 64], now it is [32, 32]"),
        (["--frames", "0"], 2, "0"),
        (["--frames", "257"], 2, "257"),
        (["--kind", "images", "--frames", "5"], 2, "--frames is for videos"),
        (["--kind", "images"], 1, "no known layout"),
        (["--kind", "videos", "--layout", "table"], 2, "--layout is for datasets of images"),
        (["--kind", "videos", "--split", "test"], 2, "--split is for datasets of images"),
        (["--kind", "films"], 2, "films"),
    ],
)
def test_video_features_errors_are_one_line(clips, tmp_path, capsys, more, code, said):
    """Other parameters and usage errors are one line with the right exit code."""
    assert main(call(clips, tmp_path / "out")) == 0
    capsys.readouterr()
    assert main(call(clips, tmp_path / "out", *more)) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("vse: error: ")
    assert output.err.count("\n") == 1
    assert said in output.err


def test_video_features_refuses_invalid_folders(tmp_path, capsys):
    """Images with ``--frames``, captions of videos, two videos with one name, no videos: one line each."""
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (40, 30)).save(tmp_path / "pictures" / "a.png")
    (tmp_path / "twice").mkdir()
    for ending in ("mp4", "webm"):
        (tmp_path / "twice" / f"a.{ending}").write_bytes(b"")
    captions = write_hgr(tmp_path / "hgr", {"a": ["x"]}, {"train": {"a": None}})
    for place, more, code, said in (
        (tmp_path / "pictures", ["--frames", "5"], 2, "--frames is for videos, and these are images"),
        (tmp_path / "pictures", ["--kind", "videos"], 1, "no videos in it"),
        (tmp_path / "twice", [], 1, "a.mp4 and a.webm are both video 'a'"),
        (captions, [], 1, "name the folder of video files, with --kind videos"),
        (tmp_path / "gone", [], 1, "does not exist"),
    ):
        assert main(call(place, tmp_path / "out", *more)) == code
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_video_features_training_end_to_end(tmp_path):
    """A loaded model encodes video files as it encodes their stored features."""
    names = {split: [f"{split}/{number}" for number in range(4)] for split in ("train", "val")}
    folder = write_clips(tmp_path / "clips", *(f"{name}.mp4" for each in names.values() for name in each))
    into = tmp_path / "features"
    assert main(call(folder, into)) == 0
    reported = {name: [f"a dog runs {place}", "the cat"] for each in names.values() for place, name in enumerate(each)}
    data = write_hgr(tmp_path / "data", reported, {split: dict.fromkeys(each) for split, each in names.items()})
    values = video_values(data, "vse-infinity", schedule={"epochs": 2, "batch_size": 4, "decay_epochs": 0})
    values["model"] = towers("gpo")
    values["model"]["image"]["feature_size"] = CHANNELS
    recipe = write_toml(tmp_path / "tiny.toml", values)
    assert main(["train", str(recipe), "--features", str(into), "--into", str(tmp_path / "run"), "--json"]) == 0
    model = vse.load(tmp_path / "run" / "best")
    seen_by = model.config.image.backbone
    header = json.loads((into / "features.json").read_text())
    assert (seen_by.name, seen_by.frames, seen_by.fingerprint) == ("tiny", 20, header["fingerprint"])
    assert seen_by.preprocessing == header["preprocessing"]
    paths = sorted(folder.rglob("*.mp4"))
    arrays = [np.load(into / f"{path.parent.name}_{path.stem}.npy") for path in paths]
    by_path, by_array = model.encode_videos(paths), model.encode_videos(arrays)
    assert by_path.shape == (8, 16)
    np.testing.assert_allclose(by_path, by_array, atol=2e-3)
    again = vse.load(model.save(tmp_path / "again"))
    assert again.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(again.encode_videos(paths[:2]), by_path[:2])

"""Contracts of frame features of videos: what is kept is what the backbone sees, once for every video."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.clip_support import CHANNELS, OPTIONS, SIDE, naive_rows, tiny, write_clips
from tests.data.video_support import msrvtt_json, write_json
from tests.inputs.video.clips import write_clip
from tests.models.test_extract import Telling

from vse._util.locks import FolderLock
from vse.data import open_data
from vse.data.features import read_video_header
from vse.data.video_sources import FrameFolder
from vse.encoders.backbones import CaffeResNet
from vse.errors import InputError, VSEError
from vse.inputs.files import Problem
from vse.models.extract import VideoFiles, backbone_fingerprint, extract_clip_features, find_videos

CALL = {"size": SIDE, "name": "caffe-resnet", "options": OPTIONS}

# The same extraction as in the test, so slow that it can be killed in the middle.
SLOW_RUN = """
import sys, time
import torch
from vse.models.extract import extract_clip_features, find_videos
from vse.encoders.backbones import CaffeResNet
class Slow(CaffeResNet):
    def forward(self, pixels):
        time.sleep(0.3)
        return super().forward(pixels)
torch.manual_seed(0)
backbone, options = Slow(blocks=(1, 1, 1, 1), width=4), {"blocks": [1, 1, 1, 1], "width": 4}
extract_clip_features(find_videos(sys.argv[1]), backbone, sys.argv[2], size=64, name="caffe-resnet", options=options)
"""


class Counting(CaffeResNet):
    """A tiny backbone that counts the frames it is given."""

    seen = 0

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.seen += len(pixels)
        return super().forward(pixels)


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_clips(tmp_path / "clips", "a.mp4", "b.webm", "more/c.avi", "more/deep/d.MKV")


def extract(folder: Path, into: Path, backbone: CaffeResNet | None = None, **changes: object):
    return extract_clip_features(find_videos(folder), backbone or tiny(), into, **{**CALL, **changes})


def cut(path: Path, seconds: float = 6.0) -> None:
    """A video of which the second half is missing."""
    write_clip(path, seconds=seconds, codec="libvpx-vp9")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every visible file; of arrays also the time, which belongs to them."""
    found = (path for path in folder.iterdir() if not path.name.startswith("."))
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns if path.suffix == ".npy" else 0) for path in found}


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_stored_frame_features_equal_backbone_output(folder, tmp_path, batch_size):
    """One float16 row a frame, the mean over its cells; batches and decoding ahead change nothing."""
    backbone, progress, clips = tiny(), Telling(), find_videos(folder)
    report = extract(folder, tmp_path / "out", backbone, batch_size=batch_size, progress=progress)
    assert clips.ids == ("a", "b", "more_c", "more_deep_d")
    total = 0
    for path, name in zip(clips.paths, clips.ids, strict=True):
        kept, expected = np.load(tmp_path / "out" / f"{name}.npy"), naive_rows(path)
        assert kept.dtype == np.float16
        np.testing.assert_allclose(kept, expected, rtol=2e-3, atol=1e-3)
        total += len(kept)
    assert (report.count, report.computed, report.kept, report.frames) == (4, 4, 0, total)
    assert (report.clipped, report.problems, report.notes) == (0, {}, {})
    assert progress.done == 4
    header = json.loads((tmp_path / "out" / "features.json").read_text())
    assert header["backbone"] == "caffe-resnet"
    assert header["options"] == OPTIONS
    assert header["preprocessing"]["size"] == [SIDE, SIDE]
    assert header["fingerprint"] == backbone_fingerprint(backbone)
    assert (header["frames"], header["channels"], header["problems"]) == (20, CHANNELS, {})


def test_video_extraction_limits_frames(folder, tmp_path):
    """At most so many of a video, those of :func:`even_frames_of`."""
    extract(folder, tmp_path / "out", frames=3)
    for path, name in zip(find_videos(folder).paths, ("a", "b", "more_c", "more_deep_d"), strict=True):
        kept = np.load(tmp_path / "out" / f"{name}.npy")
        assert kept.shape == (3, CHANNELS)
        np.testing.assert_allclose(kept, naive_rows(path, 3), rtol=2e-3, atol=1e-3)


def test_extracted_videos_are_read_as_frame_features(folder, tmp_path):
    """Readers of frame features take it as it is; what lies beside the arrays does not disturb them."""
    extract(folder, tmp_path / "out")
    source = FrameFolder(tmp_path / "out")
    assert source.names() == {"a", "b", "more_c", "more_deep_d"}
    published = msrvtt_json({"more/c": ("train", ["a cat"]), "b": ("train", ["a dog"]), "x": ("train", ["a car"])})
    write_json(tmp_path / "data" / "train_val_videodatainfo.json", published)
    data = open_data(tmp_path / "data", "train", features=tmp_path / "out")
    assert set(data.images.ids) == {"more/c", "b"}
    assert data.dropped == ("x",)
    row = data.images.ids.index("more/c")
    np.testing.assert_array_equal(data.images[row], np.load(tmp_path / "out" / "more_c.npy"))


def test_video_extraction_reports_bad_videos_and_retries_them(folder, tmp_path):
    """Problems stop nothing and have reasons; a truncated video is used, with a note; a repaired one is computed."""
    (folder / "text.mp4").write_text("no clip")
    (folder / "zero.mp4").write_bytes(b"")
    cut(folder / "half.webm")
    (folder / "lost.mp4").symlink_to(folder / "nowhere.mp4")
    report = extract(folder, tmp_path / "out")
    assert (report.count, report.computed) == (8, 5)
    assert set(report.problems) == {"lost", "text", "zero"}
    assert report.problems["zero"] == "empty"
    assert "no such file" in report.problems["lost"]
    assert list(report.notes) == ["half"]
    header = read_video_header(tmp_path / "out")
    assert (header.problems, header.notes) == (report.problems, report.notes)
    told = json.loads(json.dumps(report.to_json()))
    assert {"id": "zero", "reason": "empty"} in told["problems"]
    assert told["notes"][0]["id"] == "half"
    write_clip(folder / "zero.mp4", seconds=1)
    write_clip(folder / "half.webm", seconds=1, codec="libvpx-vp9")
    backbone = tiny(Counting)
    report = extract(folder, tmp_path / "out", backbone)
    assert (report.computed, report.kept, backbone.seen) == (2, 4, 20)
    assert set(report.problems) == {"lost", "text"}
    assert report.notes == {}
    header = read_video_header(tmp_path / "out")
    assert (header.problems, header.notes) == (report.problems, {})
    np.testing.assert_allclose(
        np.load(tmp_path / "out/zero.npy"), naive_rows(folder / "zero.mp4"), rtol=2e-3, atol=1e-3
    )


def test_video_extraction_recomputes_changed_videos(folder, tmp_path):
    """By the video's time of change, to the nanosecond; a video that turned bad loses what it had."""
    out = tmp_path / "out"
    extract(folder, out)
    first = contents(out)
    backbone = tiny(Counting)
    report = extract(folder, out, backbone)
    assert (report.kept, report.computed, backbone.seen) == (4, 0, 0)
    assert contents(out) == first
    stamp = (folder / "a.mp4").stat().st_mtime_ns
    write_clip(folder / "a.mp4", seconds=3)
    os.utime(folder / "a.mp4", ns=(stamp + 1, stamp + 1))
    (folder / "b.webm").write_bytes(b"no longer a clip")
    report = extract(folder, out)
    assert (report.kept, report.computed, list(report.problems)) == (2, 1, ["b"])
    np.testing.assert_allclose(np.load(out / "a.npy"), naive_rows(folder / "a.mp4"), rtol=2e-3, atol=1e-3)
    assert not (out / "b.npy").exists()


def test_video_extraction_keeps_features_of_other_folders(folder, tmp_path):
    """Features and problems of other videos stay."""
    (folder / "bad.mp4").write_bytes(b"")
    write_clips(tmp_path / "others", "x.mp4")
    extract(folder, tmp_path / "out")
    report = extract(tmp_path / "others", tmp_path / "out")
    assert (report.count, report.problems) == (1, {})
    assert FrameFolder(tmp_path / "out").names() == {"a", "b", "more_c", "more_deep_d", "x"}
    assert read_video_header(tmp_path / "out").problems == {"bad": "empty"}


def test_video_extraction_clips_values_beyond_float16(folder, tmp_path):
    """Too large means are clipped and counted, infinite ones too; a video that gives NaN is a problem."""

    class Extreme(CaffeResNet):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            cells = torch.zeros_like(super().forward(pixels))
            cells[:, :, :4] = torch.tensor([7e4, -7e4, torch.inf, 65504.0])
            if len(pixels) == 15:  # the second video has as many frames
                cells[-1, 0, 0] = torch.nan
            return cells

    report = extract(folder, tmp_path / "out", tiny(Extreme), batch_size=64)
    assert report.problems == {"b": "the backbone gives NaN for it"}
    assert report.clipped == 3 * report.frames
    assert np.load(tmp_path / "out" / "a.npy")[-1, :5].tolist() == [65504, -65504, 65504, 65504, 0]


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_video_extraction_resumes_after_kill(folder, tmp_path):
    """After kill −9 the same call ends with the files of an uninterrupted run, and no finished video is seen again."""
    cut(folder / "0.webm")
    (folder / "00.mp4").write_bytes(b"")
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", SLOW_RUN, str(folder), str(out)]) as process:
        while process.poll() is None and len(list(out.glob("[!.]*.npy"))) < 2:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    finished = {path.name: path.read_bytes() for path in out.glob("[!.]*.npy")}
    assert 2 <= len(finished) < 5
    backbone = tiny(Counting)
    report = extract(folder, out, backbone)
    assert (report.kept, report.computed) == (len(finished), 5 - len(finished))
    assert backbone.seen == report.frames
    extract(folder, tmp_path / "whole")
    resumed, whole = contents(out), contents(tmp_path / "whole")
    assert {name: resumed[name][0] for name in finished} == finished
    assert resumed.keys() == whole.keys()
    assert resumed["features.json"] == whole["features.json"]
    for name in resumed:
        assert resumed[name][1] == whole[name][1]
        if name.endswith(".npy"):
            np.testing.assert_allclose(np.load(out / name), np.load(tmp_path / "whole" / name), rtol=2e-3, atol=1e-3)
    assert {path.name for path in out.iterdir()} == {*whole, ".lock"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": 32}, r"preprocessing.size \[64, 64\], now it is \[32, 32\]"),
        ({"name": "other"}, "backbone 'caffe-resnet', now it is 'other'"),
        ({"options": {"width": 4}}, "options.blocks"),
        ({"frames": 8}, "frames 20, now it is 8"),
        ({"backbone": CaffeResNet(blocks=(1, 1, 1, 1), width=4)}, "fingerprint"),
    ],
)
def test_video_extraction_refuses_other_settings(folder, tmp_path, changes, said):
    """A folder is not mixed from two kinds of features."""
    extract(folder, tmp_path / "out")
    before = contents(tmp_path / "out")
    with pytest.raises(InputError, match=said):
        extract(folder, tmp_path / "out", **changes)
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": 0}, "size must be a whole number from 1 up, got 0"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"frames": 0}, "frames must be a whole number from 1 to 256, got 0"),
        ({"backbone": "caffe-resnet50", "options": None}, "no published weights for 'caffe-resnet50'"),
    ],
)
def test_invalid_video_extraction_creates_no_folder(folder, tmp_path, changes, said):
    """What is wrong from the start is found before a folder is made."""
    with pytest.raises(InputError, match=said):
        extract(folder, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_video_extraction_refuses_foreign_folders(folder, tmp_path):
    """A folder with other things in it, a file, and a folder that another process writes are refused."""
    with pytest.raises(InputError, match=r"is not a feature store and not empty, it holds 'a.mp4'"):
        extract(folder, folder)
    with pytest.raises(InputError, match="is a file"):
        extract(folder, folder / "a.mp4")
    (tmp_path / "out").mkdir()
    lock = FolderLock(tmp_path / "out")
    with pytest.raises(VSEError, match="is being written by"):
        extract(folder, tmp_path / "out")
    lock.release()


def test_video_extraction_reports_too_long_names(tmp_path):
    """A path that fits and whose id does not is a problem of this video alone."""
    long = Path(*["d" * 100] * 3)
    clips = find_videos(write_clips(tmp_path / "clips", "a.mp4", str(long / "b.mp4")))
    report = extract_clip_features(clips, tiny(), tmp_path / "out", **CALL)
    assert report.computed == 1
    assert list(report.problems.values()) == ["its path is too long to name a file of features: shorten it"]


def test_video_extraction_takes_given_ids(folder, tmp_path):
    """Ids of one's own."""
    extract_clip_features(VideoFiles((folder / "a.mp4",), ("video7",)), tiny(), tmp_path / "out", **CALL)
    assert FrameFolder(tmp_path / "out").names() == {"video7"}


def test_video_extraction_reports_scan_problems_first(folder, tmp_path):
    """Problems of the search for videos stand before those of the videos."""
    clips = find_videos(folder)
    clips = VideoFiles(clips.paths, clips.ids, (Problem("secret", "the folder cannot be read"),))
    assert extract_clip_features(clips, tiny(), tmp_path / "out", **CALL).problems == {
        "secret": "the folder cannot be read"
    }

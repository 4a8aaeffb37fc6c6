"""Contracts of the check of a dataset of videos."""

from __future__ import annotations

import json

import numpy as np
from tests.data.video_support import frames, msrvtt_json, write_hgr, write_json

from vse.data import check_data

CAPTIONS = {"v1": ["a man runs"], "v2": ["a man runs", "word " * 31], "v3": ["a dog"]}


def kinds(findings) -> dict[str, int]:
    return {finding.kind: finding.count for finding in findings}


def test_check_reports_clean_videos(tmp_path):
    """Counts, frames and captions of every split; no errors, no warnings; the report is plain JSON."""
    splits = {"train": {"v1": frames(30, seed=1)}, "test": {"v3": frames(2, seed=3)}}
    report = check_data(write_hgr(tmp_path, CAPTIONS, splits))
    assert (report.ok, report.layout, report.warnings) == (True, "hgr", ())
    assert [(one.split, one.images, one.captions) for one in report.splits] == [("train", 1, 1), ("test", 1, 1)]
    assert str(report.splits[0].features) == "1 × 30 frames × 4 float16"
    assert json.loads(json.dumps(report.to_json()))["splits"][0]["features"]["frames"] == [30, 30.0, 30]


def test_check_warns_about_videos(tmp_path):
    """Videos without frames or captions, long captions, zeros, and what is in two splits are warnings."""
    same = frames(3, seed=1)
    splits = {
        "train": {"v1": same, "v3": None},
        "test": {"v2": same, "v1": frames(2), "v9": np.zeros((2, 4), "float16")},
    }
    report = check_data(write_hgr(tmp_path, CAPTIONS, splits))
    assert report.ok
    assert kinds(report.warnings) == {
        "videos without frames, left out": 1,
        "videos without captions": 1,
        "captions cut after 30 words": 1,
        "frames that are all zero": 2,
        "videos in two splits": 1,
        "identical frames in two splits": 1,
        "identical captions in two splits": 1,
    }
    assert report.warnings[0].examples == ("train: v3",)


def test_check_reports_errors_of_videos(tmp_path):
    """NaN, empty captions and splits that cannot be read; the sound splits are still checked."""
    broken = frames(3, seed=1)
    broken[0, 0] = np.nan
    captions = {**CAPTIONS, "v3": [""]}
    splits = {"train": {"v1": broken}, "val": {"v2": None}, "test": {"v3": frames(2)}}
    report = check_data(write_hgr(tmp_path, captions, splits))
    assert kinds(report.errors) == {"frames with NaN or infinity": 1, "unreadable split": 1, "empty caption": 1}
    assert [one.split for one in report.splits] == ["train", "test"]


def test_check_videos_without_splits(tmp_path):
    """Captions alone are no data to train on."""
    assert kinds(check_data(write_hgr(tmp_path, CAPTIONS, {})).errors) == {"no splits": 1}


def test_check_videos_without_captions(tmp_path):
    """Videos that nobody described are no data to train on either."""
    report = check_data(write_hgr(tmp_path, {}, {"train": {"v1": frames(1)}, "test": {"v3": frames(2)}}))
    assert kinds(report.errors) == {"splits without captions": 2}


def test_check_reports_frames_of_several_sizes_and_types(tmp_path):
    """Sizes that differ between splits, and a type within one that packed frames could not hold."""
    splits = {
        "train": {"v1": frames(2, 4), "v2": frames(2, 4, dtype="float32")},
        "test": {"v3": frames(2, 5), "v4": frames(2, 5)},
    }
    report = check_data(write_hgr(tmp_path, CAPTIONS, splits))
    assert kinds(report.errors) == {"frames of several types": 1, "frames of several sizes": 1}
    assert "train 4, test 5" in report.errors[1].examples[0]


def test_check_reports_incomplete_role_graphs(tmp_path):
    """Sentences that a file of role graphs lacks, and graphs that point outside; without a file nothing is said."""
    root = write_hgr(tmp_path, CAPTIONS, {"train": {"v1": frames(1)}, "test": {"v3": frames(2)}})
    file = root / "annotation/RET/sent2rolegraph.augment.json"
    write_json(file, {"a man runs": [{}, []]})
    assert kinds(check_data(root).warnings) == {"sentences without a role graph, parsed by rules": 1}
    graph = [{"0": {"role": "ROOT", "spans": []}, "1": {"role": "V", "spans": [1, 2]}}, []]  # of three words
    write_json(file, dict.fromkeys(("a man runs", "a dog", "unused"), graph))
    (found,) = check_data(root).warnings
    assert (found.kind, found.examples) == ("role graphs with nodes outside of their sentence, left out", ("a dog",))


def test_check_reports_unusable_word_files(tmp_path):
    """A file of numbered words that training could not take is an error, one that lacks its words a warning."""
    root = write_hgr(tmp_path, CAPTIONS, {"train": {"v1": frames(1)}})
    file = write_json(root / "annotation/RET/word2int.json", {"a": 3, "man": 3})
    assert kinds(check_data(root).errors) == {"unreadable words": 1}
    write_json(file, {})
    (found,) = check_data(root).warnings
    assert found.kind == "words that the file of words lacks"
    assert f"{file} lacks 100 % of the words of the training captions" in found.examples[0]


def test_check_compares_splits_within_protocols_only(tmp_path):
    """1k-A is a part of the official test and of no training list: that is no overlap. Captions need no frames."""
    videos = {"a": ("train", ["x"]), "b": ("test", ["y"]), "c": ("test", ["z"]), "d": ("validate", ["w"])}
    write_json(tmp_path / "MSRVTT_data.json", msrvtt_json(videos))
    (tmp_path / "MSRVTT_train.9k.csv").write_text("video_id\na\nc\n")
    (tmp_path / "MSRVTT_JSFUSION_test.csv").write_text("video_id,sentence\nb,y\n")
    report = check_data(tmp_path)
    assert report.ok
    assert [one.split for one in report.splits] == ["train", "val", "test", "test-1k-A", "train-9k"]
    assert kinds(report.warnings) == {"remarks on splits": 1}
    (tmp_path / "MSRVTT_train.9k.csv").write_text("video_id\na\nb\n")
    assert kinds(check_data(tmp_path).warnings)["videos in two splits"] == 1

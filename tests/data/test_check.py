"""Contracts of the check of a dataset."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.data.support import entry, features, write_image, write_karpathy, write_lines, write_precomp

from vse.data import check_data
from vse.data.report import EXAMPLES


def counts(findings):
    return {finding.kind: finding.count for finding in findings}


class Recorder:
    """A reporter that adds up."""

    def __init__(self):
        self.total = self.done = 0

    def start(self, total, description):
        self.total += total

    def advance(self, steps=1, description=None):
        self.done += steps

    def note(self, message):
        pass

    def finish(self):
        pass


def test_check_reports_clean_features(tmp_path):
    """A clean dataset: its figures, no errors, no warnings, and progress that ends where it said."""
    write_precomp(tmp_path, "train", features(4, seed=1), [f"train {j} x" for j in range(8)])
    write_precomp(tmp_path, "dev", np.repeat(features(3, seed=2), 2, 0), [f"dev {j}" for j in range(6)])
    progress = Recorder()
    report = check_data(tmp_path, progress=progress)
    assert report.ok
    assert report.warnings == ()
    train, dev = report.splits
    assert (train.split, train.images, train.captions, train.captions_per_image) == ("train", 4, 8, (2, 2.0, 2))
    assert train.mean_words == 3
    assert (train.features.shape, train.features.dtype, train.features.rows_per_image) == ((4, 3, 4), "float32", 1)
    assert (dev.images, dev.captions, dev.features.rows_per_image) == (3, 6, 2)
    assert progress.done == progress.total == 7


def test_check_reports_bad_and_shared_features(tmp_path):
    """NaN and infinity are errors by image; empty regions and what two splits share are warnings."""
    test = features(4)
    test[1, 2, 0] = np.nan
    test[3, 0, 0] = -np.inf
    test[0, 1] = test[2, 2] = 0
    write_precomp(tmp_path, "test", np.repeat(test, 2, 0), ["a", "b", "c", "d", "e", "f", "a", "b"], list("AABBCCDD"))
    write_precomp(tmp_path, "testall", test[:2], ["a", "g"], ["A", "X"])
    report = check_data(tmp_path)
    assert not report.ok
    (finding,) = report.errors
    assert finding.count == 3
    assert finding.examples[:2] == ("test: row 2 (id B)", "test: row 6 (id D)")
    assert counts(report.warnings) == {
        "regions that are all zero": 3,
        "image ids in two splits": 1,
        "identical images in two splits": 2,
        "identical captions in two splits": 1,
    }


def test_check_reports_missing_and_duplicate_files(tmp_path):
    """Missing and empty files are errors; the same content under two names is found across splits, not inside one."""
    names = {"train": ["a.jpg", "b.jpg", "twin.jpg"], "test": ["c.jpg", "d.jpg", "gone.jpg", "a.jpg"]}
    write_karpathy(
        tmp_path / "dataset_x.json",
        [entry(name, split, f"{split} {name}") for split, group in names.items() for name in group]
        + [entry("void.jpg", "test")],
    )
    for name, content in {"a": b"A", "b": b"same", "twin": b"same", "c": b"same", "d": b"size", "void": b""}.items():
        write_image(tmp_path / f"images/{name}.jpg", content)
    report = check_data(tmp_path)
    assert counts(report.errors) == {"missing image file": 1, "empty or unreadable image file": 1}
    assert counts(report.warnings) == {
        "images without captions": 1,
        "image ids in two splits": 1,
        "identical images in two splits": 2,
    }
    train, test = report.splits
    assert (train.files.missing, train.files.unreadable) == (0, 0)
    assert (test.files.missing, test.files.unreadable) == (1, 1)
    assert test.captions_per_image == (0, 0.8, 1)


def test_check_continues_after_broken_split(tmp_path):
    """A split that cannot be read is an error in the report, beside the figures of the others."""
    write_precomp(tmp_path, "train", features(4), ["x"] * 4)
    write_precomp(tmp_path, "test", features(4), ["x"] * 5)
    write_precomp(tmp_path, "dev", features(4).astype("float64"), ["x"] * 4)
    report = check_data(tmp_path)
    assert [split.split for split in report.splits] == ["train"]
    (finding,) = report.errors
    assert finding.count == 2
    assert finding.examples[0].startswith("dev: ")
    assert "5 captions for 4 feature rows" in finding.examples[1]


def test_check_counts_all_problems_and_lists_the_first(tmp_path):
    """Reading continues after a problem: all are counted, and the first twenty places of a kind are named."""
    rows = [f"a{j}.jpg,{'' if j % 2 else 'x'},train" for j in range(60)] + ["too,many,values,here", "b.jpg,y,test"]
    path = write_lines(tmp_path / "t.csv", ["path,caption,split", *rows])
    for j in range(60):
        write_image(tmp_path / f"a{j}.jpg")
    write_image(tmp_path / "b.jpg")
    report = check_data(path)
    assert counts(report.errors) == {"empty caption": 30, "malformed row": 1}
    empty = report.errors[0]
    assert len(empty.examples) == EXAMPLES
    assert empty.more == 30 - EXAMPLES
    assert empty.examples[0].startswith(f"{path}:3: ")


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("dataset_x.json", "{", "unreadable data"),
        ("t.csv", "path,caption\na,b,c\n", "malformed row"),
        ("t.csv", "path,caption\n", "no splits"),
        ("t.jsonl", "{}\n", "malformed row"),
    ],
)
def test_check_reports_dataset_without_usable_split(tmp_path, name, content, kind):
    """Where nothing can be read the report still says why."""
    (tmp_path / name).write_text(content)
    report = check_data(tmp_path / name)
    assert not report.ok
    assert report.splits == ()
    assert kind in counts(report.errors)


def test_check_accepts_folder_without_captions(tmp_path):
    """A collection for searching is fine as it is."""
    write_image(tmp_path / "a.jpg")
    report = check_data(tmp_path)
    assert report.ok
    assert report.warnings == ()
    assert report.splits[0].mean_words is None


def test_data_report_renders_and_serializes(tmp_path):
    """Brackets, line ends and bytes that are no text in a name neither vanish nor break the output."""
    rows = [{"path": "[red]x.jpg", "caption": "x"}, {"path": "b\n\udcff.jpg", "caption": "y"}]
    path = write_lines(tmp_path / "t.jsonl", map(json.dumps, rows))
    report = check_data(path)
    value = report.to_json()
    assert json.loads(json.dumps(value, allow_nan=False)) == json.loads(json.dumps(value))
    assert value["ok"] is False
    assert value["layout"] == "table"
    assert value["splits"][0]["captions_per_image"] == {"min": 1, "mean": 1.0, "max": 1}
    assert value["splits"][0]["files"] == {"missing": 2, "unreadable": 0}


@pytest.mark.parametrize("name", ["captions.csv", "captions.jsonl"])
def test_check_reads_captions_file_inside_folder(name, tmp_path):
    """A folder of images with a captions file is the dataset of that file."""
    for image in ("a.jpg", "b.jpg"):
        write_image(tmp_path / "photos" / image, image.encode())
    rows = [("photos/a.jpg", "a dog"), ("photos/a.jpg", "a brown dog"), ("photos/b.jpg", "a cat")]
    if name.endswith("csv"):
        write_lines(tmp_path / name, ["path,caption", *map(",".join, rows)])
    else:
        write_lines(tmp_path / name, [json.dumps({"path": path, "caption": caption}) for path, caption in rows])
    report = check_data(tmp_path)
    (split,) = report.splits
    assert (report.ok, report.layout, split.images, split.captions) == (True, "table", 2, 3)


def test_check_of_folder_without_table_names_the_files(tmp_path):
    """``layout="table"`` on a folder says which file it looks for."""
    report = check_data(tmp_path, layout="table")
    assert "captions.csv" in report.errors[0].examples[0]

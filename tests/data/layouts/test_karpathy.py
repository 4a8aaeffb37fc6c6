"""Contracts of the layout of Karpathy's JSON."""

from __future__ import annotations

import json

import pytest
from tests.data.support import entry, write_image, write_karpathy

from vse.data import list_splits, open_data
from vse.errors import InputError

IMAGES = [
    entry("a.jpg", "train", "one", " two "),
    entry("b.jpg", "restval", "three"),
    entry("c.jpg", "val", "four"),
    entry("d.jpg", "test", "five", "six", "seven"),
    entry("e.jpg", "test"),
]


def test_karpathy_reads_splits_and_varying_captions(tmp_path):
    """``restval`` is part of train, ``dev`` means ``val``, and images may have any number of captions."""
    file = write_karpathy(tmp_path / "dataset_flickr30k.json", IMAGES)
    for path in (file, tmp_path):
        assert list_splits(path) == ("train", "val", "test")
        train = open_data(path, "train")
        assert (train.name, train.layout, train.images.kind) == ("flickr30k", "karpathy", "files")
        assert train.captions == ("one", "two", "three")
        assert train.caption_to_image.tolist() == [0, 0, 1]
        assert open_data(path, "dev").captions == ("four",)
        test = open_data(path)
        assert test.captions_of(0) == ("five", "six", "seven")
        assert test.captions_of(1) == ()


@pytest.mark.parametrize(
    ("more", "expected"),
    [({}, "x.jpg"), ({"imgid": 4}, "4"), ({"imgid": 4, "cocoid": 391895}, "391895")],
)
def test_karpathy_ids_match_published_features(tmp_path, more, expected):
    """The id is COCO's, else the running number, else the file name."""
    write_karpathy(tmp_path / "dataset_x.json", [entry("x.jpg", "test", "one", **more)])
    assert open_data(tmp_path).images.ids == (expected,)


@pytest.mark.parametrize("place", ["images/val2014", "val2014", "images", "flickr30k-images", "."])
def test_karpathy_finds_image_folder(tmp_path, place):
    """Files are found beside the JSON, in the usual folders, with and without their ``filepath``."""
    write_karpathy(tmp_path / "dataset_x.json", [entry(f"{n}.jpg", "test", "one", filepath="val2014") for n in "ab"])
    for name in ("a.jpg", "b.jpg"):
        write_image(tmp_path / place / name)
    data = open_data(tmp_path, check_files=True)
    assert data.images[1] == tmp_path / place / "b.jpg"


def test_karpathy_uses_given_image_folder(tmp_path):
    """``images`` wins over every guess; a folder without the files is noticed only when files are checked."""
    write_karpathy(tmp_path / "json/dataset_x.json", [entry("a.jpg", "test", "one", filepath="val2014")])
    write_image(tmp_path / "json/images/a.jpg")
    write_image(tmp_path / "photos/val2014/a.jpg")
    data = open_data(tmp_path / "json", images=tmp_path / "photos", check_files=True)
    assert data.images[0] == tmp_path / "photos/val2014/a.jpg"
    (tmp_path / "none").mkdir()
    assert len(open_data(tmp_path / "json", images=tmp_path / "none").images) == 1
    with pytest.raises(InputError, match="1 of 1 image files are missing"):
        open_data(tmp_path / "json", images=tmp_path / "none", check_files=True)


def test_karpathy_refuses_two_json_files(tmp_path):
    """A folder with two such files is ambiguous; the error names both."""
    for name in ("dataset_a.json", "dataset_b.json"):
        write_karpathy(tmp_path / name, IMAGES)
    with pytest.raises(InputError, match=r"exactly one.*dataset_a\.json, dataset_b\.json"):
        open_data(tmp_path)


HALF = r'images\[0\]: "{}" is .*, which holds a lone surrogate: write it again'
BAD = {
    "not JSON": ("{", "not JSON"),
    "line of the error": ('{\n"images": [,]}', r"\.json:2: not JSON"),
    "a list": ("[]", 'list "images"'),
    "images no list": ('{"images": 3}', 'list "images"'),
    "entry no object": ('{"images": [3]}', r'images\[0\]: "split" is None'),
    "no split": ('{"images": [{"filename": "a"}]}', r'images\[0\]: "split" is None'),
    "no file name": ('{"images": [{"split": "test", "sentences": []}]}', r'images\[0\]: "filename" is None'),
    "no sentences": ('{"images": [{"split": "test", "filename": "a"}]}', '"sentences" is None'),
    "no raw": (json.dumps({"images": [entry("a", "test") | {"sentences": [{}]}]}), '"raw" is None'),
    "empty caption": (json.dumps({"images": [entry("a", "test", "x", " ")]}), r"sentences\[1\]: empty caption"),
    "half a character": (
        json.dumps({"images": [entry("a", "test", "x", "a \ud800")]}),
        r"sentences\[1\]: holds '\\ud800'",
    ),
    "half a file name": (json.dumps({"images": [entry("\ud800.jpg", "test", "x")]}), HALF.format("filename")),
    "half a folder": (json.dumps({"images": [entry("a", "test", "x", filepath="b\udfff")]}), HALF.format("filepath")),
    "half a split": (json.dumps({"images": [entry("a", "t\ud800", "x")]}), HALF.format("split")),
    "half an id": (json.dumps({"images": [entry("a", "test", "x", cocoid="\udcff")]}), HALF.format("cocoid")),
    "no images": ('{"images": []}', "zero images"),
    "deep": ("[" * 100_000, "not usable JSON"),
}


@pytest.mark.parametrize("case", BAD)
def test_karpathy_names_malformed_json(tmp_path, case):
    """What is wrong with the file is one line that says where."""
    text, message = BAD[case]
    (tmp_path / "dataset_x.json").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        open_data(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_karpathy_refuses_features(tmp_path):
    """Asking a layout of files for features is an error."""
    write_karpathy(tmp_path / "dataset_x.json", IMAGES)
    with pytest.raises(InputError, match="use='features'"):
        open_data(tmp_path, use="features")

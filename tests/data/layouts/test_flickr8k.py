"""Contracts of the layout of Flickr8k."""

from __future__ import annotations

import pytest
from tests.data.support import write_image, write_lines

from vse.data import check_data, list_splits, open_data
from vse.errors import InputError


def write_flickr8k(folder, tokens, splits, images="images"):
    write_lines(folder / "Flickr8k.token.txt", tokens)
    for split, names in splits.items():
        write_lines(folder / f"Flickr_8k.{split}Images.txt", names)
        for name in names:
            write_image(folder / images / name)
    return folder


TOKENS = ["a.jpg#0\tone", "b.jpg#0\ttwo", "a.jpg#1\t three ", "z.jpg.1#0\tnobody", "c.jpg#0\tfour"]
SPLITS = {"train": ["b.jpg", "a.jpg"], "dev": ["c.jpg"], "test": ["d.jpg"]}


@pytest.mark.parametrize("images", ["images", "Flicker8k_Dataset", "Flickr8k_Dataset"])
def test_flickr8k_splits_follow_their_lists(tmp_path, images):
    """Images come in the order of the list, with the captions of their name; other names are skipped."""
    write_flickr8k(tmp_path, TOKENS, SPLITS, images)
    assert list_splits(tmp_path) == ("train", "dev", "test")
    data = open_data(tmp_path, "train", check_files=True)
    assert data.layout == "flickr8k"
    assert data.images.ids == ("b.jpg", "a.jpg")
    assert data.captions == ("two", "one", "three")
    assert data.caption_to_image.tolist() == [0, 1, 1]
    assert open_data(tmp_path, "val").captions == ("four",)
    assert open_data(tmp_path, "test").captions_of(0) == ()


@pytest.mark.parametrize(
    ("tokens", "names", "message"),
    [
        (["a.jpg#0 no tab"], ["a.jpg"], r"token\.txt:1: 'a\.jpg#0 no tab' is not"),
        (["a.jpg#0\tfine", "a.jpg\tno number"], ["a.jpg"], r"token\.txt:2"),
        (["a.jpg#0\t "], ["a.jpg"], r"token\.txt:1: empty caption"),
        (["a.jpg#0\tx"], ["a.jpg", "a.jpg"], r"trainImages\.txt:2: a\.jpg is already on line 1"),
        (["a.jpg#0\tx"], ["a.jpg", "", "b.jpg"], r"trainImages\.txt:2: empty line"),
        (["a.jpg#0\tx"], [], "zero images"),
    ],
)
def test_flickr8k_names_malformed_lines(tmp_path, tokens, names, message):
    """A line that cannot be understood is named by file and number."""
    write_flickr8k(tmp_path, tokens, {"train": [name for name in names if name]})
    write_lines(tmp_path / "Flickr_8k.trainImages.txt", names)
    with pytest.raises(InputError, match=message):
        open_data(tmp_path, "train")


def test_flickr8k_official_splits(shared_data):
    """The official splits have 6,000, 1,000 and 1,000 images with five captions each."""
    folder = shared_data / "flickr8k"
    sizes = {}
    for split in list_splits(folder):
        data = open_data(folder, split)
        sizes[split] = len(data.images)
        assert set(data.captions_per_image.tolist()) == {5}
        assert len(set(data.images.ids)) == len(data.images)
    assert sizes == {"train": 6000, "dev": 1000, "test": 1000}
    first = open_data(folder, "train")
    lines = (folder / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()
    name = (folder / "Flickr_8k.trainImages.txt").read_text().split()[0]
    expected = tuple(line.split("\t")[1].strip() for line in lines if line.startswith(f"{name}#"))
    assert first.images[0] == folder / "images" / name
    assert first.captions_of(0) == expected


def test_check_of_published_flickr8k(shared_data):
    """All files are there, no image is in two splits, and the captioned names without an image are reported."""
    report = check_data(shared_data / "flickr8k")
    assert report.ok
    assert [(split.split, split.images, split.captions) for split in report.splits] == [
        ("train", 6000, 30000),
        ("dev", 1000, 5000),
        ("test", 1000, 5000),
    ]
    assert all(split.files is not None and split.files.missing == 0 for split in report.splits)
    kinds = {finding.kind: finding for finding in report.warnings}
    assert "image ids in two splits" not in kinds
    (remark,) = kinds["data that is not used"].examples
    folder = shared_data / "flickr8k"
    lines = (folder / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()
    without = {line.split("#")[0] for line in lines} - {file.name for file in (folder / "images").iterdir()}
    assert remark.startswith(f"{len(without)} captioned names are in no split, {len(without)} of them without an image")

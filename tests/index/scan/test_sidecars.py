"""Sidecars are found beside their file and read; the video of a live photo belongs to its image."""

from __future__ import annotations

import os

import numpy as np
import pytest
from PIL import Image
from tests.index.scan.metadata_support import takeout, titled, xmp
from tests.index.scan.support import make, paths_of
from tests.inputs.video.clips import write_clip

from vse.index.scan import ScanRules, describe, walk
from vse.index.scan.describe import metadata_state
from vse.index.scan.sidecars import Beside, is_live_video, takeout_tags
from vse.index.scan.tags import Tags


def beside(*names):
    found = Beside()
    for name in names:
        found.add(name)
    return found


@pytest.mark.parametrize(
    ("name", "sidecar"),
    [
        ("IMG_1.jpg", "IMG_1.jpg.xmp"),
        ("IMG_1.jpg", "IMG_1.xmp"),
        ("IMG_1.CR2", "IMG_1.XMP"),
        ("IMG_1.jpg", "IMG_1.jpg.json"),
        ("IMG_1.jpg", "IMG_1.JPG.supplemental-metadata.json"),
        ("IMG_1.jpg", "IMG_1.jpg.supplemental-met.json"),
        ("IMG_1(2).jpg", "IMG_1.jpg(2).json"),
        ("IMG_1(2).jpg", "IMG_1.jpg.supplemental-metadata(2).json"),
        ("a.b.png", "a.b.png.s.json"),
        ("clip.mp4", "clip.mp4.json"),
        (f"{'long' * 12}.jpg", f"{('long' * 12)[:46]}.json"),
    ],
)
def test_sidecar_belongs_to_its_file(name, sidecar):
    assert beside(sidecar, "other.xmp", "other.jpg.json").sidecars(name) == (sidecar,)


@pytest.mark.parametrize("sidecar", ["IMG_10.xmp", "IMG_1.json", "IMG_1.jpg.supplementary.json", "metadata.json"])
def test_sidecar_of_another_file_does_not(sidecar):
    assert beside(sidecar).sidecars("IMG_1.jpg") == ()


def save(path, colour=90):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((12, 20, 3), colour, np.uint8)).save(path)


def test_walk_finds_sidecars_and_their_changes(tmp_path):
    """In the same folder alone; excluded, hidden and linked ones do not count."""
    save(tmp_path / "a.png")
    save(tmp_path / "sub" / "a.png")
    save(tmp_path / "z.png")
    make(tmp_path, "a.xmp", "z.png.json", ".z.xmp")
    (tmp_path / "z.xmp").symlink_to(tmp_path / "a.xmp")
    found = {each.path: each for each in walk(tmp_path)}
    assert {path: each.sidecars for path, each in found.items()} == {
        "a.png": ("a.xmp",), "sub/a.png": (), "z.png": ("z.png.json",)
    }  # fmt: skip
    os.utime(tmp_path / "a.xmp", ns=(1, 1))
    later = {each.path: each for each in walk(tmp_path)}
    assert later["a.png"].sidecar_state != found["a.png"].sidecar_state
    assert later["z.png"] == found["z.png"]
    assert metadata_state(later["sub/a.png"]) < 256 < metadata_state(later["a.png"]) < 2**63
    rules = ScanRules(exclude=("*.json",))
    assert {each.path: each.sidecars for each in walk(tmp_path, rules=rules)}["z.png"] == ()


def test_sidecar_wins_over_image_and_takeout_fills_in(tmp_path):
    """Words, date and coordinates count, and the coordinates have a name."""
    save(tmp_path / "a.png")
    (tmp_path / "a.png.xmp").write_bytes(titled("Title", "dog"))
    (tmp_path / "a.xmp").write_bytes(titled("Other", "cat"))
    (tmp_path / "a.png.json").write_text(
        takeout(
            title="a.png",
            description="at the market",
            photoTakenTime={"timestamp": "1620284889"},
            geoData={"latitude": -0.22, "longitude": -78.51, "altitude": 0},
            people=[{"name": "Aunt Mathilda"}, {"nick": "x"}, 5],
        )
    )
    (found,) = walk(tmp_path)
    file = describe(found, tmp_path)
    assert (file.title, file.description, file.keywords) == ("Title", "at the market", ("dog", "cat", "Aunt Mathilda"))
    assert (file.taken, file.place) == (1620284889.0, "Quito, Pichincha, Ecuador")
    assert file.metadata_version == metadata_state(found)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"title": 5, "description": [], "photoTakenTime": {"timestamp": "soon"}, "geoData": [], "people": {}}',
        b'{"geoData": {"latitude": 91, "longitude": 0}, "photoTakenTime": {"timestamp": "0"}}',
        b'{"geoData": {"latitude": NaN, "longitude": 1}, "geoDataExif": {"latitude": 0.0, "longitude": 0.0}}',
        b"\xff\xfe\x00",
        b" " * 2_000_000,
    ],
)
def test_unusable_takeout_is_ignored(tmp_path, content):
    assert takeout_tags(content, "a.png") == Tags()
    save(tmp_path / "a.png")
    (tmp_path / "a.png.json").write_bytes(content)
    (found,) = walk(tmp_path)
    assert describe(found, tmp_path).title is None


def test_takeout_title_that_is_no_file_name():
    assert takeout_tags(b'{"title": "Sunset"}', "IMG_1.jpg").title == "Sunset"
    assert takeout_tags(b'{"title": "Sunset over Quito.jpg"}', "0001.jpg").title == "Sunset over Quito"
    assert takeout_tags(b'{"title": "IMG_1.JPG"}', "IMG_1(1).jpg").title is None


def test_unreadable_sidecars_never_block(tmp_path):
    """A pipe, a folder, an oversized file and a vanished one are as good as none."""
    save(tmp_path / "a.png")
    (tmp_path / "a.xmp").write_bytes(xmp())
    (found,) = walk(tmp_path)
    (tmp_path / "a.xmp").unlink()
    assert describe(found, tmp_path).title is None
    os.mkfifo(tmp_path / "a.xmp")
    assert describe(found, tmp_path).title is None
    assert next(iter(walk(tmp_path))).sidecars == ()


def test_video_of_live_photo_belongs_to_image(tmp_path):
    """Short, with the name of an image in the same folder; other videos are files of their own."""
    for name in ("IMG_1.JPG", "sub/IMG_3.jpeg", "IMG_4.png", "IMG_5.jpg"):
        save(tmp_path / name)
    for name in ("IMG_1.MOV", "img_5.mp4", "IMG_2.mov", "sub/IMG_1.mov", "IMG_4.mov"):
        write_clip(tmp_path / name, seconds=2)
    write_clip(tmp_path / "sub" / "IMG_3.MOV", seconds=6)
    scan = walk(tmp_path)
    assert paths_of(scan) == [
        "IMG_1.JPG", "IMG_2.mov", "IMG_4.mov", "IMG_4.png", "IMG_5.jpg", "sub/IMG_1.mov", "sub/IMG_3.MOV",
        "sub/IMG_3.jpeg",
    ]  # fmt: skip
    assert scan.live_videos == 2
    (tmp_path / "IMG_1.JPG").unlink()
    assert "IMG_1.MOV" in paths_of(walk(tmp_path))


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100, b"\0\0\0\1moov" + b"\xff" * 8, b"\0\0\0\x08free" * 5000, b"\0\0\0\x20moov\0\0\0\x18mvhd\0\0"],
)
def test_malformed_movie_is_no_live_photo(tmp_path, content):
    (tmp_path / "a.mov").write_bytes(content)
    assert not is_live_video(tmp_path / "a.mov")

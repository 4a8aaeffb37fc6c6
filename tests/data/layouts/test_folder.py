"""Contracts of plain folders of images."""

from __future__ import annotations

import os

import pytest
from tests.data.support import write_image, write_lines

from vse.data import detect_layout, open_data
from vse.errors import InputError

SUFFIXES = ["jpg", "jpeg", "png", "webp", "gif", "tif", "tiff", "bmp", "heic", "heif", "avif", "JPG"]


def test_folder_finds_images_in_subfolders_sorted(tmp_path):
    """Every image of every folder inside, sorted by its path; other and hidden files are skipped."""
    expected = sorted([f"{i:02d}.{suffix}" for i, suffix in enumerate(SUFFIXES)] + ["b/größe.png", "b/c/x y.jpg"])
    for name in [*expected, ".hidden.jpg", ".git/a.jpg", "notes.md", "movie.mp4", "jpg"]:
        write_image(tmp_path / name)
    assert detect_layout(tmp_path) == "folder"
    data = open_data(tmp_path, "all", check_files=True)
    assert list(data.images.ids) == sorted(expected, key=lambda name: name.split("/"))
    assert data.images.paths == tuple(tmp_path / name for name in data.images.ids)
    assert data.captions == ()
    assert data.captions_of(0) == ()


def test_folder_reads_captions_beside_images(tmp_path):
    """``cat.txt`` holds the captions of ``cat.jpg``, one a line; an empty file holds none."""
    for name in ("cat.jpg", "dog.png", "sub/cat.jpg", "void.jpg", "two.dots.jpg"):
        write_image(tmp_path / name)
    write_lines(tmp_path / "cat.txt", ["a cat", " another cat "])
    write_lines(tmp_path / "two.dots.txt", ["dots"])
    write_lines(tmp_path / "void.txt", [])
    data = open_data(tmp_path, "all")
    captions = {data.images.ids[i]: data.captions_of(i) for i in range(len(data.images))}
    assert captions == {
        "cat.jpg": ("a cat", "another cat"),
        "dog.png": (),
        "sub/cat.jpg": (),
        "void.jpg": (),
        "two.dots.jpg": ("dots",),
    }
    write_lines(tmp_path / "cat.txt", ["a cat", "", "x"])
    with pytest.raises(InputError, match=r"cat\.txt:2: empty caption"):
        open_data(tmp_path, "all")


def test_folder_ends_loop_of_links(tmp_path):
    """Links are followed, each folder is visited once, and a link to nothing is kept so that it is missed aloud."""
    write_image(tmp_path / "in/a/one.jpg")
    write_image(tmp_path / "out/two.jpg")
    (tmp_path / "in/a/up").symlink_to(tmp_path / "in", target_is_directory=True)
    (tmp_path / "in/self").symlink_to("self")
    (tmp_path / "in/z").symlink_to(tmp_path / "out", target_is_directory=True)
    (tmp_path / "in/lost.jpg").symlink_to(tmp_path / "nothing.jpg")
    data = open_data(tmp_path / "in", "all")
    assert data.images.ids == ("a/one.jpg", "lost.jpg", "z/two.jpg")
    with pytest.raises(InputError, match=r"1 of 3 image files are missing, .*lost\.jpg"):
        open_data(tmp_path / "in", "all", check_files=True)


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_folder_finds_names_of_any_bytes(tmp_path):
    """A file name of any bytes is found."""
    try:
        (tmp_path / os.fsdecode(b"\xff\n.jpg")).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system wants text")
    data = open_data(tmp_path, "all", check_files=True)
    assert len(data.images) == 1


def test_folder_refuses_other_splits_and_empty_folders(tmp_path):
    """A folder without images has no layout, a folder has no other split, and it is its own folder of images."""
    write_image(tmp_path / ".hidden/a.jpg")
    with pytest.raises(InputError, match="no known layout"):
        open_data(tmp_path, "all")
    with pytest.raises(InputError, match="zero images"):
        open_data(tmp_path, "all", layout="folder")
    write_image(tmp_path / "a.jpg")
    with pytest.raises(InputError, match=r"unknown split 'test'.*everything is in split 'all'"):
        open_data(tmp_path)
    with pytest.raises(InputError, match="the folder of images itself"):
        open_data(tmp_path, "all", images=tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        open_data(tmp_path / "a.jpg", "all", layout="folder")

"""A walk finds every image and video once, in order, and nothing in a folder aborts it."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.index.scan.support import make, paths_of, problems_of
from tests.inputs.pictures import encoded, gradient

from vse.errors import InputError
from vse.index.scan import Found, ScanLimits, walk

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="names and rights of POSIX")
NO_RIGHTS = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser reads everything")


def test_walk_finds_images_and_videos(tmp_path):
    """Files are recognised by extension, ignoring case, with their size, time and kind."""
    images = ("a.JPG", "b.jpeg", "c.png", "d.webp", "e.gif", "f.tif", "g.TIFF", "h.bmp", "i.heic", "j.avif")
    images += ("ja.CR2", "jb.nef", "jc.dng", "jd.jxl", "je.jp2")
    videos = ("k.mp4", "l.m4v", "m.MOV", "n.webm", "o.mkv", "p.avi", "q.3gp", "r.MTS", "s.m2ts", "t.wmv")
    make(tmp_path, *images, *videos, "notes.txt", "song.mp3", "photo.jpg.part", "jpg.", "captions.csv")
    os.utime(tmp_path / "a.JPG", ns=(5, 1_700_000_000_123_456_789))
    scan = walk(tmp_path)
    found = list(scan)
    assert [(file.path, file.kind) for file in found] == [(name, "image") for name in images] + [
        (name, "video") for name in videos
    ]
    assert found[0] == Found("a.JPG", 1, (tmp_path / "a.JPG").stat().st_mtime_ns, "image")
    assert scan.problems == []


def test_names_without_an_ending(tmp_path):
    """Without an extension the first bytes decide; other files are not opened."""
    make(tmp_path, "picture", content=encoded(gradient(), "JPEG"))
    make(tmp_path, "webp", content=encoded(gradient(), "WEBP"))
    make(tmp_path, "avif", content=encoded(gradient(), "AVIF"))
    make(tmp_path, "README", content=b"This is text.")
    make(tmp_path, "empty", content=b"")
    make(tmp_path, "data.bin", content=encoded(gradient(), "JPEG"))
    assert paths_of(walk(tmp_path)) == ["avif", "picture", "webp"]


PARTS = st.sampled_from(["a", "a!", "a0", "b", "é", "日", "A", "a b"])


@given(st.sets(st.lists(PARTS, min_size=1, max_size=4).map(tuple)))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_walk_order_is_sorted(tmp_path_factory, places):
    """Files are ordered by their whole paths, as with ``sorted``."""
    root = tmp_path_factory.mktemp("order")
    expected = sorted("/".join(place) + ".jpg" for place in places)
    make(root, *expected)
    assert paths_of(walk(root)) == expected
    assert expected == sorted(expected, key=str.encode)


def test_walk_skips_hidden_files(tmp_path):
    """Names that begin with a dot are skipped by default."""
    make(tmp_path, "a.jpg", ".b.jpg", ".store/c.jpg", "d/.e/f.jpg", "d/g.jpg")
    assert paths_of(walk(tmp_path)) == ["a.jpg", "d/g.jpg"]
    assert len(paths_of(walk(tmp_path, hidden=True))) == 5


@POSIX
def test_walk_finds_odd_names(tmp_path):
    """Line breaks, spaces, quotes and any script are allowed in names."""
    names = [
        "two\nlines.jpg",
        " space .jpg",
        "quote'\".jpg",
        "日本/Ünï.jpg",
        "back\\slash.jpg",
        "-r.jpg",
        "e\u0301.jpg",
    ]
    make(tmp_path, *names)
    scan = walk(tmp_path)
    assert paths_of(scan) == sorted(names)
    assert scan.problems == []


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names are Unicode here")
def test_walk_reports_names_that_are_not_utf8(tmp_path):
    """An image or folder whose name is not UTF-8 is reported in one printable line; the rest is found."""
    make(tmp_path, "a.jpg", "z.jpg")
    root = os.fsencode(tmp_path)
    with open(root + b"/caf\xe9.jpg", "wb") as file:  # noqa: PTH123 - bytes
        file.write(b"x")
    os.mkdir(root + b"/fol\xffder")  # noqa: PTH102
    with open(root + b"/fol\xffder/b.jpg", "wb") as file:  # noqa: PTH123
        file.write(b"x")
    with open(root + b"/text\xe9.txt", "wb") as file:  # noqa: PTH123
        file.write(b"x")
    scan = walk(tmp_path)
    assert paths_of(scan) == ["a.jpg", "z.jpg"]
    assert [problem.reason for problem in scan.problems] == ["its name is not UTF-8: rename it"] * 2
    for problem in scan.problems:
        assert "\\udc" in problem.path
        assert str(problem).isprintable()
        str(problem).encode()


def test_walk_refuses_missing_root(tmp_path):
    """It raises at once: an empty result would be mistaken for an empty folder."""
    make(tmp_path, "a.jpg")
    for root, reason in ((tmp_path / "none", "no such folder"), (tmp_path / "a.jpg", "not a folder")):
        with pytest.raises(InputError, match=reason):
            walk(root)


def test_walk_of_empty_root(tmp_path):
    """An empty folder has no problems."""
    scan = walk(str(tmp_path))
    assert paths_of(scan) == []
    assert scan.problems == []
    assert not scan.hides("a.jpg")


@NO_RIGHTS
def test_walk_reports_unreadable_folder(tmp_path):
    """It is reported, the rest is found, and its files count as hidden, not deleted."""
    make(tmp_path, "a.jpg", "closed/b.jpg", "d.jpg")
    (tmp_path / "closed").chmod(0)
    try:
        scan = walk(tmp_path)
        assert paths_of(scan) == ["a.jpg", "d.jpg"]
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert "cannot be read (Permission denied)" in problems_of(scan)["closed"]
    assert scan.hides("closed/b.jpg")
    assert not scan.hides("a2.jpg")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_a_folder_that_fails(tmp_path, monkeypatch, error):
    """The same for any system error, simulated so that it also runs as root."""
    make(tmp_path, "a.jpg", "closed/deep/b.jpg", "d/e.jpg")
    listing = os.scandir

    def scandir(place):
        if os.fspath(place).endswith("closed"):
            raise error
        return listing(place)

    monkeypatch.setattr(os, "scandir", scandir)
    scan = walk(tmp_path)
    assert paths_of(scan) == ["a.jpg", "d/e.jpg"]
    assert problems_of(scan) == {"closed": f"the folder cannot be read ({error.strerror})"}
    assert scan.hides("closed/deep/b.jpg")
    assert not scan.hides("closed2/b.jpg")
    assert not scan.hides("d/f.jpg")


def test_walk_reports_files_that_vanish(tmp_path):
    """Files and folders that vanish during the walk are reported; the folder's files count as hidden."""
    make(tmp_path, "a.jpg", "b.jpg", "c/d.jpg", "e.jpg")
    scan = walk(tmp_path)
    assert next(scan).path == "a.jpg"
    (tmp_path / "b.jpg").unlink()
    (tmp_path / "c/d.jpg").unlink()
    (tmp_path / "c").rmdir()
    assert paths_of(scan) == ["e.jpg"]
    assert set(problems_of(scan)) == {"b.jpg", "c"}
    assert not scan.hides("b.jpg")
    assert scan.hides("c/d.jpg")


def test_a_root_that_is_unmounted_meanwhile(tmp_path):
    """If the root was replaced by the end of the walk, nothing counts as deleted."""
    root = tmp_path / "disk"
    make(root, "a.jpg", "b/c.jpg")
    scan = walk(root)
    next(scan)
    root.rename(tmp_path / "away")
    root.mkdir()
    assert paths_of(scan) == []
    assert "unmounted" in problems_of(scan)["."]
    assert scan.hides("b/c.jpg")
    assert scan.hides("anything.jpg")


@POSIX
def test_pipes_and_folders_with_endings(tmp_path):
    """A pipe named like an image is reported, not opened; a folder named so is a folder."""
    os.mkfifo(tmp_path / "pipe.jpg")
    os.mkfifo(tmp_path / "pipe")
    make(tmp_path, "folder.jpg/a.jpg")
    scan = walk(tmp_path)
    assert paths_of(scan) == ["folder.jpg/a.jpg"]
    assert problems_of(scan) == {"pipe.jpg": "not a regular file"}


def test_walk_limits(tmp_path):
    """Too many files end the walk, too deep folders are skipped; both hide what was not seen."""
    make(tmp_path, "a.jpg", "b.jpg", "c/d/e.jpg")
    scan = walk(tmp_path, limits=ScanLimits(max_files=2))
    assert paths_of(scan) == ["a.jpg", "b.jpg"]
    assert "max_files" in problems_of(scan)["."]
    assert scan.hides("c/d/e.jpg")
    scan = walk(tmp_path, limits=ScanLimits(max_depth=1))
    assert paths_of(scan) == ["a.jpg", "b.jpg"]
    assert scan.hides("c/d/e.jpg")
    assert not scan.hides("f.jpg")
    assert len(paths_of(walk(tmp_path, limits=ScanLimits(max_files=3, max_depth=2)))) == 3


def test_walk_of_deep_folders(tmp_path):
    """Deep nesting below the limit does not hit Python's recursion limit."""
    place = tmp_path
    for _ in range(150):
        place /= "d"
    make(place, "a.jpg")
    assert len(paths_of(walk(tmp_path))) == 1

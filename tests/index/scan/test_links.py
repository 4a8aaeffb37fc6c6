"""Symlinks are followed to what would not be found otherwise, once, and never in a loop."""

from __future__ import annotations

import os
import sys

import pytest
from tests.index.scan.support import make, paths_of, problems_of

from vse.index.scan import ScanRules, walk

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights here")


def link(root, name, target):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).symlink_to(target)


@pytest.fixture
def root(tmp_path):
    """A folder, and beside it one called ``other`` with images in it."""
    make(tmp_path, "other/o.jpg", "other/sub/p.jpg")
    make(tmp_path / "root", "z.jpg", "photos/a.jpg")
    return tmp_path / "root"


def test_links_inside_folder_are_found_once(root):
    """A file or folder is found at its own place, not through symlinks, in any sort order."""
    link(root, "a_link.jpg", "z.jpg")
    link(root, "b_link", "photos")
    link(root, "photos/zz.jpg", "../z.jpg")
    scan = walk(root)
    assert paths_of(scan) == ["photos/a.jpg", "z.jpg"]
    assert scan.problems == []


def test_circular_links_end(root):
    """Symlinks to the folder itself, to its parent, to each other."""
    link(root, "photos/up", "..")
    link(root, "photos/self", ".")
    link(root, "x", "y")
    link(root, "y", "x")
    link(root, "loop.jpg", "loop.jpg")
    link(root, "above", "..")
    for outside in (False, True):
        scan = walk(root, rules=ScanRules(follow_links=outside))
        above = ["above/other/o.jpg", "above/other/sub/p.jpg"] if outside else []
        assert paths_of(scan) == [*above, "photos/a.jpg", "z.jpg"]
        assert set(problems_of(scan)) == {"x", "y", "loop.jpg"} | ({"above"} if not outside else set())


def test_links_to_hidden_folder(root):
    """Files in a hidden folder are found through symlinks, each once."""
    make(root, ".store/1.jpg", ".store/2", ".store/more/3.jpg")
    link(root, "first.jpg", ".store/1.jpg")
    link(root, "photos/again.jpg", "../.store/1.jpg")
    link(root, "second.jpg", ".store/2")
    link(root, "third", ".store/more")
    assert paths_of(walk(root)) == ["first.jpg", "photos/a.jpg", "second.jpg", "third/3.jpg", "z.jpg"]


def test_targets_with_other_names(root):
    """A symlink that adds the missing extension makes a file an image."""
    make(root, "blob.dat")
    link(root, "picture.jpg", "blob.dat")
    assert paths_of(walk(root)) == ["photos/a.jpg", "picture.jpg", "z.jpg"]


def test_links_out_of_the_root(root):
    """By default such symlinks are reported with their target, not followed; those to other file types are ignored."""
    link(root, "o.jpg", "../other/o.jpg")
    link(root, "more", "../other")
    make(root.parent, "notes.txt")
    link(root, "notes.txt", "../notes.txt")
    scan = walk(root)
    assert paths_of(scan) == ["photos/a.jpg", "z.jpg"]
    assert set(problems_of(scan)) == {"o.jpg", "more"}
    assert str(root.parent / "other") in problems_of(scan)["more"]


def test_links_out_of_the_root_if_asked(root):
    """Each target file is found once, wherever it is met first."""
    link(root, "a.jpg", "../other/o.jpg")
    link(root, "more", "../other")
    link(root, "yet", "../other/sub")
    link(root.parent / "other", "back", root)
    link(root.parent / "other", "sub/back.jpg", root / "z.jpg")
    scan = walk(root, rules=ScanRules(follow_links=True))
    assert paths_of(scan) == ["a.jpg", "more/sub/p.jpg", "photos/a.jpg", "z.jpg"]
    assert scan.problems == []


def test_a_root_that_is_a_link(root):
    """The scanned folder may be a symlink itself."""
    link(root.parent, "way", "root")
    link(root, "b.jpg", "z.jpg")
    assert paths_of(walk(root.parent / "way")) == ["photos/a.jpg", "z.jpg"]


def test_links_that_lead_nowhere(root):
    """Dangling symlinks are reported; what was behind them is hidden, since a disk may be absent."""
    link(root, "gone.jpg", "nothing.jpg")
    link(root, "disk", "/no/such/disk")
    scan = walk(root)
    assert paths_of(scan) == ["photos/a.jpg", "z.jpg"]
    assert problems_of(scan) == dict.fromkeys(("gone.jpg", "disk"), "a dangling symlink")
    assert scan.hides("disk/2019/a.jpg")
    assert scan.hides("gone.jpg")


def test_hard_links_are_two_files(root):
    os.link(root / "z.jpg", root / "y.jpg")
    assert paths_of(walk(root)) == ["photos/a.jpg", "y.jpg", "z.jpg"]

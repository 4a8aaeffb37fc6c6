"""A scan leaves out folders without originals, given patterns, and what ``.vseignore`` files name."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.scan.support import make, paths_of, problems_of

from vse.errors import InputError
from vse.index.scan import ScanRules, walk
from vse.index.scan.exclude import DEFAULTS, Exclusion, rules_of, with_rules


def found(root, *exclude, **options):
    return paths_of(walk(root, rules=ScanRules(exclude), **options))


def test_folders_without_originals_are_left_out(tmp_path):
    """Thumbnails, bins and caches, in upper or lower case, at any depth; files of the same name are not."""
    names = ("@eaDir", "#recycle", "$RECYCLE.BIN", "lost+found", "2024/CaptureOne", "My.lrdata", "thumbs", "@EADIR")
    make(tmp_path, *(f"{name}/x.jpg" for name in names), "A.photoslibrary/resources/d.jpg", ".Trash-1000/t.jpg")
    make(tmp_path, "A.photoslibrary/originals/a.jpg", "2024/a.jpg", "resources/b.jpg", "Thumbs.jpg", "b/RECYCLER.jpg")
    originals = ["2024/a.jpg", "A.photoslibrary/originals/a.jpg", "Thumbs.jpg", "b/RECYCLER.jpg", "resources/b.jpg"]
    assert found(tmp_path) == originals
    assert "2024/CaptureOne/x.jpg" in found(tmp_path, "!CaptureOne")
    assert ".Trash-1000/t.jpg" not in found(tmp_path, hidden=True)


@given(st.lists(st.sampled_from(["a", "@eaDir", "My.lrdata", "x.photoslibrary", "resources", "Thumbs"]), min_size=1))
def test_default_exclusion_follows_fnmatch(tmp_path_factory, parts):
    """A folder is left out if its name, or its name and its parent's, match a default as ``fnmatch`` sees them."""
    path = "/".join(parts)
    expected = any(
        fnmatch.fnmatchcase("/".join(parts[-1 - word.count("/") :]).lower(), word.lower()) for word in DEFAULTS
    )
    exclusion = Exclusion(tmp_path_factory.getbasetemp(), ScanRules())
    assert exclusion.excludes(path, folder=True) == expected
    assert not exclusion.excludes(path, folder=False)


def test_patterns_leave_files_out(tmp_path):
    """Patterns are those of .gitignore: names anywhere, paths from the root, folders with a slash, ! takes in again."""
    make(tmp_path, "a.jpg", "a.png", "drafts/b.jpg", "in/drafts/c.jpg", "in/d.png", "in/keep.png", "e/drafts")
    assert found(tmp_path, "*.png", "!keep.png") == ["a.jpg", "drafts/b.jpg", "in/drafts/c.jpg", "in/keep.png"]
    assert found(tmp_path, "drafts/", "*.png") == ["a.jpg"]
    assert found(tmp_path, "/drafts") == ["a.jpg", "a.png", "in/d.png", "in/drafts/c.jpg", "in/keep.png"]
    assert found(tmp_path, "in/**/*.jpg", "*.png") == ["a.jpg", "drafts/b.jpg"]


def test_ignore_files_count_below_their_folder(tmp_path):
    """The deepest file that says something decides; it comes after the patterns that were given."""
    make(tmp_path, "a.jpg", "b.png", "in/c.png", "in/deep/d.png", "in/deep/e.jpg", "other/e.jpg")
    make(tmp_path, ".vseignore", content=b"# comment\n\n*.png\n/other\n")
    make(tmp_path, "in/.vseignore", content=b"!c.png\n/deep/e.jpg\n")
    assert found(tmp_path) == ["a.jpg", "in/c.png"]
    assert found(tmp_path, "a.jpg", "!other") == ["in/c.png"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"\xff\xfe", ".vseignore cannot be read (not UTF-8)"), (b"!\n", ".vseignore: '!' is no pattern")],
)
def test_unusable_ignore_file_leaves_its_folder_out(tmp_path, content, reason):
    """What it would leave out is not taken in; known files below are kept, since they may be wanted."""
    make(tmp_path, "a.jpg", "in/b.jpg", "in/deep/c.jpg")
    make(tmp_path, "in/.vseignore", content=content)
    scan = walk(tmp_path)
    assert paths_of(scan) == ["a.jpg"]
    assert problems_of(scan)["in"].startswith(reason)
    assert scan.hides("in/deep/c.jpg")
    assert not scan.hides("a.jpg")


def test_excluded_files_are_told_from_missing_ones(tmp_path):
    """Also where the folder is gone, and by the rules of an ignore file."""
    make(tmp_path, "in/a.jpg")
    make(tmp_path, "in/.vseignore", content=b"*.png\n")
    scan = walk(tmp_path, rules=ScanRules(("drafts/",)))
    assert paths_of(scan) == ["in/a.jpg"]
    assert [scan.excludes(path) for path in ("in/b.png", "b.png", "x/drafts/y/z.jpg", "@eaDir/a.jpg", "in/a.jpg")] == [
        True, False, True, True, False,
    ]  # fmt: skip


def test_rules_survive_in_settings():
    """Each root has its own; the default ones take no place."""
    rules = ScanRules(("a", "!b"), follow_links=True)
    settings = with_rules({"other": 1}, "/photos", rules)
    assert rules_of(settings, "/photos") == rules
    assert rules_of(settings, "/else") == ScanRules()
    assert with_rules(settings, "/photos", ScanRules()) == {"other": 1, "folders": {}}


def test_bad_pattern_is_refused():
    """The message quotes it and says how to write one."""
    with pytest.raises(InputError, match=r"--exclude: '!' is no pattern .*: write it as in .gitignore, like '\*.tmp'"):
        ScanRules(("*.png", "!"))

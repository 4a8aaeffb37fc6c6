"""Count files by folder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.index.types import FolderCount, folder_counts

parts = st.sampled_from(["a", "b", "a b", "A", "ä", "\udcff", "a.jpg", " "])
paths = st.lists(parts, min_size=1, max_size=5).map("/".join)


def naive(files: list[str], most: int) -> list[tuple[str, int]]:
    """Count by every prefix of a path that ends before a slash."""
    folders = {path[:end] for path in files for end in range(len(path)) if path[end] == "/"}
    counted = [(path, sum(file.startswith(path + "/") for file in files)) for path in folders]
    counted.sort(key=lambda each: (-each[1], each[0]))
    return sorted(counted[:most])


@given(st.lists(paths, max_size=30), st.integers(0, 12))
def test_folders_are_counted_with_what_lies_below(files, most):
    """The folders with the most files, ties by path, ordered by path; duplicate paths count separately."""
    assert folder_counts(iter(files), most) == tuple(FolderCount(*each) for each in naive(files, most))


def test_names_that_begin_alike_are_folders_of_their_own():
    """``a`` is not a parent of ``ab``; files in the root are in no folder, a file named like a folder is not one."""
    files = ["a/1.jpg", "ab/1.jpg", "ab/c/1.jpg", "a b/1.jpg", "1.jpg", "ab.jpg"]
    assert folder_counts(files, 10) == (
        FolderCount("a", 1),
        FolderCount("a b", 1),
        FolderCount("ab", 2),
        FolderCount("ab/c", 1),
    )
    assert folder_counts(files, 2) == (FolderCount("a", 1), FolderCount("ab", 2))


def test_fewer_than_none_is_an_error_before_anything_is_read():
    """The error quotes the value."""

    def unread():
        raise AssertionError("read")
        yield

    with pytest.raises(InputError, match="folders -1: expected at least 0"):
        folder_counts(unread(), -1)

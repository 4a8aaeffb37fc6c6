"""What the files of a collection are and where they lie, counted: for choosing a filter."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vse.errors import InputError


@dataclass(frozen=True)
class FolderCount:
    """How many files lie in a folder and below it. ``path`` is a ``Filter.folder``: below every root that has it."""

    path: str
    files: int


@dataclass(frozen=True)
class Facets:
    """Files of each kind, and the folders with most files, by path.

    ``first`` and ``last`` are the smallest and the largest ``MediaFile.taken``, None when no file has one.
    """

    images: int
    videos: int
    first: float | None
    last: float | None
    folders: tuple[FolderCount, ...]


def folder_counts(paths: Iterable[str], most: int) -> tuple[FolderCount, ...]:
    """Of the folders of these files the ``most`` with the most files, ties by path; returned by path.

    Paths are those of ``MediaFile``. A file counts in each folder above it, but not in the root, which has no name.
    """
    if most < 0:
        raise InputError(f"folders {most}: expected 0 at least")
    direct = Counter(path.rpartition("/")[0] for path in paths)
    below: Counter[str] = Counter()
    for folder, files in direct.items():
        for each in _upwards(folder):
            below[each] += files
    largest = heapq.nsmallest(most, below.items(), key=lambda each: (-each[1], each[0]))
    return tuple(FolderCount(path, files) for path, files in sorted(largest))


def _upwards(folder: str) -> Iterator[str]:
    """The folder and those that hold it, without the root."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]

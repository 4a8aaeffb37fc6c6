"""Layout ``folder``: all images in a folder and the folders inside it.

A text file beside an image, ``cat.txt`` beside ``cat.jpg``, holds its captions, one a line; without it the image has
none. Hidden files and folders are left out. Everything is in the split ``all``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from vse.data.dataset import CaptionedImages, ImageFiles
from vse.data.files import read_captions
from vse.data.reading import ALL, OnProblem, ReadOptions, expect_images
from vse.errors import InputError

NAME = "folder"
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp", ".heic", ".heif", ".avif"})


def detect(path: Path) -> bool:
    """Whether there is an image anywhere in the folder; the search stops at the first."""

    def skip(kind: str, message: str) -> None:
        """A folder that cannot be opened holds no image for us."""

    return path.is_dir() and next(find_images(path, skip), None) is not None


def splits(path: Path) -> tuple[str, ...]:
    """The only split."""
    return (ALL,)


def read(path: Path, split: str, options: ReadOptions) -> CaptionedImages:
    """The images, sorted by their path inside the folder, which is also their id."""
    options.expect_files(path, NAME)
    if options.images is not None:
        raise InputError(f"{path}: images={str(options.images)!r}, but layout {NAME!r} is the folder of images itself")
    if not path.is_dir():
        raise InputError(f"{path} is not a folder")
    found = sorted(find_images(path, options.on_problem))
    expect_images(path, split, len(found))
    captions: list[str] = []
    owners: list[int] = []
    for i, (_, file, sidecar) in enumerate(found):
        if sidecar:
            lines = read_captions(file.with_suffix(".txt"), options.on_problem)
            captions += lines
            owners += [i] * len(lines)
    images = ImageFiles(tuple(file for _, file, _ in found), tuple("/".join(parts) for parts, _, _ in found))
    return CaptionedImages(path.resolve().name, ALL, NAME, images, tuple(captions), np.array(owners, dtype=np.int64))


def find_images(root: Path, on_problem: OnProblem) -> Iterator[tuple[tuple[str, ...], Path, bool]]:
    """Parts of the path inside ``root``, the path, and whether there are captions beside it; in no particular order.

    Links are followed, each folder once, so that a loop of links ends. A link to nothing counts as an image: better
    missed aloud than silently.
    """
    seen: set[tuple[int, int]] = set()
    waiting: list[tuple[tuple[str, ...], Path]] = [((), root)]
    while waiting:
        parts, folder = waiting.pop()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as listing:
                entries = sorted((e for e in listing if not e.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:
            on_problem("unreadable folder", f"{folder} cannot be read: {error.strerror or error}")
            continue
        names = {entry.name for entry in entries}
        inside = []
        for entry in entries:
            if _is(entry.is_dir):
                inside.append(((*parts, entry.name), folder / entry.name))
            elif Path(entry.name).suffix.lower() in SUFFIXES and (_is(entry.is_file) or entry.is_symlink()):
                file = folder / entry.name
                yield (*parts, entry.name), file, file.with_suffix(".txt").name in names
        waiting += reversed(inside)  # the first is taken next, so that of two ways to a folder the same one wins always


def _is(question: Callable[[], bool]) -> bool:
    """Ask about an entry of a folder; the answer for a link to itself is an error, and means no."""
    try:
        return question()
    except OSError:
        return False

"""Layout ``folder``: all images in a folder and its subfolders.

A text file next to an image, ``cat.txt`` next to ``cat.jpg``, holds its captions, one per line; without it the image
has none. Hidden files and folders are skipped. Everything is in the split ``all``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vse._util.walk import walk_files
from vse.data.dataset import CaptionedImages, ImageFiles
from vse.data.files import read_captions
from vse.data.reading import ALL, OnProblem, ReadOptions, expect_images
from vse.errors import InputError
from vse.inputs.files import kind_of_name

NAME = "folder"


def detect(path: Path) -> bool:
    """Return whether there is an image anywhere in the folder; the search stops at the first."""

    def skip(kind: str, message: str) -> None:
        """Reading the folder reports this."""

    return path.is_dir() and next(find_images(path, skip), None) is not None


def splits(path: Path) -> tuple[str, ...]:
    """Return the only split."""
    return (ALL,)


def read(path: Path, split: str, options: ReadOptions) -> CaptionedImages:
    """Return the images, sorted by their path below the folder, which is also their id."""
    options.expect_files(path, NAME)
    if options.images is not None:
        raise InputError(f"{path}: images={str(options.images)!r}, but layout {NAME!r} is the folder of images itself")
    if not path.is_dir():
        raise InputError(f"{path} is not a folder")
    texts: set[Path] = set()
    found = sorted(find_images(path, options.on_problem, texts))
    expect_images(path, split, len(found))
    captions: list[str] = []
    owners: list[int] = []
    for i, (_, file) in enumerate(found):
        sidecar = file.with_suffix(".txt")
        if sidecar in texts:
            lines = read_captions(sidecar, options.on_problem)
            captions += lines
            owners += [i] * len(lines)
    images = ImageFiles(tuple(file for _, file in found), tuple("/".join(parts) for parts, _ in found))
    return CaptionedImages(path.resolve().name, ALL, NAME, images, tuple(captions), np.array(owners, dtype=np.int64))


def find_images(
    root: Path, on_problem: OnProblem, texts: set[Path] | None = None
) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield the parts of the path below ``root`` and the path of each image; text files are added to ``texts``.

    A broken link counts as an image, so that it is reported and not silently skipped.
    """

    def unreadable(folder: str, error: OSError) -> None:
        on_problem("unreadable folder", f"{root / folder} cannot be read: {error.strerror or error}")

    for path in walk_files(root, unreadable):
        file = root / path
        if kind_of_name(file.name) == "image":
            if _is_file(file) or file.is_symlink():
                yield tuple(path.split("/")), file
        elif texts is not None and file.suffix == ".txt":
            texts.add(file)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # behind a link through a folder that cannot be read
        return False

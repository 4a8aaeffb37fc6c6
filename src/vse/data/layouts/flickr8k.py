"""Layout ``flickr8k``: Flickr8k as it was published.

``Flickr8k.token.txt`` with lines ``name.jpg#k<TAB>caption``, ``Flickr_8k.{train,dev,test}Images.txt`` with one name per
line, and the images in ``images``, ``Flicker8k_Dataset`` (so spelled in the archive) or ``Flickr8k_Dataset``.
Captioned names that are in no split are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from vse.data.dataset import CaptionedImages, ImageFiles, VideoCaptions
from vse.data.files import raw_lines, read_lines, report_empty
from vse.data.reading import OnProblem, ReadOptions, expect_images, first_folder, in_usual_order
from vse.data.report import Findings
from vse.errors import InputError

NAME = "flickr8k"
_TOKENS = "Flickr8k.token.txt"
_LIST_START, _LIST_END = "Flickr_8k.", "Images.txt"
_IMAGE_FOLDERS = ("images", "Flicker8k_Dataset", "Flickr8k_Dataset")


def detect(path: Path) -> bool:
    """Return whether a folder has the caption file."""
    return (path / _TOKENS).is_file()


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits with a list of names."""
    lists = path.glob(f"{_LIST_START}*{_LIST_END}")
    return in_usual_order(file.name[len(_LIST_START) : -len(_LIST_END)] for file in lists)


def read(path: Path, split: str, options: ReadOptions) -> CaptionedImages:
    """Return the images of a split in the order of its list, captions image by image."""
    options.expect_files(path, NAME)
    names = _names(path, split, options.on_problem)
    expect_images(path, split, len(names))
    captions_of: dict[str, list[str]] = {name: [] for name in names}
    for place, name, caption in _captions(path, options.on_problem):
        if name not in captions_of:
            continue
        if not caption:
            report_empty(options.on_problem, place)
        captions_of[name].append(caption)
    captions = tuple(caption for name in names for caption in captions_of[name])
    owners = np.repeat(np.arange(len(names)), [len(captions_of[name]) for name in names])
    base = options.image_folder() or _image_folder(path, names[0])
    images = ImageFiles(tuple(base / name for name in names), tuple(names))
    return CaptionedImages(path.resolve().name, split, NAME, images, captions, owners.astype(np.int64))


def check(path: Path, _: Mapping[str, CaptionedImages | VideoCaptions], findings: Findings) -> None:
    """Warn about captioned names that are in no split and so never read."""

    def skip(kind: str, message: str) -> None:
        """Reading the splits reports this."""

    try:
        listed = {name for split in splits(path) for name in _names(path, split, skip)}
        unlisted = list(dict.fromkeys(name for _, name, _ in _captions(path, skip) if name not in listed))
    except InputError:  # reported as an unreadable split
        return
    if unlisted:
        folder = _image_folder(path, next(iter(listed), ""))
        absent = sum(not (folder / name).is_file() for name in unlisted)
        findings.warning(
            "data that is not used",
            f"{len(unlisted)} captioned names are in no split, {absent} of them without an image: "
            f"{unlisted[0]} is the first",
        )


def _names(path: Path, split: str, on_problem: OnProblem) -> list[str]:
    """Return the names of a split, each once."""
    file = path / f"{_LIST_START}{split}{_LIST_END}"
    names: dict[str, int] = {}
    for number, name in enumerate(read_lines(file), start=1):
        if not name:
            on_problem("malformed line", f"{file}:{number}: empty line, expected the name of an image")
        elif name in names:
            on_problem("name listed twice", f"{file}:{number}: {name} is already on line {names[name]}")
        else:
            names[name] = number
    return list(names)


def _captions(path: Path, on_problem: OnProblem) -> Iterator[tuple[str, str, str]]:
    """Yield location, name and caption of every line."""
    file = path / _TOKENS
    for number, line in enumerate(raw_lines(file), start=1):
        place = f"{file}:{number}"
        key, tab, caption = line.partition("\t")
        name, sharp, _ = key.rpartition("#")
        if tab and sharp and name:
            yield place, name, caption.strip()
        else:
            on_problem("malformed line", f"{place}: {line.strip()[:60]!r} is not 'name.jpg#0', a tab and a caption")


def _image_folder(path: Path, sample: str) -> Path:
    return first_folder([path / name for name in _IMAGE_FOLDERS], sample)

"""Layout ``table``: a CSV, TSV, JSONL or Parquet file with the columns path and caption, optionally split and id.

A repeated path has several captions; in JSONL and Parquet the caption may also be a list of texts. Paths are relative
to the folder of the file. Without a column split everything is in the split ``all``. A folder that contains such a
file under the name captions (``captions.csv`` …) is the same dataset.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vse.data.dataset import CaptionedImages, ImageFiles
from vse.data.files import MALFORMED, READERS, read_rows, whole_caption
from vse.data.reading import ALL, OnProblem, ReadOptions, expect_images, in_usual_order
from vse.errors import InputError

NAME = "table"


@dataclass(frozen=True)
class _Entry:
    """A valid row."""

    place: str
    path: str
    captions: tuple[str, ...]
    split: str
    id: str | None


def detect(path: Path) -> bool:
    """Return whether ``path`` is a file with the suffix of a table, or a folder with a file named captions."""
    table = _file(path)
    return table.is_file() and table.suffix.lower() in READERS


def _file(path: Path) -> Path:
    """Return the table: ``path``, or ``captions.csv``, ``.tsv`` … in the folder ``path``."""
    if not path.is_dir():
        return path
    return next((path / f"captions{suffix}" for suffix in READERS if (path / f"captions{suffix}").is_file()), path)


def splits(path: Path) -> tuple[str, ...]:
    """Return the values of the column split; invalid rows are skipped here."""

    def skip(kind: str, message: str) -> None:
        """Reading a split reports this."""

    return in_usual_order(entry.split for entry in _entries(path, skip))


def read(path: Path, split: str, options: ReadOptions) -> CaptionedImages:
    """Return images in the order in which their paths first occur, captions in the order of the file."""
    options.expect_files(path, NAME)
    base = options.image_folder() or _file(path).parent
    images: dict[str, int] = {}
    ids: list[str] = []
    named: dict[str, str] = {}  # the location that gave an image its id
    captions: list[str] = []
    owners: list[int] = []
    for entry in _entries(path, options.on_problem):
        if entry.split != split:
            continue
        file = os.path.normpath(base / entry.path)  # "a.jpg" and "./a.jpg" are one image
        if file not in images:
            images[file] = len(images)
            ids.append(entry.path if entry.id is None else entry.id)
            named[file] = entry.place
        elif entry.id not in {None, ids[images[file]]}:
            message = (
                f"{entry.place}: id {entry.id!r} for {entry.path}, which is {ids[images[file]]!r} at {named[file]}"
            )
            options.on_problem("two ids for one path", message)
        for k, caption in enumerate(entry.captions, start=1):
            place = entry.place if len(entry.captions) == 1 else f"{entry.place}, caption {k}"
            captions.append(whole_caption(caption, place, options.on_problem))
            owners.append(images[file])
    expect_images(path, split, len(images))
    files = ImageFiles(tuple(map(Path, images)), tuple(ids))
    return CaptionedImages(path.stem, split, NAME, files, tuple(captions), np.array(owners, dtype=np.int64))


def _entries(path: Path, on_problem: OnProblem) -> Iterator[_Entry]:
    path = _file(path)
    if path.is_dir():
        raise InputError(
            f"{path}: no table in this folder, expected one of {', '.join(f'captions{s}' for s in READERS)}"
        )
    if path.suffix.lower() not in READERS:
        raise InputError(f"{path} ends in {path.suffix!r}: expected a table, one of {', '.join(READERS)}")
    for place, row in read_rows(path, on_problem):
        try:
            yield _entry(place, row)
        except InputError as error:
            on_problem(MALFORMED, str(error))


def _entry(place: str, row: dict[str, Any]) -> _Entry:
    image = row["path"]
    if not isinstance(image, str) or not image.strip():
        raise InputError(f"{place}: path is {image!r}, expected the path of an image")
    captions = row["caption"] if isinstance(row["caption"], list) else [row["caption"]]
    if not all(isinstance(caption, str) for caption in captions):
        raise InputError(f"{place}: caption is {row['caption']!r}, expected a text or a list of texts")
    split = row.get("split", ALL)
    if not isinstance(split, str) or not split.strip():
        raise InputError(f"{place}: split is {split!r}, expected a name such as 'train'")
    identity = row.get("id")
    if not isinstance(identity, str | int | None) or isinstance(identity, bool):
        raise InputError(f"{place}: id is {identity!r}, expected a text or an integer")
    image_id = None if identity is None else str(identity).strip()
    return _Entry(place, image.strip(), tuple(captions), split.strip(), image_id or None)

"""Layout ``packed``: WebDataset tars, Parquet files with image bytes, or a folder that ``datasets`` saved.

Captions are the member ``.txt`` of a sample, a line each, or the column (or JSON key) ``caption``, ``captions``,
``text``, ``sentence`` or ``sentences``: a text or a list of texts. A file belongs to the split that its name or its
folder begins with: ``train-00000-of-00004.parquet``, ``val/0001.tar``. Without such names everything is in the split
``all``. Images are read by offset, so that any order costs the same in tars and Arrow files; of a Parquet file a whole
row group is decoded for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vse._util.walk import walk_files
from vse.data.dataset import CaptionedImages
from vse.data.files import whole_caption
from vse.data.packed import ARROW, ENDINGS, PARQUET, TAR, Packed, PackedImages, local_packed
from vse.data.reading import ALL, ReadOptions, expect_images, in_usual_order
from vse.errors import InputError
from vse.inputs.files import kind_of_name

NAME = "packed"
CAPTIONS = ("caption", "captions", "text", "sentence", "sentences")
NAMES = {"train": "train", "training": "train", "validation": "val", "valid": "val", "val": "val", "dev": "dev"}
LOOKED_AT = 1000
"""Names in a folder that are looked at to tell its layout."""
_SPLIT = re.compile(r"(train|training|validation|valid|val|dev|test|testall)(?![a-z])", re.IGNORECASE)


def detect(path: Path) -> bool:
    """Return whether ``path`` is a packed file or a folder of some; a Parquet file without image bytes is a table."""
    if path.is_file():
        return _is_packed(path)
    if not path.is_dir():
        return False
    names = list(islice(walk_files(path, lambda folder, error: None), LOOKED_AT))
    if any(kind_of_name(name) == "image" for name in names):
        return False
    found = [name for name in names if _ending(name) in ENDINGS]
    return bool(found) and all(_is_packed(path / name) for name in found[:1])


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits that the names of the files say."""
    return in_usual_order(split for _, split in _files(path))


def read(path: Path, split: str, options: ReadOptions) -> CaptionedImages:
    """Return the images in the order of the names of the files, and of each file in its own order."""
    options.expect_files(path, NAME)
    if options.images is not None:
        raise InputError(f"{path}: images={str(options.images)!r}, but layout {NAME!r} holds the images itself")
    files: list[Packed] = []
    state: list[tuple[str, int]] = []
    places: list[tuple[int, int]] = []
    ids: list[str] = []
    captions: list[str] = []
    owners: list[int] = []
    for name, found in _files(path):
        if found != split:
            continue
        file = path / name if path.is_dir() else path
        packed = local_packed(file)
        _expect_bytes(packed, file)
        for number in range(len(packed)):
            place = f"{file}, sample {packed.key(number)!r}"
            for k, caption in enumerate(_captions(packed.fields(number), place, options), start=1):
                captions.append(whole_caption(caption, f"{place}, caption {k}", options.on_problem))
                owners.append(len(ids))
            places.append((len(files), number))
            ids.append(f"{name.rpartition('.')[0]}/{packed.key(number)}")
        files.append(packed)
        state.append((name, file.stat().st_size))
    expect_images(path, split, len(ids))
    images = PackedImages(tuple(files), tuple(places), tuple(ids), tuple(state))
    name = path.resolve().stem if path.is_file() else path.resolve().name
    return CaptionedImages(name, split, NAME, images, tuple(captions), np.array(owners, dtype=np.int64))


def _captions(fields: Mapping[str, Any], place: str, options: ReadOptions) -> list[str]:
    value = next((fields[name] for name in CAPTIONS if fields.get(name) is not None), None)
    if value is None:
        return []
    texts = value.splitlines() if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        options.on_problem("invalid caption", f"{place}: caption is {str(value)[:60]!r}, expected texts")
        return []
    return [text for text in texts if text.strip()]


def _files(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the names of the packed files, sorted, each with its split."""
    if path.is_file():
        yield path.name, _split_of(path.name)
        return

    def unreadable(folder: str, error: OSError) -> None:
        raise InputError(f"{path / folder} cannot be read: {error.strerror or error}")

    for name in sorted(walk_files(path, unreadable)):
        if _ending(name) in ENDINGS and not Path(name).name.startswith("cache-"):  # what datasets computed from it
            yield name, _split_of(name)


def _split_of(name: str) -> str:
    for part in reversed(name.split("/")):
        found = _SPLIT.match(part)
        if found is not None:
            word = found[1].lower()
            return NAMES.get(word, word)
    return ALL


def _ending(name: str) -> str:
    return Path(name).suffix.lower()


def _is_packed(path: Path) -> bool:
    ending = _ending(path.name)
    if ending == PARQUET:
        from vse.data.packed_tables import schema_holds_images

        return schema_holds_images(str(path))
    return ending in {TAR, ARROW}


def _expect_bytes(packed: Packed, file: Path) -> None:
    if not getattr(packed, "holds_bytes", True):
        raise InputError(f"{file} holds paths of images, not their bytes: use layout 'table'")

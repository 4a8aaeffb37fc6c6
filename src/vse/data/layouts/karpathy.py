"""Layout ``karpathy``: Karpathy's JSON of splits and captions for COCO, Flickr30K and Flickr8k.

``{"images": [{"filename", "filepath"?, "split", "sentences": [{"raw"}], "cocoid"?, "imgid"?}]}``, in a file
``dataset_*.json``. The split ``restval`` belongs to ``train``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vse.data.dataset import CaptionedImages, ImageFiles
from vse.data.files import parse_json, read_text, whole_caption
from vse.data.reading import ReadOptions, expect_images, in_usual_order
from vse.errors import InputError
from vse.inputs.files import is_text

NAME = "karpathy"
_PATTERN = "dataset_*.json"
_IMAGE_FOLDERS = ("images", "flickr30k-images", "Flicker8k_Dataset", "Flickr8k_Dataset", ".")


def detect(path: Path) -> bool:
    """Return whether ``path`` is a JSON file, or a folder with a ``dataset_*.json``."""
    return path.suffix == ".json" if path.is_file() else next(path.glob(_PATTERN), None) is not None


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits that images are in."""
    return in_usual_order(split for _, split, _ in _entries(_json_file(path)))


def read(path: Path, split: str, options: ReadOptions) -> CaptionedImages:
    """Return the images of a split in the order of the file."""
    options.expect_files(path, NAME)
    file = _json_file(path)
    relative: list[tuple[str, str]] = []
    ids: list[str] = []
    captions: list[str] = []
    owners: list[int] = []
    for place, its_split, entry in _entries(file):
        if its_split != split:
            continue
        for k, caption in enumerate(_sentences(entry, place)):
            captions.append(whole_caption(caption, f"{place}, sentences[{k}]", options.on_problem))
            owners.append(len(ids))
        relative.append(_relative(entry, place))
        # Features published with this file use the first of these that exists.
        key = next((key for key in ("cocoid", "imgid") if key in entry), "filename")
        ids.append(_whole(str(entry[key]), key, place))
    expect_images(file, split, len(ids))
    images = ImageFiles(_locate(relative, file.parent, options.image_folder()), tuple(ids))
    name = file.stem.removeprefix("dataset_")
    return CaptionedImages(name, split, NAME, images, tuple(captions), np.array(owners, dtype=np.int64))


def _json_file(path: Path) -> Path:
    if path.is_file():
        return path
    found = sorted(path.glob(_PATTERN))
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise InputError(f"{path}: expected exactly one {_PATTERN}, found {names}: name the file instead of the folder")
    return found[0]


def _entries(file: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield location, split and fields of every image."""
    content = parse_json(read_text(file), str(file))
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list):
        raise InputError(f'{file}: expected an object with a list "images", the format of Karpathy\'s splits')
    for i, entry in enumerate(images):
        place = f"{file}, images[{i}]"
        split = _text(entry, "split", place)
        yield place, "train" if split == "restval" else split, entry


def _text(entry: Any, key: str, place: str) -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, str) or not value:
        raise InputError(f'{place}: "{key}" is {value!r}, expected a non-empty text')
    return _whole(value, key, place)


def _whole(value: str, key: str, place: str) -> str:
    """Refuse a lone surrogate, which JSON can hold as ``"\\ud800"`` and UTF-8 cannot."""
    if not is_text(value):
        raise InputError(f'{place}: "{key}" is {value!r}, which holds a lone surrogate: write it again')
    return value


def _relative(entry: dict[str, Any], place: str) -> tuple[str, str]:
    filename = _text(entry, "filename", place)
    return (_text(entry, "filepath", place) if entry.get("filepath") else "", filename)


def _sentences(entry: dict[str, Any], place: str) -> Iterator[str]:
    sentences = entry.get("sentences")
    if not isinstance(sentences, list):
        raise InputError(f'{place}: "sentences" is {sentences!r}, expected a list of objects with "raw"')
    for sentence in sentences:
        raw = sentence.get("raw") if isinstance(sentence, dict) else None
        if not isinstance(raw, str):
            raise InputError(f'{place}: "raw" is {raw!r} in a sentence, expected a text')
        yield raw


def _locate(relative: list[tuple[str, str]], home: Path, given: Path | None) -> tuple[Path, ...]:
    """Return the paths of the files; the first one decides the folder, with or without its ``filepath``."""
    bases = [given] if given is not None else [home / name for name in _IMAGE_FOLDERS]
    folder, name = relative[0]
    for base in bases:
        if (base / folder / name).is_file():
            break
        if (base / name).is_file():
            return tuple(base / filename for _, filename in relative)
    else:
        base = next((base for base in bases if base.is_dir()), bases[0])
    return tuple(base / filepath / filename for filepath, filename in relative)

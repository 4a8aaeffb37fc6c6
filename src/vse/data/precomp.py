"""Layout ``precomp``: region features extracted beforehand, as published for COCO and Flickr30K.

``{split}_ims.npy`` float features, ``{split}_caps.txt`` one caption a line, ``{split}_ids.txt`` one image id a line
(optional), all in one folder that may be called ``precomp`` inside the folder of the data set. With the ids and
``id_mapping.json`` ``{"id": "relative file"}`` in either folder the same splits are read as image files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vse.data.captioned_images import CaptionedImages, FeatureRows, ImageFiles
from vse.data.npy import open_features
from vse.data.reading import ReadOptions, first_folder
from vse.data.row_assignment import assign_ids, assign_rows
from vse.data.splits import in_usual_order
from vse.data.text_files import parse_json, read_captions, read_lines, read_text
from vse.errors import InputError

NAME = "precomp"
_FEATURES, _CAPTIONS, _IDS, _MAPPING = "_ims.npy", "_caps.txt", "_ids.txt", "id_mapping.json"


def detect(path: Path) -> bool:
    """Whether a folder, or ``precomp`` inside it, has feature and caption files."""
    return path.is_dir() and bool(splits(path))


def splits(path: Path) -> tuple[str, ...]:
    """Every name in front of ``_ims.npy`` or ``_caps.txt``."""
    return in_usual_order(
        file.name.removesuffix(suffix)
        for suffix in (_FEATURES, _CAPTIONS)
        for file in _folder(path).glob(f"[!.]*{suffix}")
    )


def read(path: Path, split: str, options: ReadOptions) -> CaptionedImages:
    """Features, or files if they are asked for, if their folder is given, or if there are no features."""
    folder = _folder(path)
    captions = read_captions(folder / f"{split}{_CAPTIONS}", options.on_problem)
    files = options.use == "files" or (
        options.use == "auto"
        and (
            options.images is not None or (not (folder / f"{split}{_FEATURES}").exists() and _has_files(folder, split))
        )
    )
    images: FeatureRows | ImageFiles
    if files:
        images, owners = _image_files(folder, split, len(captions), options)
    else:
        ids_path = folder / f"{split}{_IDS}"
        ids = _read_ids(ids_path) if ids_path.exists() else None
        array = open_features(folder / f"{split}{_FEATURES}")
        assignment = assign_rows(array, len(captions), ids, f"{folder}, split {split!r}")
        # Without ids a number alone would make image 0 of one split the same as image 0 of another.
        names = assignment.ids or tuple(f"{split}/{i}" for i in range(len(assignment.rows)))
        images, owners = FeatureRows(array, assignment.rows, names), assignment.owners
    return CaptionedImages(_data_name(folder), split, NAME, images, tuple(captions), owners)


def _folder(path: Path) -> Path:
    """The folder with the files: ``path``, or ``precomp`` inside it."""
    inside = path / "precomp"
    here = any(next(path.glob(f"[!.]*{suffix}"), None) for suffix in (_FEATURES, _CAPTIONS))
    return inside if not here and inside.is_dir() else path


def _data_name(folder: Path) -> str:
    resolved = folder.resolve()
    return resolved.parent.name if resolved.name == "precomp" else resolved.name


def _read_ids(path: Path) -> list[str]:
    ids = read_lines(path)
    if "" in ids:
        raise InputError(f"{path}:{ids.index('') + 1}: empty line, expected the id of an image")
    return ids


def _mapping_path(folder: Path) -> Path | None:
    return next((place for place in (folder / _MAPPING, folder.resolve().parent / _MAPPING) if place.exists()), None)


def _has_files(folder: Path, split: str) -> bool:
    return (folder / f"{split}{_IDS}").exists() and _mapping_path(folder) is not None


def _image_files(folder: Path, split: str, captions: int, options: ReadOptions) -> tuple[ImageFiles, NDArray[np.int64]]:
    ids_path = folder / f"{split}{_IDS}"
    mapping_path = _mapping_path(folder)
    if mapping_path is None:
        raise InputError(
            f'{folder}: image files are asked for, but there is no {_MAPPING} ({{"id": "relative file"}}) '
            "here or one folder up"
        )
    mapping = parse_json(read_text(mapping_path), str(mapping_path))
    if not isinstance(mapping, dict):
        raise InputError(
            f'{mapping_path}: expected an object {{"id": "relative file"}}, got a {type(mapping).__name__}'
        )
    ids = _read_ids(ids_path)
    assignment = assign_ids(ids, captions, f"{folder}, split {split!r}")
    relative = []
    for row in assignment.rows.tolist():
        file = mapping.get(ids[row])
        if file is None and ids[row].isdecimal():
            file = mapping.get(str(int(ids[row])))  # "000123" in one file and "123" in the other
        if not isinstance(file, str) or not file:
            raise InputError(f"{ids_path}:{row + 1}: id {ids[row]!r} has no file in {mapping_path}")
        relative.append(file)
    home = mapping_path.parent
    base = options.image_folder() or first_folder([home / "images", home / "flickr30k-images", home], relative[0])
    paths = tuple(base / file for file in relative)
    return ImageFiles(paths, assignment.ids or ()), assignment.owners

"""Layout ``precomp``: precomputed region features, as published for COCO and Flickr30K.

``{split}_ims.npy`` float features, ``{split}_caps.txt`` one caption per line, ``{split}_ids.txt`` one image id per line
(optional), all in one folder, which may be ``precomp`` inside the folder of the dataset. With the ids and
``id_mapping.json`` ``{"id": "relative file"}`` in either folder the same splits can be read as image files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from vse._util.atomic import settle, write_text
from vse.data.dataset import CaptionedImages, FeatureRows, ImageFiles
from vse.data.files import parse_json, read_captions, read_lines, read_text
from vse.data.npy import open_features
from vse.data.reading import ReadOptions, first_folder, in_usual_order
from vse.errors import InputError

COMPLETE_BYTES = 64 << 20
"""Files up to this size are compared completely."""
WINDOWS = 17
WINDOW_ROWS = 16
Change = Callable[[NDArray[Any]], NDArray[Any]]
_PREFIX = 256  # values compared first: two images nearly always differ there, and they fit one page of the file


@dataclass(frozen=True)
class Neighbours:
    """Which of the compared rows equal the row before them."""

    rows: int
    equal: NDArray[np.bool_]
    positions: NDArray[np.int64]
    complete: bool

    @property
    def changes(self) -> NDArray[np.int64]:
        """Rows that differ from the row before them, ascending."""
        return self.positions[~self.equal]

    @property
    def factor(self) -> int | None:
        """The largest M such that rows change only at multiples of M; None if a partial comparison saw no change.

        M divides the number of rows. Counting a single run is not enough: two equal images in a row make a run of 2M.
        """
        if not self.complete and not self.changes.size:
            return None
        return math.gcd(self.rows, *self.changes.tolist())

    @property
    def mostly_equal(self) -> bool:
        """Whether more than half of the rows equal the row before them."""
        return 2 * int(self.equal.sum()) > len(self.equal)


def compare_neighbours(array: NDArray[Any]) -> Neighbours:
    """Compare rows with the row before them: all rows of a small file, 17 windows of 16 rows in a large one."""
    complete = array.nbytes <= COMPLETE_BYTES or len(array) <= WINDOWS * WINDOW_ROWS
    positions = np.array(list(range(1, len(array)) if complete else _windows(len(array))), dtype=np.int64)
    equal = np.array([_same(array[i - 1], array[i]) for i in positions.tolist()], dtype=np.bool_)
    return Neighbours(len(array), equal, positions, complete)


def _windows(rows: int) -> Iterator[int]:
    """Yield the positions of windows at the first row, at the last and evenly in between."""
    last = 0
    for k in range(WINDOWS):
        start = k * (rows - WINDOW_ROWS) // (WINDOWS - 1)
        for position in range(max(start, last) + 1, start + WINDOW_ROWS):
            yield position
            last = position


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Return whether two rows are copies; bytes are compared, since NaN differs from itself."""
    first, second = np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1)
    bits = np.dtype(f"u{first.itemsize}")
    first, second = first.view(bits), second.view(bits)
    return np.array_equal(first[:_PREFIX], second[:_PREFIX]) and np.array_equal(first, second)


@dataclass(frozen=True)
class Assignment:
    """``rows (I,)``: the row of each image; ``owners (captions,)``: the image of each caption; ``ids`` if known."""

    rows: NDArray[np.int64]
    owners: NDArray[np.int64]
    ids: tuple[str, ...] | None


def assign_rows(array: NDArray[Any], captions: int, ids: Sequence[str] | None, name: str) -> Assignment:
    """Assign rows and captions to images; ``name`` names the split in errors."""
    rows = len(array)
    if captions == 0 or captions % rows:
        raise InputError(
            f"{name}: {captions} captions for {rows} feature rows: expected a row for each caption or for each image, "
            "so that captions are a multiple of rows"
        )
    if captions > rows:
        each = captions // rows
        owners = np.repeat(np.arange(rows), each)
        return Assignment(np.arange(rows), owners, _image_ids(ids, rows, each, name))
    seen = compare_neighbours(array)
    if ids is None:
        return _repeated(rows, _factor(seen, name), None)
    if len(ids) == rows:
        assignment = group_by_id(ids)
        _agree(seen, assignment.owners, name)
        return assignment
    if len(ids) and rows % len(ids) == 0:
        assignment = _repeated(rows, rows // len(ids), tuple(ids))
        _agree(seen, assignment.owners, name)
        return assignment
    raise InputError(
        f"{name}: {len(ids)} ids for {rows} feature rows: expected one id for each row, or for each image if every "
        "image is repeated equally often"
    )


def assign_ids(ids: Sequence[str], captions: int, name: str) -> Assignment:
    """Assign captions to images by ids alone: one id per caption, or per image if all have equally many captions."""
    if captions == 0 or not ids or captions % len(ids):
        raise InputError(
            f"{name}: {captions} captions for {len(ids)} ids: expected an id for each caption or for each image, "
            "so that captions are a multiple of ids"
        )
    if captions == len(ids):
        return group_by_id(ids)
    return Assignment(np.arange(len(ids)), np.repeat(np.arange(len(ids)), captions // len(ids)), tuple(ids))


def group_by_id(ids: Sequence[str]) -> Assignment:
    """Assign rows by one id per row and caption: equal ids are one image, whose row is the first of them."""
    first: dict[str, int] = {}
    owners = np.array([first.setdefault(image, len(first)) for image in ids], dtype=np.int64)
    rows = np.unique(owners, return_index=True)[1]
    return Assignment(rows.astype(np.int64), owners, tuple(first))


def _repeated(rows: int, factor: int, ids: tuple[str, ...] | None) -> Assignment:
    return Assignment(np.arange(0, rows, factor), np.arange(rows) // factor, ids)


def _image_ids(ids: Sequence[str] | None, images: int, each: int, name: str) -> tuple[str, ...] | None:
    """Return the ids of a file with one row per image: all, or every ``each``-th if there is one per caption."""
    if ids is None or len(ids) == images:
        return None if ids is None else tuple(ids)
    if len(ids) != images * each:
        raise InputError(
            f"{name}: {len(ids)} ids for {images} feature rows and {images * each} captions: "
            "expected one id for each row or for each caption"
        )
    for caption, image_id in enumerate(ids):
        owner = ids[caption - caption % each]
        if image_id != owner:
            raise InputError(
                f"{name}: id {image_id!r} on line {caption + 1} differs from {owner!r} of the same feature row: "
                f"expected {each} equal lines for each row"
            )
    return tuple(ids[::each])


def _factor(seen: Neighbours, name: str) -> int:
    factor = seen.factor
    if factor is None:
        raise InputError(f"{name}: all compared feature rows are equal: expected different images, extract them again")
    if factor == 1 and seen.mostly_equal:
        raise InputError(
            f"{name}: feature rows are repeated irregularly (row {_odd_change(seen)} starts a new image): expected "
            "every image equally often, or a file of ids with one id for each row"
        )
    return factor


def _odd_change(seen: Neighbours) -> int:
    """Return the first change that does not fit the first run."""
    changes = seen.changes
    return int(next((c for c in changes if c % changes[0]), changes[0]))


def _agree(seen: Neighbours, owners: NDArray[np.int64], name: str) -> None:
    """Refuse ids that contradict the rows: one id for different rows, or a new id for each copy of a row."""
    same_image = owners[seen.positions] == owners[seen.positions - 1]
    torn = seen.positions[same_image & ~seen.equal]
    if torn.size:
        raise InputError(
            f"{name}: feature rows {torn[0] - 1} and {torn[0]} differ, but by the ids they are one image: "
            "expected equal rows for equal ids"
        )
    factor = seen.factor
    if seen.changes.size and factor is not None and factor > 1 and not same_image.any():
        raise InputError(
            f"{name}: every feature row is repeated {factor} times, but the ids call each copy another image: "
            "expected ids of images, not of captions; remove the file of ids to read without them"
        )


NAME = "precomp"
_FEATURES, _CAPTIONS, _IDS, _MAPPING = "_ims.npy", "_caps.txt", "_ids.txt", "id_mapping.json"


def detect(path: Path) -> bool:
    """Return whether a folder, or ``precomp`` inside it, has feature or caption files."""
    return path.is_dir() and bool(splits(path))


def splits(path: Path) -> tuple[str, ...]:
    """Return every prefix of ``_ims.npy`` and ``_caps.txt``."""
    return in_usual_order(
        file.name.removesuffix(suffix)
        for suffix in (_FEATURES, _CAPTIONS)
        for file in _folder(path).glob(f"[!.]*{suffix}")
    )


def read(path: Path, split: str, options: ReadOptions) -> CaptionedImages:
    """Return features, or files if requested, if their folder is given, or if there are no features."""
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
        # Numbers alone would make image 0 of one split the same as image 0 of another.
        names = assignment.ids or tuple(f"{split}/{i}" for i in range(len(assignment.rows)))
        images, owners = FeatureRows(array, assignment.rows, names), assignment.owners
    return CaptionedImages(_data_name(folder), split, NAME, images, tuple(captions), owners)


def write(folder: Path, split: CaptionedImages, change: Change | None = None) -> None:
    """Write the features and captions of a split into ``folder``, as float16 with one row for each image.

    Args:
        folder: An existing folder; files of a split with the same name are replaced, each atomically.
        split: Images with stored features, all with equally many captions, which the layout demands.
        change: Applied to the features ``(N, C)`` of each image, such as a projection.

    Raises:
        InputError: If images have no features, or not equally many captions.
    """
    rows = split.images
    if not isinstance(rows, FeatureRows):
        raise InputError(f"{split.name}, split {split.split!r}: image files, expected their features")
    owners = np.asarray(split.caption_to_image)
    counts = np.bincount(owners, minlength=len(rows))
    if counts.min() != counts.max() or not counts.min():
        raise InputError(
            f"{split.name}, split {split.split!r}: between {counts.min()} and {counts.max()} captions for an image: "
            "the layout precomp needs equally many"
        )
    lines = [" ".join(split.captions[place].split()) for place in np.argsort(owners, kind="stable").tolist()]
    changed = change or (lambda features: features)
    first = np.asarray(changed(rows[0]))
    header = {"descr": "<f2", "fortran_order": False, "shape": (len(rows), *first.shape)}
    part = folder / f"{split.split}{_FEATURES}.part"
    with part.open("wb") as file:
        npy_format.write_array_header_2_0(file, header)
        for number in range(len(rows)):
            file.write(np.ascontiguousarray(changed(rows[number]), dtype=np.float16).data)
    settle(part)
    part.replace(folder / f"{split.split}{_FEATURES}")
    write_text(folder / f"{split.split}{_IDS}", "".join(f"{each}\n" for each in rows.ids))
    write_text(folder / f"{split.split}{_CAPTIONS}", "\n".join(lines) + "\n")


def _folder(path: Path) -> Path:
    """Return the folder with the files: ``path``, or ``precomp`` inside it."""
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
            f'{folder}: image files are requested, but there is no {_MAPPING} ({{"id": "relative file"}}) '
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

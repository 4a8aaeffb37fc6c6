"""Grid features on disk: computed once by ``vse features``, read by training in the place of pictures.

::

    FOLDER/store.json      backbone, preprocessing, grid, fingerprint of the weights, and whether all is done
    FOLDER/ids.json        the id of the image in each row
    FOLDER/features.npy    float16 (count, cells, channels), to be memory-mapped
    FOLDER/done.npy        uint8 (count,): 0 to do, 1 done, 2 the picture cannot be used
    FOLDER/problems.jsonl  {"id", "reason"} of every picture that cannot be used

Commit protocol. ``store.json`` is written first and says what the folder is for; then ``ids.json`` and the empty
``features.npy``; ``done.npy`` is renamed into place last, so that its presence says that the folder is laid out. A
batch is committed in two steps: its rows of ``features.npy`` and its lines of ``problems.jsonl`` are written and
flushed to the disk (fsync), and only then are its marks in ``done.npy`` written and flushed. A mark that is set
therefore stands for features that are there, whenever the process is killed or the power fails; what is lost is the
batch under way, whose rows are still marked 0 and are computed again. ``complete`` in ``store.json`` turns true when
no mark is 0. All small files are replaced in one step.

A picture is known by its id: that its file was exchanged for another after its row was done is not noticed.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from vse._util.strict import Strict, parse, read_json
from vse.data.dataset import CaptionedImages, FeatureRows, ImageFiles
from vse.data.files import open_features
from vse.errors import InputError, VSEError, unknown_choice

HEADER, IDS, FEATURES, DONE, PROBLEMS = "store.json", "ids.json", "features.npy", "done.npy", "problems.jsonl"
TO_DO, DONE_WELL, BAD = 0, 1, 2


class StoreHeader(Strict):
    """``store.json``. ``fingerprint`` stands for the weights of the backbone, ``grid`` is rows × columns of cells."""

    format: Literal[1] = 1
    backbone: str
    options: dict[str, Any]
    preprocessing: dict[str, Any]
    grid: tuple[PositiveInt, PositiveInt]
    channels: PositiveInt
    dtype: Literal["float16"] = "float16"
    count: PositiveInt
    fingerprint: str
    complete: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the features: (count, cells, channels)."""
        return self.count, self.grid[0] * self.grid[1], self.channels

    @property
    def nbytes(self) -> int:
        """Of the features."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, eq=False)
class FeatureStore:
    """A complete store: row i of ``array``, which stays on disk, holds the features of image ``ids[i]``.

    ``bad`` holds the ids of pictures that could not be used, with the reasons; their rows hold nothing.
    """

    folder: Path
    header: StoreHeader
    ids: tuple[str, ...]
    array: NDArray[np.float16]
    bad: Mapping[str, str]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> FeatureStore:
        """The store in ``folder``; one that is unfinished, cut short or put together wrongly is an error."""
        where = Path(folder)
        if not (where / HEADER).is_file():
            raise InputError(f"{where} is no feature store, it has no {HEADER}: 'vse features' makes one")
        header = read_header(where)
        marks = read_marks(where, header) if (where / DONE).exists() else np.zeros(header.count, np.uint8)
        waiting = int((marks == TO_DO).sum())
        if waiting or not header.complete:
            raise InputError(
                f"{where} is not complete, {header.count - waiting} of {header.count} images are done: "
                "run the same 'vse features' command again to finish it"
            )
        ids = read_ids(where, header)
        reasons = read_problems(where)
        bad = {ids[row]: reasons.get(ids[row], "reason unknown") for row in np.flatnonzero(marks == BAD)}
        return cls(where, header, ids, map_features(where, header), bad)

    def rows_for(self, ids: Sequence[str]) -> FeatureRows:
        """The features of these images in this order; an id that is not there or has no features is an error."""
        missing = [name for name in ids if name not in self._row_of]
        if missing:
            raise InputError(
                f"{self.folder} lacks {len(missing)} of {len(ids)} images, {missing[0]!r} is the first: "
                "it was made from other pictures, run 'vse features' on these into another folder"
            )
        bad = [name for name in ids if name in self.bad]
        if bad:
            listed = ", ".join(f"{name!r} ({self.bad[name]})" for name in bad[:3])
            more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
            raise InputError(
                f"{self.folder} has no features for {len(bad)} of {len(ids)} images: {listed}{more}: "
                "mend the files and run 'vse features' again, or leave them out with on_bad='drop'"
            )
        rows = np.array([self._row_of[name] for name in ids], dtype=np.int64)
        return FeatureRows(self.array, rows, tuple(ids))

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}


def attach(
    data: CaptionedImages, store: FeatureStore, *, on_bad: Literal["raise", "drop"] = "raise"
) -> CaptionedImages:
    """``data`` with the features of ``store`` in the place of its images, matched by id.

    ``on_bad="drop"`` leaves out the pictures that could not be used, together with their captions.
    """
    if on_bad not in {"raise", "drop"}:
        raise InputError(unknown_choice("on_bad", on_bad, ("raise", "drop")))
    if isinstance(data.images, ImageFiles):
        distinct_files([data.images])
    ids = data.images.ids
    kept = np.array([on_bad == "raise" or name not in store.bad for name in ids])  # (images,)
    described = kept[data.caption_to_image]  # (captions,)
    position = np.cumsum(kept) - 1
    return replace(
        data,
        images=store.rows_for(tuple(compress(ids, kept))),
        captions=tuple(compress(data.captions, described)),
        caption_to_image=position[data.caption_to_image[described]],
    )


def distinct_files(sets: Iterable[ImageFiles]) -> ImageFiles:
    """The images of all sets, each id once; an id that names two files cannot tell their features apart."""
    files: dict[str, Path] = {}
    for images in sets:
        for name, path in zip(images.ids, images.paths, strict=True):
            if files.setdefault(name, path) != path:
                raise InputError(
                    f"id {name!r} names two images, {files[name]} and {path}: features are found by id, "
                    "give each image its own"
                )
    return ImageFiles(tuple(files.values()), tuple(files))


def read_header(folder: Path) -> StoreHeader:
    """``store.json``, strictly."""
    return parse(StoreHeader, read_json(folder / HEADER), str(folder / HEADER))


def read_ids(folder: Path, header: StoreHeader) -> tuple[str, ...]:
    """``ids.json``: as many ids as there are rows, no two alike."""
    path = folder / IDS
    try:
        ids = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({_first_line(error)}): {_START_AGAIN}") from None
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise InputError(f"{path}: expected a list of texts: {_START_AGAIN}")
    if len(ids) != header.count or len(set(ids)) != header.count:
        raise InputError(f"{path}: {len(set(ids))} distinct ids for {header.count} images: {_START_AGAIN}")
    return tuple(ids)


def read_marks(folder: Path, header: StoreHeader) -> NDArray[np.uint8]:
    """``done.npy`` as an array of its own."""
    path = folder / DONE
    try:
        marks = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read ({_first_line(error)}): {_START_AGAIN}") from None
    if marks.dtype != np.uint8 or marks.shape != (header.count,) or marks.max() > BAD:
        raise InputError(
            f"{path} holds {marks.dtype} {marks.shape}, expected uint8 ({header.count},), 0 to {BAD}: {_START_AGAIN}"
        )
    return marks


def map_features(folder: Path, header: StoreHeader) -> np.memmap[Any, Any]:
    """``features.npy``, mapped to be read."""
    array = open_features(folder / FEATURES)
    if array.shape != header.shape or array.dtype != np.float16:
        raise InputError(
            f"{folder / FEATURES} holds {array.dtype} {array.shape}, {HEADER} promises {header.dtype} "
            f"{header.shape}: {_START_AGAIN}"
        )
    return array


def read_problems(folder: Path) -> dict[str, str]:
    """Reasons by id; the last word on a picture counts, and half a line, left by a kill, does not."""
    reasons: dict[str, str] = {}
    path = folder / PROBLEMS
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
            reasons[entry["id"]] = entry["reason"]
        except (ValueError, TypeError, KeyError):
            continue
    return reasons


_START_AGAIN = "the store is damaged, delete its folder and run 'vse features' again"


def _first_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).partition("\n")[0] or type(error).__name__


_FULL = (errno.ENOSPC, errno.EDQUOT)


def expect_own_folder(folder: Path, header: str) -> None:
    """Refuse a folder that holds other things: it must be new, empty, or have the file ``header``."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: expected a folder for the features")
    if folder.is_dir() and not (folder / header).exists():
        strange = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if strange:
            raise InputError(
                f"{folder} is no feature store and not empty, it holds {strange[0]!r}: name a folder of its own"
            )


def expect_same(folder: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a folder of something else: its features and ours would be mixed."""
    old, new = _flat(found), _flat(wanted)
    for key in (*old, *(key for key in new if key not in old)):
        if old.get(key) != new.get(key):
            raise InputError(another(folder, key, old.get(key), new.get(key)))


def another(folder: Path, key: str, old: object, new: object) -> str:
    """The message for a folder that was begun with another value."""
    return (
        f"{folder} was begun with {key} {old!r}, now it is {new!r}: "
        "call with what it was begun with, or choose another folder"
    )


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Errors of the file system as one line."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise VSEError(
                f"{folder}: the disk is full; what is done stays: make room and run the same command again"
            ) from error
        raise VSEError(f"{folder} cannot be written: {error.strerror or error}") from error


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``: a difference is told by its smallest name."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat.update({f"{key}.{k}": v for k, v in _flat(value).items()} if isinstance(value, dict) else {key: value})
    return flat

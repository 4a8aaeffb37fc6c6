"""Features on disk, extracted once by ``vse features``: features of cells or regions of images, of frames of videos.

Images have the same number of cells or regions each, so that their features are rows of one array::

    FOLDER/store.json      backbone, preprocessing, grid, fingerprint of the weights, whether it is complete
    FOLDER/ids.json        the id of the image in each row
    FOLDER/features.npy    float16 (count, cells or regions, channels), to be memory-mapped
    FOLDER/boxes.npy       float32 (count, regions, 4), only of regions: left, top, right, bottom as shares of the image
    FOLDER/tags.jsonl      {"id", "tags"} of images, if somebody wrote it: what a detector saw, the surest first
    FOLDER/done.npy        uint8 (count,): 0 to do, 1 done, 2 the image cannot be used
    FOLDER/problems.jsonl  {"id", "reason"} of every image that cannot be used

Videos differ in length and come and go, and other tools read and write one array per video, so that layout is kept::

    FOLDER/ID.npy          float16 (frames, channels); its modification time is that of the video
    FOLDER/features.json   backbone, preprocessing, fingerprint of the weights, frames; problems and notes by id

Both are written by :mod:`vse.data.feature_writer`, which documents the commit protocol. :class:`FeatureStore` reads the
first; the second is read like any folder of arrays, by :class:`vse.data.video_sources.FrameFolder`.

An image is identified by its id: a file that is replaced after its row is done is not noticed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_serializer

from vse._util.strict import Strict, parse, read_json
from vse.data.dataset import CaptionedImages, FeatureRows, ImageFiles
from vse.data.npy import map_array, open_features
from vse.errors import InputError, unknown_choice
from vse.inputs.regions import BoxMethod

HEADER, IDS, FEATURES, DONE, PROBLEMS = "store.json", "ids.json", "features.npy", "done.npy", "problems.jsonl"
BOXES, TAGS = "boxes.npy", "tags.jsonl"
VIDEO_HEADER = "features.json"
VIDEO_KIND: Literal["clip features"] = "clip features"
TO_DO, DONE_WELL, BAD = 0, 1, 2
START_AGAIN = "the store is corrupt, delete its folder and run 'vse features' again"


class FeaturesHeader(Strict):
    """What both headers describe; ``fingerprint`` identifies the weights of the backbone."""

    format: Literal[1] = 1
    backbone: str
    options: dict[str, Any]
    preprocessing: dict[str, Any]
    channels: PositiveInt
    dtype: Literal["float16"] = "float16"
    fingerprint: str


class RegionsHeader(Strict):
    """How many regions an image has, and where their boxes come from; see :mod:`vse.inputs.regions`."""

    count: PositiveInt
    boxes: BoxMethod


class StoreHeader(FeaturesHeader):
    """``store.json``; ``grid`` is rows × columns of cells, over which ``regions``, if there are any, were averaged.

    ``precision`` is that of the backbone's arithmetic, None for float32.
    """

    grid: tuple[PositiveInt, PositiveInt]
    regions: RegionsHeader | None = None
    precision: Literal["bf16"] | None = None
    count: PositiveInt
    complete: bool = False

    @model_serializer(mode="wrap")
    def _without_absent(self, write: Any) -> dict[str, Any]:
        """Leave out ``regions`` and ``precision`` where they are None, as earlier releases expect."""
        plain: dict[str, Any] = write(self)
        return {key: value for key, value in plain.items() if key not in {"regions", "precision"} or value is not None}

    @property
    def elements(self) -> int:
        """Cells or regions of an image."""
        return self.grid[0] * self.grid[1] if self.regions is None else self.regions.count

    @property
    def described_elements(self) -> str:
        """Such as ``49 cells`` or ``36 regions (selective-search)``."""
        return f"{self.elements} cells" if self.regions is None else f"{self.elements} regions ({self.regions.boxes})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the features: (count, cells or regions, channels)."""
        return self.count, self.elements, self.channels

    @property
    def nbytes(self) -> int:
        """Of the features."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class VideoFeaturesHeader(FeaturesHeader):
    """``features.json``; ``frames`` is the maximum per video. ``problems`` and ``notes`` are texts by id."""

    kind: Literal["clip features"] = VIDEO_KIND
    frames: PositiveInt
    problems: dict[str, str] = Field(default_factory=dict)
    notes: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FeatureStore:
    """A complete store of image features: row i of ``array``, which stays on disk, belongs to image ``ids[i]``.

    ``bad`` are the reasons, by id, of images that could not be used; their rows are empty. ``boxes`` are those of the
    regions, ``(count, regions, 4)`` in the same order; None for cells.
    """

    folder: Path
    header: StoreHeader
    ids: tuple[str, ...]
    array: NDArray[np.float16]
    bad: Mapping[str, str]
    boxes: NDArray[np.float32] | None = None

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> FeatureStore:
        """Open the store in ``folder``.

        Raises:
            InputError: If there is none, or it is incomplete, truncated or inconsistent.
        """
        where = Path(folder)
        if not (where / HEADER).is_file():
            raise InputError(f"{where} is not a feature store, it has no {HEADER}: create one with 'vse features'")
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
        boxes = None if header.regions is None else map_boxes(where, header)
        return cls(where, header, ids, map_features(where, header), bad, boxes)

    def rows_for(self, ids: Sequence[str], *, boxes: bool = False, tags: Sequence[str] = ()) -> FeatureRows:
        """Return the features of these images in this order, with the boxes of regions and with tags if asked for.

        Args:
            ids: of the images.
            boxes: add boxes.
            tags: add the tags of each image that are among these; their numbers are places in this list.

        Raises:
            InputError: If an id is missing or has no features, or there are no boxes or tags.
        """
        if boxes and self.boxes is None:
            raise InputError(
                f"{self.folder} holds {self.header.described_elements} without boxes, and the model reads boxes: "
                "extract regions with 'vse features --regions'"
            )
        missing = [name for name in ids if name not in self._row_of]
        if missing:
            raise InputError(
                f"{self.folder} lacks {len(missing)} of {len(ids)} images, {missing[0]!r} is the first: "
                "it was made from other images, run 'vse features' on these into another folder"
            )
        bad = [name for name in ids if name in self.bad]
        if bad:
            listed = ", ".join(f"{name!r} ({self.bad[name]})" for name in bad[:3])
            more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
            raise InputError(
                f"{self.folder} has no features for {len(bad)} of {len(ids)} images: {listed}{more}: "
                "fix the files and run 'vse features' again, or leave them out with on_bad='drop'"
            )
        rows = np.array([self._row_of[name] for name in ids], dtype=np.int64)
        numbered = self._numbered(tags) if tags else None
        return FeatureRows(self.array, rows, tuple(ids), self.boxes if boxes else None, numbered)

    @cached_property
    def tags(self) -> dict[str, tuple[str, ...]]:
        """The tags of images by id, of ``tags.jsonl``; an image without a line has none.

        Raises:
            InputError: There is no such file, or a line is of another form.
        """
        path, form = self.folder / TAGS, '{"id": "...", "tags": ["dog", ...]}'
        if not path.is_file():
            raise InputError(f"{self.folder} has no {TAGS}, and the model reads tags: write lines of {form}")
        found: dict[str, tuple[str, ...]] = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                raw = json.loads(line)
                name, tags = raw["id"], raw["tags"]
            except (ValueError, KeyError, TypeError):
                name, tags = None, None
            if not isinstance(name, str) or not isinstance(tags, list) or not all(isinstance(x, str) for x in tags):
                raise InputError(f"{path}, line {number}: expected {form}")
            found[name] = tuple(dict.fromkeys(tags))
        return found

    def tag_names(self) -> tuple[str, ...]:
        """Return all tags of the store in alphabetical order."""
        return tuple(sorted({tag for tags in self.tags.values() for tag in tags}))

    def _numbered(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return the numbers of the tags of each row, ``(count, elements)``, -1 behind the last one."""
        places = {name: place for place, name in enumerate(names)}
        count, most = int(self.array.shape[0]), int(self.array.shape[1])
        numbered = np.full((count, most), -1, dtype=np.float32)
        for row, name in enumerate(self.ids):
            known = [places[tag] for tag in self.tags.get(name, ()) if tag in places][:most]
            numbered[row, : len(known)] = known
        return numbered

    def expect_windows(self, windows: int | None) -> None:
        """Refuse a model that takes other elements of an image: that many ``windows``, or cells if None."""
        regions = self.header.regions
        same = regions is None if windows is None else regions == RegionsHeader(count=windows, boxes="windows")
        if not same:
            wanted = "cells" if windows is None else f"{windows} windows"
            raise InputError(
                f"{self.folder} holds {self.header.described_elements} of each image, and the model takes {wanted}: "
                "set model.image.windows to the number of windows in the store, or extract the features again"
            )

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}


def attach(
    data: CaptionedImages,
    store: FeatureStore,
    *,
    on_bad: Literal["raise", "drop"] = "raise",
    boxes: bool = False,
    tags: Sequence[str] = (),
) -> CaptionedImages:
    """Return ``data`` with its images replaced by their features in ``store``, matched by id.

    Args:
        data: A split with image files.
        store: The features of these images, and possibly of others.
        on_bad: ``raise`` for an error if an image has no features, ``drop`` to leave it out with its captions.
        boxes: whether the box of each region becomes a part of its feature, see :class:`FeatureRows`.
        tags: the tags whose numbers become a part of the features.

    Raises:
        InputError: If an image is missing from the store or has no features.
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
        images=store.rows_for(tuple(compress(ids, kept)), boxes=boxes, tags=tags),
        captions=tuple(compress(data.captions, described)),
        caption_to_image=position[data.caption_to_image[described]],
    )


def distinct_files(sets: Iterable[ImageFiles]) -> ImageFiles:
    """Return the images of all sets, each id once; an id that names two files is an error."""
    files: dict[str, Path] = {}
    for images in sets:
        for name, path in zip(images.ids, images.paths, strict=True):
            if files.setdefault(name, path) != path:
                raise InputError(
                    f"id {name!r} names two images, {files[name]} and {path}: features are found by id, "
                    "give each image its own"
                )
    return ImageFiles(tuple(files.values()), tuple(files))


def read_video_header(folder: Path) -> VideoFeaturesHeader | None:
    """Return the header of the frame features in ``folder``; None for features that ``vse features`` did not write."""
    try:
        described = json.loads((folder / VIDEO_HEADER).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(described, dict) or described.get("kind") != VIDEO_KIND:
        return None
    return parse(VideoFeaturesHeader, described, str(folder / VIDEO_HEADER))


def read_header(folder: Path) -> StoreHeader:
    """Read ``store.json``."""
    return parse(StoreHeader, read_json(folder / HEADER), str(folder / HEADER))


def read_ids(folder: Path, header: StoreHeader) -> tuple[str, ...]:
    """Read ``ids.json``: as many ids as there are rows, all distinct."""
    path = folder / IDS
    try:
        ids = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({_first_line(error)}): {START_AGAIN}") from None
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise InputError(f"{path}: expected a list of texts: {START_AGAIN}")
    if len(ids) != header.count or len(set(ids)) != header.count:
        raise InputError(f"{path}: {len(set(ids))} distinct ids for {header.count} images: {START_AGAIN}")
    return tuple(ids)


def read_marks(folder: Path, header: StoreHeader) -> NDArray[np.uint8]:
    """Read ``done.npy`` into memory."""
    path = folder / DONE
    try:
        marks = np.array(map_array(path))
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read ({_first_line(error)}): {START_AGAIN}") from None
    if marks.dtype != np.uint8 or marks.shape != (header.count,) or marks.max() > BAD:
        raise InputError(
            f"{path} holds {marks.dtype} {marks.shape}, expected uint8 ({header.count},), 0 to {BAD}: {START_AGAIN}"
        )
    return marks


def map_features(folder: Path, header: StoreHeader) -> np.memmap[Any, Any]:
    """Map ``features.npy`` read-only."""
    array = open_features(folder / FEATURES)
    if array.shape != header.shape or array.dtype != np.float16:
        raise InputError(
            f"{folder / FEATURES} holds {array.dtype} {array.shape}, {HEADER} promises {header.dtype} "
            f"{header.shape}: {START_AGAIN}"
        )
    return array


def map_boxes(folder: Path, header: StoreHeader) -> np.memmap[Any, Any]:
    """Map ``boxes.npy`` read-only."""
    array = open_features(folder / BOXES)
    expected = (header.count, header.elements, 4)
    if array.shape != expected or array.dtype != np.float32:
        raise InputError(
            f"{folder / BOXES} holds {array.dtype} {array.shape}, expected float32 {expected}: {START_AGAIN}"
        )
    return array


def read_problems(folder: Path) -> dict[str, str]:
    """Read the reasons by id; the last one of an image counts, and a line truncated by a kill is ignored."""
    reasons: dict[str, str] = {}
    path = folder / PROBLEMS
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
            reasons[entry["id"]] = entry["reason"]
        except (ValueError, TypeError, KeyError):
            continue
    return reasons


def _first_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).partition("\n")[0] or type(error).__name__

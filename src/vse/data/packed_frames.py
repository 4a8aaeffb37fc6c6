"""The frames of a split in one memory-mapped array, so that reading a video is a copy and no look-up in a file.

::

    FOLDER/frames.npy    (all frames, C) in the type they are stored in, those that are used and no others
    FOLDER/frames.json   what it was made of; names and sizes
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from vse.data.video_frames import VideoFrames, not_finite
from vse.data.video_sources import Rows, stored_name
from vse.errors import InputError
from vse.files import settle, write_json

ARRAY, INDEX = "frames.npy", "frames.json"
TYPES = (np.dtype(np.float16), np.dtype(np.float32))


class PackedFrames:
    """A :class:`~vse.data.video_sources.FrameSource` over a folder that :func:`write_packed` wrote."""

    def __init__(self, folder: Path, ids: tuple[str, ...], sizes: NDArray[np.int64]) -> None:
        self.folder = folder
        self._array: NDArray[Any] = np.load(folder / ARRAY, mmap_mode="r", allow_pickle=False)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        if int(starts[-1]) != len(self._array):
            raise InputError(f"{folder}: {len(self._array)} frames where {starts[-1]} belong: remove the folder")
        names = map(stored_name, ids)
        self._spans = {name: slice(*span) for name, *span in zip(names, starts[:-1], starts[1:], strict=True)}

    @property
    def place(self) -> str:
        return str(self.folder)

    def names(self) -> frozenset[str]:
        return frozenset(self._spans)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.read(name).shape

    def read(self, name: str, rows: Rows | None = None) -> NDArray[Any]:
        frames = self._array[self._spans[name]]
        return frames if rows is None else frames[rows]

    def stamp(self) -> str:
        return hashlib.sha256((self.folder / INDEX).read_bytes()).hexdigest()


def frames_identity(videos: VideoFrames) -> str:
    """A name for the frames of these videos in the state their files are in."""
    counted = json.dumps([videos.ids, videos.counts.tolist(), videos.dim, videos.limit, videos.source.stamp()])
    return hashlib.sha256(counted.encode()).hexdigest()


def packed_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which videos are packed whose first one is stored in ``dtype``."""
    return dtype if dtype in TYPES else np.dtype(np.float32)


def expect_type(videos: VideoFrames, number: int, found: np.dtype[Any], packed: np.dtype[Any]) -> None:
    """Refuse a video of ``found`` values among halves, which could not hold them."""
    if packed == TYPES[0] and found != packed:
        raise InputError(
            f"{videos.source.place}: frames of {videos.ids[0]!r} are {packed}, of {videos.ids[number]!r} {found}: "
            "expected one type, extract them again"
        )


def write_packed(videos: VideoFrames, folder: Path) -> None:
    """Write the frames of ``videos`` into ``folder``, which exists; memory is one video."""
    dtype = packed_type(videos.stored(0).dtype)
    header = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False}
    with (folder / ARRAY).open("wb") as file:
        npy_format.write_array_header_2_0(file, header | {"shape": (int(videos.sizes.sum()), videos.dim)})
        for number, video in enumerate(videos.ids):
            frames = videos.stored(number)
            expect_type(videos, number, frames.dtype, dtype)
            with np.errstate(over="ignore"):  # what becomes infinite is refused below
                kept = np.ascontiguousarray(frames, dtype=dtype)
            if not np.isfinite(kept).all():  # said now, and not in the middle of an epoch
                raise not_finite(videos.source, video)
            file.write(kept.data)
    settle(folder / ARRAY)
    write_json(folder / INDEX, {"identity": frames_identity(videos), "sizes": videos.sizes.tolist()})


def open_packed(videos: VideoFrames, folder: Path) -> VideoFrames | None:
    """``videos`` read from ``folder``; None if it does not hold them as their files are now."""
    try:
        known = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if known["identity"] != frames_identity(videos):
            return None
        return replace(videos, source=PackedFrames(folder, videos.ids, videos.sizes), counts=videos.sizes)
    except (OSError, ValueError, KeyError, TypeError):
        return None

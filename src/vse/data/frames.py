"""Videos as sets of frame features of varying size, and a packed cache of them for training.

The packed file is not a store that users keep: it holds exactly the frames that one run uses, in its run folder, and
is rebuilt whenever the source files change.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from vse._util.atomic import settle, write_json
from vse.data.npy import map_array
from vse.data.video_sources import FrameSource, Rows, stored_name
from vse.errors import InputError

FRAME_LIMIT = 20


def even_frames(count: int, limit: int | None = FRAME_LIMIT) -> NDArray[np.int64]:
    """Return which frames of ``count`` are used: all, or ``limit`` of them, evenly spaced from the first to the last.

    As in HGR: ``round(linspace(0, count - 1, limit))``, with halves rounded to even.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit={limit}: expected at least one frame per video, or None for all")
    if limit is None or count <= limit:
        return np.arange(count, dtype=np.int64)
    return np.round(np.linspace(0, count - 1, limit)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class VideoFrames:
    """Videos as frame features that stay on disk; ``videos[i]`` is float32 ``(n, C)`` with ``n <= limit``.

    ``counts[i]`` is how many frames of video i the source has, ``sizes[i]`` how many of them are used.
    """

    source: FrameSource
    ids: tuple[str, ...]
    counts: NDArray[np.int64]
    dim: int
    limit: int | None = FRAME_LIMIT

    @property
    def kind(self) -> Literal["features"]:
        return "features"

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of frames of each video, ``(len(self),)``."""
        return self.counts if self.limit is None else np.minimum(self.counts, self.limit)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Return the frames ``(n, C)`` as finite float32."""
        frames = self.stored(index)
        with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite and is refused below
            found = np.asarray(frames, dtype=np.float32)
        if not np.isfinite(found).all():
            raise not_finite(self.source, self.ids[index])
        return found

    @property
    def feature_size(self) -> int:
        return self.dim

    def identity(self) -> dict[str, Any]:
        """Return what tells features of different origin apart, without reading all of them."""
        return {"frames": int(self.sizes.sum()), "width": self.dim, "sample": sample_digest(self)}

    def expect_finite(self) -> None:
        """Read every video once; frames that are not finite are an error that names the video."""
        for index in range(len(self)):
            self[index]

    def stored(self, index: int) -> NDArray[Any]:
        """Return the frames of a video that are used, ``(n, C)`` in the type in which they are stored."""
        video = range(len(self.ids))[operator.index(index)]
        name, count = stored_name(self.ids[video]), int(self.counts[video])
        found = self.source.shape(name)
        if found != (count, self.dim):
            raise InputError(
                f"{self.source.place}, video {self.ids[video]!r}: {found[0]} × {found[1]}, but it was "
                f"{count} × {self.dim} when it was opened: open the data again"
            )
        whole = self.limit is None or count <= self.limit
        return self.source.read(name, None if whole else even_frames(count, self.limit))


class _Rows(Protocol):
    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> NDArray[np.float32]: ...


def sample_digest(images: _Rows) -> str:
    """Return a digest of the first, middle and last item.

    A few stand for all: a large file takes minutes to read, and features of another origin differ anywhere.
    """
    rows = [images[place] for place in (0, len(images) // 2, len(images) - 1)]
    return hashlib.sha256(b"".join(row.tobytes() for row in rows)).hexdigest()[:16]


def not_finite(source: FrameSource, video: str) -> InputError:
    """Return the error about frames that are not finite."""
    return InputError(
        f"{source.place}, video {video!r}: its frames hold NaN or infinite values: extract them again, or remove it "
        "from the split ('vse data check' lists all such videos)"
    )


def find_frames(
    source: FrameSource, videos: Sequence[str], limit: int | None = FRAME_LIMIT
) -> tuple[VideoFrames, tuple[str, ...]]:
    """Return the frames of ``videos`` in this order, and the videos without frames.

    Raises:
        InputError: If no video has frames, or their sizes differ.
    """
    even_frames(1, limit)
    _expect_own_frames(source, videos)
    there = source.names()
    shapes = {name: source.shape(stored_name(name)) for name in videos if stored_name(name) in there}
    found = [name for name in videos if name in shapes and shapes[name][0] > 0]
    if not found:
        some = ", ".join(map(repr, videos[:3])) + (" …" if len(videos) > 3 else "")
        others = f"{len(there)} others" + (f", {min(there)!r} is the first" if there else "")
        raise InputError(
            f"{source.place}: no frames of any of the {len(videos)} videos ({some}), it holds {others}: "
            "give the features of this split with --features PLACE (features= in Python)"
        )
    widths = {name: shapes[name][1] for name in found}
    width = widths[found[0]]
    other = next((name for name in found if widths[name] != width), None)
    if other is not None:
        raise InputError(
            f"{source.place}: frames of {found[0]!r} have {width} values, of {other!r} {widths[other]}: "
            "expected one size, extract them again"
        )
    counts = np.array([shapes[name][0] for name in found], dtype=np.int64)
    kept = set(found)
    dropped = tuple(name for name in videos if name not in kept)
    return VideoFrames(source, tuple(found), counts, width, limit), dropped


def _expect_own_frames(source: FrameSource, videos: Sequence[str]) -> None:
    """Refuse names that differ only in a slash and an underscore: both videos would get the frames of one."""
    owners: dict[str, str] = {}
    for video in videos:
        other = owners.setdefault(stored_name(video), video)
        if other != video:
            raise InputError(
                f"{source.place}: {other!r} and {video!r} are both stored as {stored_name(video)!r}: rename one of them"
            )


ARRAY, INDEX = "frames.npy", "frames.json"
TYPES = (np.dtype(np.float16), np.dtype(np.float32))


class PackedFrames:
    """The frames in a folder that :func:`write_packed` wrote."""

    def __init__(self, folder: Path, ids: tuple[str, ...], sizes: NDArray[np.int64]) -> None:
        self.folder = folder
        self._array: NDArray[Any] = map_array(folder / ARRAY)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        if int(starts[-1]) != len(self._array):
            raise InputError(f"{folder}: {len(self._array)} frames, expected {starts[-1]}: remove the folder")
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
    """Return a digest of these videos, their frame counts and the state of their files."""
    counted = json.dumps([videos.ids, videos.counts.tolist(), videos.dim, videos.limit, videos.source.stamp()])
    return hashlib.sha256(counted.encode()).hexdigest()


def packed_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which videos are packed if the first one is stored as ``dtype``."""
    return dtype if dtype in TYPES else np.dtype(np.float32)


def expect_type(videos: VideoFrames, number: int, found: np.dtype[Any], packed: np.dtype[Any]) -> None:
    """Refuse a video with another type than float16 among float16 videos, which would lose precision."""
    if packed == TYPES[0] and found != packed:
        raise InputError(
            f"{videos.source.place}: frames of {videos.ids[0]!r} are {packed}, of {videos.ids[number]!r} {found}: "
            "expected one type, extract them again"
        )


def write_packed(videos: VideoFrames, folder: Path) -> None:
    """Write the frames of ``videos`` into an existing folder, one video at a time."""
    dtype = packed_type(videos.stored(0).dtype)
    header = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False}
    with (folder / ARRAY).open("wb") as file:
        npy_format.write_array_header_2_0(file, header | {"shape": (int(videos.sizes.sum()), videos.dim)})
        for number, video in enumerate(videos.ids):
            frames = videos.stored(number)
            expect_type(videos, number, frames.dtype, dtype)
            with np.errstate(over="ignore"):  # an infinite value is refused below
                kept = np.ascontiguousarray(frames, dtype=dtype)
            if not np.isfinite(kept).all():  # better now than in the middle of an epoch
                raise not_finite(videos.source, video)
            file.write(kept.data)
    settle(folder / ARRAY)
    write_json(folder / INDEX, {"identity": frames_identity(videos), "sizes": videos.sizes.tolist()})


def open_packed(videos: VideoFrames, folder: Path) -> VideoFrames | None:
    """Return ``videos`` read from the packed ``folder``, None if it is missing or stale."""
    try:
        known = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if known["identity"] != frames_identity(videos):
            return None
        return replace(videos, source=PackedFrames(folder, videos.ids, videos.sizes), counts=videos.sizes)
    except (OSError, ValueError, KeyError, TypeError):
        return None

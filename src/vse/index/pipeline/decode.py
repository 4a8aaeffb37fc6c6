"""A file as pixels for a model: a picture at once, a clip some windows at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from vse.index.scan import BadMediaError, Found, Problem, ScanLimits, describe, frames
from vse.index.scan.describe import CHANGED, read_picture
from vse.index.types import MediaFile
from vse.inputs.files import os_reason
from vse.inputs.images import BadImageError
from vse.inputs.preprocessing import load_pixels
from vse.models.encode import READERS

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing


Pixels = NDArray[np.float32]
"""``(3, H, W)``, as the model takes them."""
FRAMES = 8
"""Frames of a window of a clip, at most."""


@dataclass(frozen=True)
class Shot:
    """What becomes one vector: the frames of a window and its seconds, or a picture as the only frame."""

    frames: tuple[Pixels, ...]
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Part:
    """Some shots of a file; ``last`` if no more follow. ``remark`` says what was wrong with a clip that is used."""

    file: MediaFile
    shots: tuple[Shot, ...]
    last: bool = True
    remark: str | None = None


def read_parts(
    found: Found,
    root: str,
    captions: tuple[str, ...],
    how: ImagePreprocessing,
    windows: int,
    limits: ScanLimits,
) -> Iterator[Part | Problem]:
    """The parts of a file, of a clip ``windows`` at a time; or a problem, which is the last that comes.

    Each file is decoded once, and of a picture also the facts come from the same bytes.
    """
    try:
        if found.kind == "image":
            file, content = read_picture(found, root, captions, limits)
            yield Part(file, (Shot((load_pixels(content, how, limits=limits.image),)),))
        else:
            yield from _clip(found, root, captions, how, windows, limits)
    except (BadMediaError, BadImageError) as error:
        yield Problem(found.path, error.reason)
    except OSError as error:
        yield Problem(found.path, os_reason(error))
    except MemoryError:
        yield Problem(found.path, "not enough memory")


def _clip(
    found: Found, root: str, captions: tuple[str, ...], how: ImagePreprocessing, windows: int, limits: ScanLimits
) -> Iterator[Part | Problem]:
    """One window is held back, since only behind the last one is known that it was the last."""
    file = describe(found, root, captions=captions, limits=limits)
    if isinstance(file, Problem):
        yield file
        return
    path = Path(root) / found.path
    shots: list[Shot] = []
    remark = None
    for window in frames(path, per_window=FRAMES, limits=limits.video):
        if isinstance(window, Problem):
            yield Problem(found.path, window.reason)
            return
        if len(shots) >= windows:
            yield Part(file, tuple(shots), last=False)
            shots = []
        pixels = tuple(load_pixels(frame, how) for frame in window.frames)
        shots.append(Shot(pixels, window.start, window.end))
        remark = window.remark
    status = path.stat()
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
        yield Problem(found.path, CHANGED)
    else:
        yield Part(file, tuple(shots), remark=remark)


File = TypeVar("File")
Result = TypeVar("Result")
Parts = Iterator[Part | Problem]
DECODERS = min(16, os.cpu_count() or 1)
"""Photographs of a camera take longer to decode than small models to encode, so that all cores are needed for it."""


def results_ahead(
    files: Iterable[File], read: Callable[[File], Result], ahead: int = 4 * READERS
) -> Generator[tuple[File, Result], None, None]:
    """Each file with what ``read`` gives for it, in order; at most ``ahead`` files are begun and not handed out.

    Closing it waits for the files that are being read, and not for those that were to follow.
    """
    remaining = iter(files)
    under_way: deque[tuple[File, Future[Result]]] = deque()
    pool = ThreadPoolExecutor(READERS, thread_name_prefix="vse-read")
    try:
        while True:
            while len(under_way) < ahead and (file := next(remaining, None)) is not None:
                under_way.append((file, pool.submit(read, file)))
            if not under_way:
                return
            file, future = under_way.popleft()
            yield file, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def parts_ahead(
    files: Iterable[File], read: Callable[[File], Parts], weight: Callable[[File], int], ahead: int
) -> Generator[tuple[File, Part | Problem], None, None]:
    """The parts of all files with the file they belong to, in the order of the files and of their parts.

    ``weight`` is the number of frames in a part of a file at most. New files are begun while those under way weigh less
    than ``ahead``, and of each file one part is read ahead: this bounds the frames in memory, however long a clip is.
    """
    remaining = iter(files)
    under_way: deque[tuple[File, Parts, Future[Part | Problem | None]]] = deque()
    weighing = 0
    pool = ThreadPoolExecutor(DECODERS, thread_name_prefix="vse-read")
    try:
        while True:
            while weighing < ahead and (file := next(remaining, None)) is not None:
                parts = read(file)
                under_way.append((file, parts, pool.submit(next, parts, None)))
                weighing += weight(file)
            if not under_way:
                return
            file, parts, future = under_way.popleft()
            part = future.result()
            if isinstance(part, Part) and not part.last:
                under_way.appendleft((file, parts, pool.submit(next, parts, None)))
            else:
                weighing -= weight(file)
            if part is not None:
                yield file, part
    finally:
        pool.shutdown(wait=True, cancel_futures=True)

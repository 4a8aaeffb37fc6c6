"""A file as pixels for a model: a picture at once, a clip some windows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vse.index.scan import BadMediaError, Found, Problem, ScanLimits, describe, frames
from vse.index.scan.describe import CHANGED, read_picture
from vse.index.types import MediaFile
from vse.inputs.files import os_reason
from vse.inputs.images import BadImageError
from vse.inputs.preprocessing import load_pixels

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

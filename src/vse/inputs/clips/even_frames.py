"""A clip as a few frames, evenly spaced over all of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.inputs.clips.clip import open_clip
from vse.inputs.clips.frame_reader import FrameReader
from vse.inputs.clips.frames import frames, read_window
from vse.inputs.clips.limits import VideoLimits
from vse.inputs.clips.window import Window
from vse.inputs.problem import BadMediaError, Problem

FRAMES = 20
MOST_FRAMES = 256
"""Of one clip: they are held at once, at the full size of ``VideoLimits.max_side``."""


@dataclass(frozen=True)
class EvenFrames:
    """Frames ``(H, W, 3)`` uint8 RGB, upright, in the order of time.

    ``times`` are the seconds of the clip at which they are seen. ``remark`` says what of it could not be read, None if
    nothing.
    """

    frames: tuple[NDArray[np.uint8], ...]
    times: tuple[float, ...]
    remark: str | None = None


def even_frames_of(path: str | Path, count: int = FRAMES, *, limits: VideoLimits | None = None) -> EvenFrames:
    """The clip cut into ``count`` equal parts, and the frame seen at the middle of each; at most 256 of them.

    A frame that is seen at several of these times is given once: a clip of few frames has fewer than ``count``. Of a
    clip that ends before the time it announces, what is there is cut into parts. A file without any frame that can be
    decoded raises :class:`BadMediaError`.
    """
    check_frame_count("count", count)
    limits = limits or VideoLimits()
    (found,) = frames(path, windows=1, per_window=count, limits=limits)
    if isinstance(found, Problem):
        raise BadMediaError(str(path), found.reason)
    if found.remark is not None and len(found.frames) < count:
        found = _spread(path, found, count, limits)
    return EvenFrames(found.frames, found.times, found.remark)


def check_frame_count(name: str, value: int) -> None:
    """A clip has at least one frame."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_FRAMES:
        raise InputError(f"{name} must be a whole number from 1 to {MOST_FRAMES}, got {value!r}")


def _spread(path: str | Path, found: Window, count: int, limits: VideoLimits) -> Window:
    """The frames of ``found`` anew, with ``count`` of them up to its end; itself where nothing is missing behind it."""
    try:
        with open_clip(path, limits) as clip:
            if found.end >= clip.duration:
                return found
            with closing(FrameReader(clip)) as reader:
                again, _ = read_window(reader, (0.0, found.end), count, clip.aspect, limits.max_side)
    except BadMediaError:
        return found
    return replace(found, frames=again.frames, times=again.times) if again is not None else found

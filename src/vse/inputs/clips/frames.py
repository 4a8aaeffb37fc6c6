"""A clip as windows of a few seconds, each with frames spread over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.inputs.clips.clip import open_clip
from vse.inputs.clips.frame_reader import FrameReader
from vse.inputs.clips.limits import VideoLimits
from vse.inputs.clips.upright import upright
from vse.inputs.clips.window import Window
from vse.inputs.problem import BadMediaError, Problem, TooSlowError

if TYPE_CHECKING:
    from av import VideoFrame

WINDOW_SECONDS = 4.0
WINDOWS = 64
"""Of one clip at most; those of a longer one are longer."""


def frames(
    path: str | Path,
    *,
    windows: int = WINDOWS,
    per_window: int = 8,
    seconds: float = WINDOW_SECONDS,
    limits: VideoLimits | None = None,
) -> Iterator[Window | Problem]:
    """The windows of a clip in the order of time, or one :class:`Problem` if there are none.

    A problem behind windows means that decoding took longer than ``limits.max_time``: they are not the whole clip.

    A clip is cut into equal windows of about ``seconds``, and a long one into ``windows`` longer ones. A window is cut
    into ``per_window`` equal parts, and the frame seen at the middle of each is taken; a frame that is seen at several
    of these times is given once. Frames are upright, with square pixels, and at most ``limits.max_side`` long.
    """
    for name, value in (("windows", windows), ("per_window", per_window)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    if not seconds > 0:
        raise InputError(f"seconds must be above 0, got {seconds!r}")
    return _frames(path, windows, per_window, seconds, limits or VideoLimits())


def spans(duration: float, seconds: float, windows: int) -> list[tuple[float, float]]:
    """Equal windows that cover ``duration``: as many as bring them closest to ``seconds``, at most ``windows``."""
    count = min(max(round(duration / seconds), 1), windows)
    edges = [duration * k / count for k in range(count + 1)]
    return list(pairwise(edges))


def _frames(
    path: str | Path, windows: int, per_window: int, seconds: float, limits: VideoLimits
) -> Iterator[Window | Problem]:
    ready: Window | None = None  # one window is held back: only behind the last one is known whether all went well
    try:
        with open_clip(path, limits) as clip, closing(FrameReader(clip)) as reader:
            remark = None
            for start, end in spans(clip.duration, seconds, windows):
                window, whole = read_window(reader, (start, end), per_window, clip.aspect, limits.max_side)
                if window is not None:
                    if ready is not None:
                        with clip.time.stopped():
                            yield ready
                    ready = window
                if not whole:
                    remark = f"ends at {min(reader.reached, clip.duration):.1f} s of {clip.duration:.1f} s"
                    break
            remark = "; ".join(filter(None, (remark, reader.remark))) or None
            if ready is None:
                raise BadMediaError(str(path), f"not one frame can be decoded ({remark})" if remark else "no frames")
            yield replace(ready, remark=remark)
    except TooSlowError as error:
        yield Problem(str(path), error.reason)
    except BadMediaError as error:
        yield Problem(str(path), error.reason) if ready is None else replace(ready, remark=error.reason)


def read_window(
    reader: FrameReader, span: tuple[float, float], per_window: int, aspect: float, max_side: int
) -> tuple[Window | None, bool]:
    """The window with the frames that are there, None without any; and whether none was missing."""
    start, end = span
    pictures: list[NDArray[np.uint8]] = []
    times: list[float] = []
    last: VideoFrame | None = None
    for part in range(per_window):
        time = start + (end - start) * (part + 0.5) / per_window
        frame = reader.at(time)
        if frame is None:
            if not pictures:
                return None, False
            return Window(start, min(end, max(reader.reached, start)), tuple(pictures), tuple(times)), False
        if frame is not last:
            pictures.append(upright(frame, reader.orientation, aspect, max_side))
            times.append(time)
            last = frame
    return Window(start, end, tuple(pictures), tuple(times)), True

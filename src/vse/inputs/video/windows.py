"""Cut a video into windows of frames, upright and evenly spaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, first_line
from vse.inputs.files import BadMediaError, Problem, TooSlowError
from vse.inputs.video.file import VideoLimits, open_clip
from vse.inputs.video.reader import FrameReader, Orientation

if TYPE_CHECKING:
    from av import VideoFrame


@dataclass(frozen=True)
class Window:
    """From ``start`` to ``end`` in seconds, with frames ``(H, W, 3)`` uint8 RGB, upright, in the order of time.

    ``times`` are the seconds of the clip at which the frames are seen.
    ``remark``, on the last window of a clip that could not be read to its end or in all its parts, says so.
    """

    start: float
    end: float
    frames: tuple[NDArray[np.uint8], ...]
    times: tuple[float, ...] = ()
    remark: str | None = None


def upright(frame: VideoFrame, orientation: Orientation, aspect: float, max_side: int) -> NDArray[np.uint8]:
    """``(H, W, 3)`` uint8 RGB: turned, no side above ``max_side``, with square pixels; they were ``aspect`` wide."""
    import av

    width, height = square(frame.width, frame.height, aspect)
    scale = min(1.0, max_side / max(width, height))
    try:
        pixels = frame.reformat(
            width=max(round(width * scale), 1),
            height=max(round(height * scale), 1),
            format="rgb24",
            interpolation="AREA" if scale < 1 else "BICUBIC",  # the second skips pixels when it reduces
        ).to_ndarray()
    except (av.FFmpegError, ValueError, MemoryError) as error:
        raise BadMediaError("frame", f"its frames cannot be converted ({first_line(error)})") from error
    return orientation.apply(cast("NDArray[np.uint8]", pixels))


def square(width: int, height: int, aspect: float) -> tuple[int, int]:
    """The size with square pixels: the width gives way, as in players."""
    return max(round(width * aspect), 1), height


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

"""Read a video as windows with some upright frames each, or as evenly spaced frames."""

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
from vse.inputs.video.file import VideoLimits, open_video
from vse.inputs.video.reader import FrameReader, Orientation

if TYPE_CHECKING:
    from av import VideoFrame


@dataclass(frozen=True)
class Window:
    """Part of a video.

    Attributes:
        start: In seconds.
        end: In seconds.
        frames: Upright frames ``(H, W, 3)`` uint8 RGB, in order.
        times: When they are shown, in seconds.
        remark: On the last window of a truncated or corrupt video: what could not be read.
    """

    start: float
    end: float
    frames: tuple[NDArray[np.uint8], ...]
    times: tuple[float, ...] = ()
    remark: str | None = None


def upright(frame: VideoFrame, orientation: Orientation, aspect: float, max_side: int) -> NDArray[np.uint8]:
    """Return a frame as ``(H, W, 3)`` uint8 RGB: upright, with square pixels, no side above ``max_side``."""
    import av

    width, height = square(frame.width, frame.height, aspect)
    scale = min(1.0, max_side / max(width, height))
    try:
        pixels = frame.reformat(
            width=max(round(width * scale), 1),
            height=max(round(height * scale), 1),
            format="rgb24",
            interpolation="AREA" if scale < 1 else "BICUBIC",  # bicubic aliases when it reduces
        ).to_ndarray()
    except (av.FFmpegError, ValueError, MemoryError) as error:
        raise BadMediaError("frame", f"its frames cannot be converted ({first_line(error)})") from error
    return orientation.apply(cast("NDArray[np.uint8]", pixels))


def square(width: int, height: int, aspect: float) -> tuple[int, int]:
    """Return the size with square pixels: the width changes, as in players."""
    return max(round(width * aspect), 1), height


WINDOW_SECONDS = 4.0
WINDOWS = 64
"""Maximum per video; a longer video has longer windows."""


def frames(
    path: str | Path,
    *,
    windows: int = WINDOWS,
    per_window: int = 8,
    seconds: float = WINDOW_SECONDS,
    limits: VideoLimits | None = None,
) -> Iterator[Window | Problem]:
    """Yield the windows of a video in order, or one :class:`Problem` if there are none.

    A video is cut into equal windows of about ``seconds``, a long one into ``windows`` longer ones. The frame in the
    middle of each of ``per_window`` equal parts is taken; a frame shown at several of these times appears once.

    Args:
        path: The video file.
        windows: Maximum number of windows.
        per_window: Maximum number of frames per window.
        seconds: Duration of a window.
        limits: What the file may cost.

    Yields:
        Windows; a problem after windows means that decoding exceeded ``limits.max_time`` and the video is incomplete.

    Raises:
        InputError: For invalid arguments.
    """
    for name, value in (("windows", windows), ("per_window", per_window)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    if not seconds > 0:
        raise InputError(f"seconds must be above 0, got {seconds!r}")
    return _frames(path, windows, per_window, seconds, limits or VideoLimits())


def spans(duration: float, seconds: float, windows: int) -> list[tuple[float, float]]:
    """Return equal windows that cover ``duration``, each as close to ``seconds`` as possible, at most ``windows``."""
    count = min(max(round(duration / seconds), 1), windows)
    edges = [duration * k / count for k in range(count + 1)]
    return list(pairwise(edges))


def _frames(
    path: str | Path, windows: int, per_window: int, seconds: float, limits: VideoLimits
) -> Iterator[Window | Problem]:
    ready: Window | None = None  # held back: the remark belongs to the last window
    try:
        with open_video(path, limits) as video, closing(FrameReader(video)) as reader:
            remark = None
            for start, end in spans(video.duration, seconds, windows):
                window, whole = read_window(reader, (start, end), per_window, video.aspect, limits.max_side)
                if window is not None:
                    if ready is not None:
                        with video.time.paused():
                            yield ready
                    ready = window
                if not whole:
                    remark = f"ends at {min(reader.reached, video.duration):.1f} s of {video.duration:.1f} s"
                    break
            remark = "; ".join(filter(None, (remark, reader.remark))) or None
            if ready is None:
                raise BadMediaError(str(path), f"no frame can be decoded ({remark})" if remark else "no frames")
            yield replace(ready, remark=remark)
    except TooSlowError as error:
        yield Problem(str(path), error.reason)
    except BadMediaError as error:
        yield Problem(str(path), error.reason) if ready is None else replace(ready, remark=error.reason)


def read_window(
    reader: FrameReader, span: tuple[float, float], per_window: int, aspect: float, max_side: int
) -> tuple[Window | None, bool]:
    """Return the window with its readable frames, None if there are none; and whether it is complete."""
    start, end = span
    images: list[NDArray[np.uint8]] = []
    times: list[float] = []
    last: VideoFrame | None = None
    for part in range(per_window):
        time = start + (end - start) * (part + 0.5) / per_window
        frame = reader.at(time)
        if frame is None:
            if not images:
                return None, False
            return Window(start, min(end, max(reader.reached, start)), tuple(images), tuple(times)), False
        if frame is not last:
            images.append(upright(frame, reader.orientation, aspect, max_side))
            times.append(time)
            last = frame
    return Window(start, end, tuple(images), tuple(times)), True


FRAMES = 20
MAX_FRAMES = 256
"""Of one video: all are held in memory, at up to ``VideoLimits.max_side``."""


@dataclass(frozen=True)
class EvenFrames:
    """Evenly spaced frames of a video.

    Attributes:
        frames: Upright frames ``(H, W, 3)`` uint8 RGB, in order.
        times: When they are shown, in seconds.
        remark: What could not be read; None if nothing.
    """

    frames: tuple[NDArray[np.uint8], ...]
    times: tuple[float, ...]
    remark: str | None = None


def even_frames_of(path: str | Path, count: int = FRAMES, *, limits: VideoLimits | None = None) -> EvenFrames:
    """Return the frames in the middle of ``count`` equal parts of a video.

    Args:
        path: The video file.
        count: Number of frames, from 1 to 256; a video of few frames has fewer.
        limits: What the file may cost.

    Returns:
        The frames; those of a truncated video are spaced over what is readable.

    Raises:
        BadMediaError: If no frame can be decoded.
        InputError: If ``count`` is invalid.
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
    """Reject a number of frames outside 1 to 256."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_FRAMES:
        raise InputError(f"{name} must be a whole number from 1 to {MAX_FRAMES}, got {value!r}")


def _spread(path: str | Path, found: Window, count: int, limits: VideoLimits) -> Window:
    """Read ``count`` frames up to the end of a truncated video; return ``found`` itself if it is complete."""
    try:
        with open_video(path, limits) as video:
            if found.end >= video.duration:
                return found
            with closing(FrameReader(video)) as reader:
                again, _ = read_window(reader, (0.0, found.end), count, video.aspect, limits.max_side)
    except BadMediaError:
        return found
    return replace(found, frames=again.frames, times=again.times) if again is not None else found

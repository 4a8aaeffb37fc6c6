"""A decoded frame as it is to be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from vse.errors import first_line
from vse.inputs.clips.orientation import Orientation
from vse.inputs.problem import BadMediaError

if TYPE_CHECKING:
    from av import VideoFrame


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

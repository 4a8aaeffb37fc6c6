"""How a clip's frames are to be turned: phones store them as the sensor lies."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av import VideoFrame


@dataclass(frozen=True)
class Orientation:
    """First ``transposed`` (rows become columns), then ``mirrored`` left to right, then ``flipped`` upside down."""

    transposed: bool = False
    mirrored: bool = False
    flipped: bool = False

    def size(self, width: int, height: int) -> tuple[int, int]:
        return (height, width) if self.transposed else (width, height)

    def apply(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """``(H, W, 3)`` as it is to be seen, contiguous."""
        if self.transposed:
            frame = frame.transpose(1, 0, 2)
        if self.mirrored:
            frame = frame[:, ::-1]
        return np.ascontiguousarray(frame[::-1] if self.flipped else frame)


def orientation_of(frame: VideoFrame) -> Orientation:
    """From the display matrix that comes with a frame; turns by other than right angles go to the nearest of them.

    The side data of a frame refers to the frame, which is then freed only by the garbage collector: hence a tiny copy.
    """
    import av

    try:
        side_data: Any = frame.reformat(width=16, height=16, interpolation="POINT").side_data
        matrix = struct.unpack("=9i", bytes(side_data["DISPLAYMATRIX"]))
    except (KeyError, ValueError, struct.error, av.FFmpegError):
        return Orientation()
    return orientation_of_matrix(matrix)


def orientation_of_matrix(matrix: tuple[int, ...]) -> Orientation:
    """Of ``a b u c d v x y w``: a point of the stored frame is seen at ``x' = a x + c y``, ``y' = b x + d y``."""
    a, b, _, c, d = matrix[:5]
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return Orientation(mirrored=a < 0, flipped=d < 0)
    return Orientation(transposed=True, mirrored=c < 0, flipped=b < 0)

"""The frames of a clip that are seen at given times."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import first_line
from vse.inputs.video.file import Clip

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


FIRST_JUMP = 1.0
"""Seconds ahead at which seeking is tried instead of decoding on; doubled where it did not help."""
HELD = 1.0
"""Seconds for which a last frame of unknown length may stand."""
SAME_TIME = 1e-6
"""Seconds that rounding may cost: a frame that begins at the time asked for is seen."""
MOST_DAMAGE = 100
"""Packets in a row that cannot be decoded, after which the rest is given up."""


class FrameReader:
    """Asked for ascending times, gives the frame seen at each: the last one that begins before or then.

    Frame rates may vary, since only time stamps count. ``orientation`` is that of the first frame, for all of them;
    ``remark`` says what was wrong on the way, None if nothing.
    """

    def __init__(self, clip: Clip) -> None:
        self.remark: str | None = None
        self._clip = clip
        self._base = float(clip.stream.time_base or 0)
        self._jump = FIRST_JUMP
        self._damaged = 0
        self._clock = 0.0
        self._given = False
        self._frames: Iterator[tuple[float, VideoFrame]] = self._decode()
        self._present: tuple[float, VideoFrame] | None = None
        self._ahead = next(self._frames, None)
        self.orientation = orientation_of(self._ahead[1]) if self._ahead is not None else Orientation()

    @property
    def reached(self) -> float:
        """The end, in seconds, of the frame that was given last."""
        if self._present is None:
            return 0.0
        begin, frame = self._present
        return begin + (frame.duration or 0) * self._base

    def at(self, time: float) -> VideoFrame | None:
        """The frame at ``time`` seconds after the first; None behind the last, of which at least one is given."""
        if self._ahead is not None and time - self._ahead[0] > self._jump:
            self._seek(time)
        while self._ahead is not None and self._ahead[0] <= time + SAME_TIME:
            self._step()
        if self._present is None:
            self._step()  # the first frame begins later than asked
        if self._present is None:
            return None
        begin, frame = self._present
        if self._given and self._ahead is None and time > max(self.reached, begin + HELD):
            return None
        self._given = True
        return frame

    def close(self) -> None:
        """Let go of the frames: reader and decoding refer to each other, and frames are too large to wait for the
        garbage collector."""
        self._frames, self._present, self._ahead = iter(()), None, None

    def _step(self) -> None:
        if self._ahead is not None:
            self._present, self._ahead = self._ahead, next(self._frames, None)

    def _seek(self, time: float) -> None:
        """Go to the last key frame before ``time``, or back to where we were if there is nothing to be read."""
        before = self._ahead[0] if self._ahead is not None else 0.0
        for target in (time, before):
            if not self._seek_to(target):
                self._jump = float("inf")
                return
            landed = next(self._frames, None)
            if landed is not None:
                if landed[0] <= before:
                    self._jump *= 2
                else:
                    self._present = None  # what was seen before the jump is not seen behind it
                self._ahead = landed
                return
            self._jump = float("inf")  # the index points behind the end of what is there: decode up to it

    def _seek_to(self, time: float) -> bool:
        import av

        clip = self._clip
        try:
            clip.container.seek(int((clip.start + time) / self._base), stream=clip.stream, backward=True)
        except (av.FFmpegError, ZeroDivisionError, OverflowError, ValueError):
            return False
        self._clock = time
        self._frames = self._decode()
        return True

    def _decode(self) -> Iterator[tuple[float, VideoFrame]]:
        """Frames with their times in the order of display, from the present position to the end of what is readable."""
        import av

        clip, damage = self._clip, 0
        packets = clip.container.demux(clip.stream)
        while True:
            clip.time.check()
            try:
                packet = next(packets, None)
            except av.FFmpegError as error:
                self.remark = f"the rest cannot be read ({error.strerror or first_line(error)})"
                return
            if packet is None:
                return
            try:
                decoded = packet.decode()
                damage = 0
            except av.FFmpegError:
                damage += 1
                self._damaged += 1
                self.remark = f"damaged parts left out: {self._damaged}"
                if damage > MOST_DAMAGE:
                    return
                continue
            for frame in decoded:
                yield self._time(frame), frame

    def _time(self, frame: VideoFrame) -> float:
        """Seconds since the first frame; a frame without time stamps follows the one before it at the usual rate."""
        stamp = frame.pts if frame.pts is not None else frame.dts
        if stamp is None:
            self._clock += 1 / float(self._clip.stream.average_rate or 25)
        else:
            self._clock = float(stamp * self._base) - self._clip.start
        return self._clock

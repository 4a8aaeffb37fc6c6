"""Read the frame of a video that is shown at a given time."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import first_line
from vse.inputs.cost import too_many_scans_of_packet
from vse.inputs.files import BadMediaError
from vse.inputs.video.file import VideoFile

if TYPE_CHECKING:
    from av import VideoFrame


@dataclass(frozen=True)
class Orientation:
    """How a stored frame is turned: ``transposed`` first, then ``mirrored`` left to right, then ``flipped``."""

    transposed: bool = False
    mirrored: bool = False
    flipped: bool = False

    def size(self, width: int, height: int) -> tuple[int, int]:
        return (height, width) if self.transposed else (width, height)

    def apply(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the upright frame ``(H, W, 3)``, contiguous."""
        if self.transposed:
            frame = frame.transpose(1, 0, 2)
        if self.mirrored:
            frame = frame[:, ::-1]
        return np.ascontiguousarray(frame[::-1] if self.flipped else frame)


def orientation_of(frame: VideoFrame) -> Orientation:
    """Return the orientation from a frame's display matrix, rounded to right angles.

    Side data holds a reference to its frame, which then only the garbage collector frees: hence a tiny copy.
    """
    import av

    try:
        side_data: Any = frame.reformat(width=16, height=16, interpolation="POINT").side_data
        matrix = struct.unpack("=9i", bytes(side_data["DISPLAYMATRIX"]))
    except (KeyError, ValueError, struct.error, av.FFmpegError):
        return Orientation()
    return orientation_of_matrix(matrix)


def orientation_of_matrix(matrix: tuple[int, ...]) -> Orientation:
    """Return the orientation of ``a b u c d v x y w``, which maps a point to ``x' = a x + c y``, ``y' = b x + d y``."""
    a, b, _, c, d = matrix[:5]
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return Orientation(mirrored=a < 0, flipped=d < 0)
    return Orientation(transposed=True, mirrored=c < 0, flipped=b < 0)


FIRST_JUMP = 1.0
"""Seconds ahead from which the reader seeks instead of decoding; doubled when seeking did not help."""
HELD = 1.0
"""Seconds for which a last frame of unknown duration is shown."""
SAME_TIME = 1e-6
"""Tolerance in seconds: a frame that begins at the requested time is shown."""
MAX_CORRUPT = 100
"""Consecutive packets that cannot be decoded before the reader gives up."""
MOTION_JPEG = frozenset({"mjpeg", "ljpeg", "jpegls", "amv", "mxpeg", "smvjpeg"})
"""Codecs whose packets FFmpeg's JPEG decoder reads as they are."""


class FrameReader:
    """Return the frame shown at each of ascending times: the last one that begins at or before it.

    Frame rates may vary, since only timestamps count.

    Attributes:
        orientation: Orientation of the first frame, used for all.
        remark: What went wrong while decoding; None if nothing.
    """

    def __init__(self, video: VideoFile) -> None:
        self.remark: str | None = None
        self._video = video
        self._base = float(video.stream.time_base or 0)
        self._jump = FIRST_JUMP
        self._corrupt = 0
        self._clock = 0.0
        self._given = False
        self._frames: Iterator[tuple[float, VideoFrame]] = self._decode()
        self._present: tuple[float, VideoFrame] | None = None
        self._ahead = next(self._frames, None)
        self.orientation = orientation_of(self._ahead[1]) if self._ahead is not None else Orientation()

    @property
    def reached(self) -> float:
        """End of the last returned frame, in seconds."""
        if self._present is None:
            return 0.0
        begin, frame = self._present
        return begin + (frame.duration or 0) * self._base

    def at(self, time: float) -> VideoFrame | None:
        """Return the frame at ``time`` seconds after the first; None after the end, but at least one frame in all."""
        if self._ahead is not None and time - self._ahead[0] > self._jump:
            self._seek(time)
        while self._ahead is not None and self._ahead[0] <= time + SAME_TIME:
            self._step()
        if self._present is None:
            self._step()  # the first frame begins later
        if self._present is None:
            return None
        begin, frame = self._present
        if self._given and self._ahead is None and time > max(self.reached, begin + HELD):
            return None
        self._given = True
        return frame

    def close(self) -> None:
        """Release the frames: they are too large to wait for the garbage collector, and there is a reference cycle."""
        self._frames, self._present, self._ahead = iter(()), None, None

    def _step(self) -> None:
        if self._ahead is not None:
            self._present, self._ahead = self._ahead, next(self._frames, None)

    def _seek(self, time: float) -> None:
        """Seek to the last key frame before ``time``, or back if nothing can be read there."""
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
                    self._present = None  # it is not shown after the jump
                self._ahead = landed
                return
            self._jump = float("inf")  # the index points past the end of a truncated file: decode instead

    def _seek_to(self, time: float) -> bool:
        import av

        video = self._video
        try:
            video.container.seek(int((video.start + time) / self._base), stream=video.stream, backward=True)
        except (av.FFmpegError, ZeroDivisionError, OverflowError, ValueError):
            return False
        self._clock = time
        self._frames = self._decode()
        return True

    def _decode(self) -> Iterator[tuple[float, VideoFrame]]:
        """Yield frames with their times in display order, from the current position to the end of readable data."""
        import av

        video, corrupt = self._video, 0
        packets = video.container.demux(video.stream)
        motion_jpeg = video.stream.codec_context.name in MOTION_JPEG
        while True:
            video.time.check()
            try:
                packet = next(packets, None)
            except av.FFmpegError as error:
                self.remark = f"the rest cannot be read ({error.strerror or first_line(error)})"
                return
            if packet is None:
                return
            if motion_jpeg:
                refused = too_many_scans_of_packet(bytes(packet))
                if refused is not None:
                    raise BadMediaError(video.container.name, f"a frame of {refused}")
            try:
                decoded = packet.decode()
                corrupt = 0
            except av.FFmpegError:
                corrupt += 1
                self._corrupt += 1
                self.remark = f"corrupt packets skipped: {self._corrupt}"
                if corrupt > MAX_CORRUPT:
                    return
                continue
            for frame in decoded:
                yield self._time(frame), frame

    def _time(self, frame: VideoFrame) -> float:
        """Return the seconds since the first frame; without timestamps, from the average frame rate."""
        stamp = frame.pts if frame.pts is not None else frame.dts
        if stamp is None:
            self._clock += 1 / float(self._video.stream.average_rate or 25)
        else:
            self._clock = float(stamp * self._base) - self._video.start
        return self._clock

"""Open a video file within limits, and read what is known without decoding it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vse._util.worker_process import reserve
from vse.errors import first_line
from vse.inputs.files import BadMediaError, TooSlowError, regular_size

if TYPE_CHECKING:
    from av import VideoStream
    from av.container import InputContainer
    from av.packet import Packet


@dataclass(frozen=True)
class VideoLimits:
    """What an untrusted video file may cost.

    Attributes:
        max_pixels: Of a stored frame, a little above 8K.
        max_duration: Of a video, in seconds.
        max_side: Longer side of the returned frames; larger ones are reduced, since a window of 4K frames would take
            200 MB.
        max_time: Seconds that decoding one video may take, excluding the time the caller works on its frames.
    """

    max_pixels: int = 36_000_000
    max_duration: float = 86_400.0
    max_side: int = 1024
    max_time: float = 600.0


class DecodingTime:
    """Count the seconds spent on decoding the video ``name``; the clock pauses within :meth:`paused`."""

    def __init__(self, name: str, allowed: float) -> None:
        self._name, self._allowed = name, allowed
        self._spent, self._since = 0.0, time.monotonic()

    def check(self) -> None:
        """Raise :class:`TooSlowError` on timeout."""
        if self._spent + time.monotonic() - self._since > self._allowed:
            raise TooSlowError(self._name, f"took longer than {self._allowed:g} s to decode")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time within the context: a model may take hours for the frames decoded so far."""
        self._spent += time.monotonic() - self._since
        try:
            yield
        finally:
            self._since = time.monotonic()


# Only the formats of the supported suffixes: libav also reads playlists, which would open further files.
_DEMUXERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,asf,flv,ogg,dv"
_EXPECTED = "mp4, mov, 3gp, webm, mkv, avi, mts, mpg, wmv, flv or ogv"
FRAME_BYTES = 32
"""Memory for a pixel of a stored frame: decoders keep up to 16 frames of 1.5 bytes, and some need more."""
_TIMEOUT = 30.0  # seconds, for slow disks


@dataclass(frozen=True)
class VideoFile:
    """An open video file.

    Attributes:
        container: The container, of PyAV.
        stream: Its video stream.
        start: Timestamp of the first frame, in seconds.
        duration: What the file announces, in seconds.
        aspect: Width of a pixel over its height.
        time: Time spent on decoding since it was opened.
    """

    container: InputContainer
    stream: VideoStream
    start: float
    duration: float
    aspect: float
    time: DecodingTime


@contextmanager
def open_video(path: str | Path, limits: VideoLimits) -> Iterator[VideoFile]:
    """Open a video file for the context; raise :class:`BadMediaError` if it is invalid or exceeds the limits."""
    import av

    name = str(path)
    time = DecodingTime(name, limits.max_time)
    if regular_size(path) == 0:
        raise BadMediaError(name, "empty")
    try:
        container = av.open(
            f"file:{Path(path).absolute()}",
            options={"max_pixels": str(limits.max_pixels)},
            container_options={"format_whitelist": _DEMUXERS, "protocol_whitelist": "file"},
            metadata_errors="replace",
            timeout=_TIMEOUT,
        )
    except (av.FFmpegError, OSError, ValueError) as error:
        raise BadMediaError(name, _why_closed(error)) from error
    with container:
        stream = _video_stream(container, name)
        pixels = stream.codec_context.width * stream.codec_context.height
        if pixels > limits.max_pixels:
            raise BadMediaError(name, f"frames of {pixels:,} pixels, at most {limits.max_pixels:,}")
        reserve(pixels * FRAME_BYTES)
        stream.codec_context.options = {"max_pixels": str(limits.max_pixels)}
        base = float(stream.time_base or 0)
        start = (stream.start_time or 0) * base
        duration = _announced(container, stream, start) or _measured(container, stream, start, time)
        if duration > limits.max_duration:
            raise BadMediaError(name, f"lasts {duration:,.0f} s, at most {limits.max_duration:,.0f} s")
        yield VideoFile(container, stream, start, duration, _aspect(stream), time)


def _why_closed(error: Exception) -> str:
    import av

    if isinstance(error, (av.InvalidDataError, av.EOFError, av.ArgumentError)):  # the last for unsupported formats
        return f"not a video, without frames, or truncated before its index: expected {_EXPECTED}"
    reason = getattr(error, "strerror", None) or first_line(error)
    return f"cannot be opened ({reason})"


def _video_stream(container: InputContainer, name: str) -> VideoStream:
    """Return the largest video stream that is not a cover image; the first of equals."""
    from av.stream import Disposition

    streams = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not streams:
        raise BadMediaError(name, "no video in it" if not container.streams.audio else "only sound in it")
    stream = max(streams, key=_pixels)
    if stream.codec_context is None:
        raise BadMediaError(name, "no decoder for its video")
    return stream


def _pixels(stream: VideoStream) -> int:
    context = stream.codec_context
    return 0 if context is None else context.width * context.height


def _aspect(stream: VideoStream) -> float:
    """Return the pixel aspect ratio; values outside 1:4 to 4:1 are treated as an error in the file."""
    ratio = float(stream.sample_aspect_ratio or 1)
    return ratio if 0.25 <= ratio <= 4 else 1.0


def _announced(container: InputContainer, stream: VideoStream, start: float) -> float | None:
    """Return the duration from stream, tag or container, in this order: sound may outlast the last frame.

    Tag and container of Matroska give the end, counted from zero however late the first frame is; mkvmerge, which
    writes statistics, and other formats give the time between.
    """
    if stream.duration is not None and stream.duration > 0 and stream.time_base:
        return float(stream.duration * stream.time_base)
    counted = any(name.startswith("_STATISTICS_WRITING_APP") for name in stream.metadata)
    from_zero = "matroska" in container.format.name and not counted
    seconds = _clock(stream.metadata.get("DURATION", ""))
    if seconds is not None:
        seconds -= start if from_zero else 0.0
    elif container.duration is not None:
        begin = 0 if from_zero else container.start_time or 0
        seconds = (begin + container.duration) / 1e6 - start
    return seconds if seconds is not None and seconds > 0 else None


def _clock(text: str) -> float | None:
    """Return ``01:02:03.5`` in seconds."""
    try:
        hours, minutes, seconds = (float(part) for part in text.split(":"))
    except ValueError:
        return None
    total = hours * 3600 + minutes * 60 + seconds
    return total if math.isfinite(total) and total > 0 else None


def _measured(container: InputContainer, stream: VideoStream, start: float, time: DecodingTime) -> float:
    """Return the end of the last packet, for recordings without a duration; nothing is decoded."""
    import av

    end, base = start, float(stream.time_base or 0)
    try:
        for packet in container.demux(stream):
            end = max(end, _end(packet) * base)
            time.check()
        container.seek(0)
    except av.FFmpegError:
        pass  # a corrupt tail: use what came before it
    return end - start


def _end(packet: Packet[VideoStream]) -> int:
    shown = packet.pts if packet.pts is not None else packet.dts
    return (shown or 0) + (packet.duration or 0)

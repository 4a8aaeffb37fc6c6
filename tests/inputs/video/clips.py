"""Small videos for tests, written with a real encoder; every frame carries its number."""

from __future__ import annotations

import threading
from fractions import Fraction

import av
import numpy as np

TICKS = 1000
"""Time stamps are in milliseconds."""
BITS = 12
ENCODING = {
    "libx264": {"bf": "2", "preset": "ultrafast", "crf": "18"},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "auto-alt-ref": "0", "crf": "20", "b": "0"},
    "mpeg4": {"qscale": "3"},
}


def scene(number, height=48, width=64):
    """A frame without symmetry: red top left, blue bottom left, the bits of ``number`` as 3 x 4 fields on the right."""
    picture = np.zeros((height, width, 3), np.uint8)
    picture[: height // 2, : width // 2] = (220, 30, 30)
    picture[height // 2 :, : width // 2] = (30, 30, 220)
    bits = (number >> np.arange(BITS) & 1).reshape(3, 4) * 255
    fields = bits.repeat(height // 3, axis=0).repeat(width // 8, axis=1)
    picture[:, width // 2 :] = fields[:, :, None]
    return picture


def number_of(frame):
    """The number that an upright frame carries."""
    height, width = frame.shape[0] // 3, frame.shape[1] // 8
    bits = [
        frame[height * row + height // 2, width * (column + 4) + width // 2].mean() > 127
        for row in range(3)
        for column in range(4)
    ]
    return sum(1 << k for k, bit in enumerate(bits) if bit)


def write_clip(
    path,
    times=None,
    *,
    seconds=2.0,
    rate=10,
    codec="libx264",
    gop=10,
    turn=None,
    options=None,
    metadata=None,
    size=(48, 64),
    aspect=None,
    sound=0.0,
    end=None,
    reordered=True,
    draw=scene,
):
    """A video whose frames begin at ``times`` (evenly at ``rate`` if not given); returns the times.

    ``draw`` gives the image of a frame's number, height and width; ``turn`` is called with the stream, to set its
    display matrix; ``end`` is the end of the last frame.
    ``reordered`` frames are stored in another order than they are seen; the writer of MP4 then counts the duration of
    a video with very uneven frames too short.
    """
    times = [k / rate for k in range(round(seconds * rate))] if times is None else list(times)
    with av.open(str(path), "w", options=options or {}) as container:
        container.metadata.update(metadata or {})
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        stream.gop_size = gop
        stream.options = ENCODING[codec] | ({} if reordered or codec != "libx264" else {"bf": "0"})
        base = Fraction(1, TICKS)
        if codec != "mpeg4":  # which AVI stores by counting frames
            stream.time_base = stream.codec_context.time_base = base
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        if turn is not None:
            turn(stream)
        tone = container.add_stream("aac", rate=44100, layout="mono") if sound else None
        for number, time in enumerate(times):
            frame = av.VideoFrame.from_ndarray(draw(number, *size), format="rgb24")
            frame.pts, frame.time_base = round(time * TICKS), base
            following = times[number + 1] if number + 1 < len(times) else end
            if following is not None:
                frame.duration = round((following - time) * TICKS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if tone is not None:
            write_silence(container, tone, sound)
    return times


def write_silence(container, stream, seconds):
    """Some seconds without a sound."""
    for start in range(0, int(44100 * seconds), 1024):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 44100, start
        container.mux(stream.encode(frame))
    container.mux(stream.encode())


class Clock:
    """In place of the clock that the decoding of videos is held to; ``step`` seconds pass whenever it is looked at.

    Each thread has its own, so that one video takes as long however many are read beside it.
    """

    def __init__(self, monkeypatch, step=0.0):
        self.now, self._step = 0.0, step
        self._passed = threading.local()
        monkeypatch.setattr("vse.inputs.video.file.time", self)

    def monotonic(self):
        self._passed.seconds = getattr(self._passed, "seconds", 0.0) + self._step
        return self.now + self._passed.seconds

"""A video as a few frames: those seen at the middles of equal parts, whatever the file is like."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress

import av
import numpy as np
import pytest
from av.stream import Disposition
from tests.inputs.video.clips import Clock, number_of, scene, write_clip, write_silence

from vse.errors import InputError
from vse.inputs.files import BadMediaError
from vse.inputs.video.file import VideoLimits
from vse.inputs.video.windows import EvenFrames, even_frames_of

KINDS = {
    "clip.mp4": {},
    "clip.webm": {"codec": "libvpx-vp9"},
    "clip.avi": {"codec": "mpeg4"},
    "live.webm": {"codec": "libvpx-vp9", "options": {"live": "1"}},
}
FAST_START = {"options": {"movflags": "faststart"}}


def naive(times: list[float], duration: float, count: int) -> tuple[list[int], list[float]]:
    """Number by number: the last frame that has begun at the middle of each part, each once, and when it is seen."""
    numbers: list[int] = []
    seen: list[float] = []
    for part in range(count):
        middle = duration * (part + 0.5) / count
        number = max(bisect_right(times, middle + 1e-6) - 1, 0)
        if number not in numbers:
            numbers.append(number)
            seen.append(middle)
    return numbers, seen


def numbers_of(found: EvenFrames) -> list[int]:
    return [number_of(frame) for frame in found.frames]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("count", [1, 3, 20])
def test_even_frames_are_middles_of_equal_parts(tmp_path, name, count):
    """Of every container: uint8 frames of the right times, in order, and nothing to remark."""
    times = write_clip(tmp_path / name, seconds=6, **KINDS[name])
    found = even_frames_of(tmp_path / name, count)
    numbers, seen = naive(times, 6, count)
    assert numbers_of(found) == numbers
    assert found.times == pytest.approx(seen)
    assert found.remark is None
    assert all(frame.dtype == np.uint8 and frame.shape == (48, 64, 3) for frame in found.frames)


@pytest.mark.parametrize("name", ["clip.mp4", "clip.webm"])
def test_even_frames_of_variable_rate_video(tmp_path, name):
    """Time counts and not the number of a frame; one that stays is given once, so that there are fewer."""
    times = [0, 0.04, 0.08, 0.12, 1.5, 1.6, 4.0, 4.5, 4.52, 7.9]
    write_clip(tmp_path / name, times, gop=4, end=8.0, reordered=False, **KINDS[name])
    found = even_frames_of(tmp_path / name)
    assert numbers_of(found) == naive(times, 8, 20)[0]
    assert len(found.frames) < 20
    assert found.remark is None


def test_even_frames_of_video_with_few_frames(tmp_path):
    """Three frames are three, a single one is one."""
    for count in (3, 1):
        write_clip(tmp_path / "clip.mp4", [k / 10 for k in range(count)])
        assert numbers_of(even_frames_of(tmp_path / "clip.mp4")) == list(range(count))


def test_even_frames_are_upright(tmp_path):
    """What a phone stored lying comes upright."""
    write_clip(tmp_path / "clip.mp4", [0.0], turn=lambda stream: stream.set_display_rotation(90))
    (frame,) = even_frames_of(tmp_path / "clip.mp4", 4).frames
    expected = np.rot90(scene(0))
    assert frame.shape == expected.shape
    assert np.abs(frame.astype(int) - expected).mean() < 12


@pytest.mark.parametrize("share", [25, 55, 80])
@pytest.mark.parametrize("name", ["clip.mp4", "clip.webm"])
def test_even_frames_of_truncated_video(tmp_path, name, share):
    """Of a video that ends before its time there are as many frames as it has, spread over them, with a remark."""
    path = tmp_path / name
    write_clip(path, seconds=24, **(FAST_START if name == "clip.mp4" else KINDS[name]))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * share // 100])
    found = even_frames_of(path, 8)
    numbers = numbers_of(found)
    assert "of 24.0 s" in found.remark
    there = frames_in(path)
    assert len(numbers) == min(8, there)
    gaps = np.diff(numbers)
    assert gaps.max() - gaps.min() <= 1
    assert numbers[0] <= gaps.max()  # half a part from the beginning, and from the end:
    assert 0 <= there - 1 - numbers[-1] <= gaps.max()


def frames_in(path) -> int:
    """All that can be decoded, one after the other."""
    count = 0
    with av.open(str(path)) as container, suppress(av.FFmpegError):
        for packet in container.demux(video=0):
            with suppress(av.FFmpegError):
                count += len(packet.decode())
    return count


def write_song(path, cover: bool) -> None:
    with av.open(str(path), "w") as container:
        sound = container.add_stream("aac", rate=44100, layout="mono")
        if cover:
            picture = container.add_stream("mjpeg", rate=1)
            picture.width, picture.height, picture.pix_fmt = 64, 48, "yuvj420p"
            picture.disposition = Disposition.attached_pic
            container.mux(picture.encode(av.VideoFrame.from_ndarray(scene(0), format="rgb24")))
            container.mux(picture.encode())
        write_silence(container, sound, 1.0)


def write_without_frames(path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        container.start_encoding()


def write_text(path) -> None:
    path.write_text("a dog runs\n" * 100)


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("song.mp4", lambda path: write_song(path, cover=False), "only sound in it"),
        ("cover.mp4", lambda path: write_song(path, cover=True), "only sound in it"),
        ("none.mkv", write_without_frames, "frame"),
        ("text.mp4", write_text, "not a video"),
        ("zero.mp4", lambda path: path.write_bytes(b""), "empty"),
        ("gone.mp4", lambda path: None, "no such file"),
        ("folder.mp4", lambda path: path.mkdir(), "not a regular file"),
    ],
)
def test_even_frames_refuse_file_without_frames(tmp_path, name, write, reason):
    """Whatever has no frames raises one line with the file and the reason."""
    write(tmp_path / name)
    with pytest.raises(BadMediaError, match=reason) as caught:
        even_frames_of(tmp_path / name)
    assert caught.value.name == str(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_even_frames_respect_limits(tmp_path, monkeypatch):
    """Frames are reduced to the largest side; too many pixels, and too much time, are refused."""
    write_clip(tmp_path / "clip.mp4", seconds=1, size=(96, 128))
    found = even_frames_of(tmp_path / "clip.mp4", 2, limits=VideoLimits(max_side=64))
    assert found.frames[0].shape == (48, 64, 3)
    with pytest.raises(BadMediaError, match="pixels"):
        even_frames_of(tmp_path / "clip.mp4", limits=VideoLimits(max_pixels=1000))
    Clock(monkeypatch, step=1.0)
    with pytest.raises(BadMediaError, match="took longer than 5 s"):
        even_frames_of(tmp_path / "clip.mp4", limits=VideoLimits(max_time=5))


@pytest.mark.parametrize("count", [0, -1, 257, True, 2.5, "3"])
def test_even_frames_refuse_invalid_count(tmp_path, count):
    """Refused before the file is looked at."""
    with pytest.raises(InputError, match="count must be a whole number from 1 to 256"):
        even_frames_of(tmp_path / "gone.mp4", count)

"""Videos become windows of frames: the right frames, upright, for any container and any rate."""

from __future__ import annotations

import gc
import struct
from bisect import bisect_right
from fractions import Fraction

import av
import numpy as np
import pytest
from tests.inputs.video.clips import number_of, scene, write_clip

from vse.errors import InputError
from vse.index.scan import Problem, VideoLimits, Window, frames
from vse.inputs.video.windows import spans

KINDS = {
    "clip.mp4": {},
    "clip.mov": {},
    "clip.m4v": {},
    "clip.mkv": {},
    "clip.webm": {"codec": "libvpx-vp9"},
    "clip.avi": {"codec": "mpeg4"},
    "clip.3gp": {},
    "clip.mts": {},
    "clip.m2ts": {},
    "fragments.mp4": {"options": {"movflags": "frag_keyframe+empty_moov"}},
    "live.webm": {"codec": "libvpx-vp9", "options": {"live": "1"}},
}


def windows_of(path, **options):
    found = list(frames(path, **options))
    assert all(isinstance(window, Window) for window in found), found
    return found


def seen(times, start, end, per_window):
    """The naive rule: at the middle of each part, the last frame that has begun; repetitions once."""
    numbers = []
    for part in range(per_window):
        middle = start + (end - start) * (part + 0.5) / per_window
        number = max(bisect_right(times, middle + 1e-6) - 1, 0)
        if not numbers or numbers[-1] != number:
            numbers.append(number)
    return numbers


@pytest.mark.parametrize("name", KINDS)
def test_windows_cover_video_in_every_container(tmp_path, name):
    """The windows cover the video, and each holds the frames seen at the middles of its parts."""
    times = write_clip(tmp_path / name, seconds=6, **KINDS[name])
    found = windows_of(tmp_path / name, per_window=5, seconds=2.0)
    assert [time for window in found for time in (window.start, window.end)] == pytest.approx([0, 2, 2, 4, 4, 6])
    for window in found:
        assert [number_of(frame) for frame in window.frames] == seen(times, window.start, window.end, 5)
        assert all(frame.shape == (48, 64, 3) and frame.dtype == np.uint8 for frame in window.frames)
        assert window.remark is None


@pytest.mark.parametrize("name", ["clip.mp4", "clip.webm", "clip.mkv"])
@pytest.mark.parametrize("gop", [5, 40, 1000])
def test_seeking_finds_what_decoding_would(tmp_path, name, gop):
    """A long video is read in jumps; the frames are the same as those of the naive rule, however far key frames lie."""
    times = write_clip(tmp_path / name, seconds=40, gop=gop, **KINDS[name])
    found = windows_of(tmp_path / name, windows=3, per_window=4)
    assert len(found) == 3
    for window in found:
        assert [number_of(frame) for frame in window.frames] == seen(times, window.start, window.end, 4)


@pytest.mark.parametrize("name", ["clip.mp4", "clip.webm", "clip.mkv"])
def test_windows_of_variable_rate_video(tmp_path, name):
    """Bursts and long still frames: time stamps count, not frame numbers; a frame that stays is given once."""
    times = [0, 0.04, 0.08, 0.12, 1.5, 1.6, 1.7, 4.0, 4.5, 4.52, 4.54, 7.9]
    write_clip(tmp_path / name, times, gop=4, end=8.0, reordered=False, **KINDS[name])
    found = windows_of(tmp_path / name, per_window=8)
    assert len(found) == 2
    for window in found:
        assert [number_of(frame) for frame in window.frames] == seen(times, window.start, window.end, 8)


@pytest.mark.parametrize("angle", [0, 90, -90, 180])
@pytest.mark.parametrize("mirror", [None, "hflip", "vflip"])
@pytest.mark.parametrize("name", ["turned.mp4", "turned.mkv"])
def test_windows_are_upright(tmp_path, name, angle, mirror):
    """What is stored lying or mirrored is handed out as it is to be seen, in all eight ways.

    The writer's angles count against the clock, and it mirrors afterwards.
    """
    flips = {mirror: True} if mirror else {}
    write_clip(tmp_path / name, [0.0], turn=lambda stream: stream.set_display_rotation(angle, **flips))
    expected = np.rot90(scene(0), angle // 90)
    expected = {None: expected, "hflip": expected[:, ::-1], "vflip": expected[::-1]}[mirror]
    frame = windows_of(tmp_path / name, per_window=1)[0].frames[0]
    assert frame.shape == expected.shape
    assert np.abs(frame.astype(int) - expected).mean() < 12


def test_windows_have_square_pixels(tmp_path):
    """The width is stretched to what a player shows."""
    write_clip(tmp_path / "wide.mp4", seconds=1, aspect=Fraction(4, 3))
    assert windows_of(tmp_path / "wide.mp4")[0].frames[0].shape == (48, 85, 3)


def test_large_frames_are_reduced(tmp_path):
    """No side above the limit, the proportions kept, the image the same."""
    write_clip(tmp_path / "large.mp4", seconds=1, size=(480, 640))
    frame = windows_of(tmp_path / "large.mp4", limits=VideoLimits(max_side=64))[0].frames[0]
    assert frame.shape == (48, 64, 3)
    assert np.abs(frame.astype(int) - scene(0)).mean() < 12


def test_window_frames_are_rgb(tmp_path):
    """RGB in this order: red top left, blue below."""
    write_clip(tmp_path / "clip.mp4", seconds=1)
    frame = windows_of(tmp_path / "clip.mp4")[0].frames[0].astype(int)
    assert np.abs(frame[12, 12] - (220, 30, 30)).max() < 30
    assert np.abs(frame[36, 12] - (30, 30, 220)).max() < 30


def test_windows_of_video_with_sound(tmp_path):
    """Sound that lasts longer adds no windows without frames."""
    write_clip(tmp_path / "clip.mp4", seconds=2, sound=12.0)
    found = windows_of(tmp_path / "clip.mp4")
    assert found[-1].end == pytest.approx(2, abs=0.11)
    assert found[-1].remark is None


def test_single_frame_video_has_one_window(tmp_path):
    """A video of a single frame has one window with one frame."""
    write_clip(tmp_path / "clip.mp4", [0.0])
    found = windows_of(tmp_path / "clip.mp4")
    assert len(found) == 1
    assert [number_of(frame) for frame in found[0].frames] == [0]


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mov", "clip.mkv", "clip.webm", "live.webm"])
@pytest.mark.parametrize("late", [7, 100])
def test_window_times_count_from_first_frame(tmp_path, name, late):
    """Times count from the first frame, whatever its time stamp is, and so does the duration."""
    times = write_clip(tmp_path / name, [late + k / 10 for k in range(40)], **KINDS[name])
    found = windows_of(tmp_path / name, seconds=2.0)
    assert [window.end for window in found] == pytest.approx([2, 4])
    assert [window.remark for window in found] == [None, None]
    shifted = [time - late for time in times]
    for window in found:
        assert [number_of(frame) for frame in window.frames] == seen(shifted, window.start, window.end, 8)


@pytest.mark.parametrize("tag", [b"DURATION", b"DURATIOM"])
@pytest.mark.parametrize("mkvmerge", [False, True])
def test_a_late_beginning_in_matroska(tmp_path, tag, mkvmerge):
    """With the tag and without: mostly the end is written, but mkvmerge writes the time from first to last frame."""
    path = tmp_path / "clip.mkv"
    changes = [(b"DURATION", tag)]
    if mkvmerge:
        changes += [(b"00:00:27.000000000", b"00:00:20.000000000"), (struct.pack(">d", 27e3), struct.pack(">d", 20e3))]
    statistics = {"_STATISTICS_WRITING_APP": "mkvmerge"} if mkvmerge else {}
    write_clip(path, [7 + k / 10 for k in range(200)], turn=lambda stream: stream.metadata.update(statistics))
    content = path.read_bytes()
    for old, new in changes:
        assert content.count(old) == 1
        content = content.replace(old, new)
    path.write_bytes(content)
    found = windows_of(path)
    assert found[-1].end == pytest.approx(20)
    assert found[-1].remark is None
    assert number_of(found[-1].frames[-1]) > 190


def test_the_number_of_windows():
    """About so many seconds each, never none, never above the bound, equal and without gaps."""
    assert spans(0.5, 4, 64) == [(0, 0.5)]
    assert spans(0.0, 4, 64) == [(0, 0)]
    assert spans(12, 4, 64) == [(0, 4), (4, 8), (8, 12)]
    assert [end - start for start, end in spans(7200, 4, 10)] == pytest.approx([720] * 10)
    assert len(spans(14.1, 4, 64)) == 4


@pytest.mark.parametrize("options", [{"windows": 0}, {"per_window": -1}, {"windows": 1.5}, {"seconds": 0}])
def test_windows_refuse_invalid_options_at_once(tmp_path, options):
    """Refused at once, before the first window is asked for."""
    with pytest.raises(InputError, match=next(iter(options))):
        frames(tmp_path / "clip.mp4", **options)


def test_window_frames_are_freed_without_collector(tmp_path):
    """Decoded frames go when their windows go, without waiting for the garbage collector: they are large."""
    write_clip(tmp_path / "clip.mp4", seconds=16, turn=lambda stream: stream.set_display_rotation(90))
    gc.collect()
    gc.disable()
    try:
        for _ in frames(tmp_path / "clip.mp4", per_window=4):
            pass
        left = [kept for kept in gc.get_objects() if isinstance(kept, av.VideoFrame) and kept.width > 16]
    finally:
        gc.enable()
    assert left == []


def test_a_clip_can_be_left_early(tmp_path):
    """Whoever stops after the first window leaves no open file behind."""
    write_clip(tmp_path / "clip.mp4", seconds=12)
    reading = frames(tmp_path / "clip.mp4")
    assert isinstance(next(reading), Window)
    reading.close()
    assert not isinstance(next(frames(tmp_path / "clip.mp4")), Problem)

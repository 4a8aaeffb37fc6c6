"""Corrupt, hostile and non-video files give what can be read, or one problem with a reason."""

from __future__ import annotations

import os

import av
import pytest
from av.stream import Disposition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.inputs.video.clips import Clock, number_of, scene, write_clip, write_silence

from vse.index.scan import Found, Problem, ScanLimits, VideoLimits, Window, describe, frames

MP4_START = b"\0\0\0\x18ftypisom\0\0\0\0isomiso2"
FAST_START = {"options": {"movflags": "faststart"}}
CUT = {"clip.mp4": FAST_START, "clip.webm": {"codec": "libvpx-vp9"}, "clip.mkv": {}, "clip.avi": {"codec": "mpeg4"}}


def found_at(path, kind="video"):
    return Found(path.name, path.stat().st_size, path.stat().st_mtime_ns, kind)


def problem_of(path, **options):
    """Return the single problem that ``frames`` yields."""
    found = list(frames(path, **options))
    assert len(found) == 1
    assert isinstance(found[0], Problem)
    assert "\n" not in str(found[0])
    return found[0]


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("windows", [64, 3])
def test_truncated_video_gives_windows_before_the_cut(tmp_path, capfd, name, windows):
    """Windows before the cut are returned, the last remarks where the video ends, and nothing is printed.

    With few windows the reader seeks, even past the cut, and has to recover.
    """
    path = tmp_path / name
    write_clip(path, seconds=24, **CUT[name])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 55 // 100])
    found = list(frames(path, windows=windows, per_window=4))
    assert all(isinstance(window, Window) for window in found)
    assert 9 < found[-1].end < 17
    assert found[-1].remark
    if name != "clip.avi":  # libav computes its duration from the remaining data
        assert "of 24.0 s" in found[-1].remark
    assert [window.remark for window in found[:-1]] == [None] * (len(found) - 1)
    numbers = [number_of(frame) for window in found for frame in window.frames]
    assert numbers == sorted(numbers)
    assert numbers[-1] > 80
    assert not isinstance(describe(found_at(path), tmp_path), Problem)
    assert capfd.readouterr() == ("", "")


def test_cut_behind_the_first_frames(tmp_path):
    """A video truncated early gives one window with what there is."""
    path = tmp_path / "clip.mp4"
    write_clip(path, seconds=60, gop=600, **FAST_START)
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"mdat") + 1200])
    (window,) = frames(path, windows=1, per_window=2)
    assert number_of(window.frames[0]) < 10
    assert "of 60.0 s" in window.remark


def test_cut_before_the_index(tmp_path):
    """An MP4 with its index at the end cannot be read without it."""
    path = tmp_path / "clip.mp4"
    write_clip(path, seconds=4)
    path.write_bytes(path.read_bytes()[:-500])
    assert "truncated before its index" in problem_of(path).reason
    assert "truncated before its index" in describe(found_at(path), tmp_path).reason


def test_damage_in_the_middle(tmp_path):
    """Noise within a video leaves the other windows intact."""
    path = tmp_path / "clip.mp4"
    write_clip(path, seconds=16, gop=5)
    content = bytearray(path.read_bytes())
    middle = len(content) * 45 // 100
    content[middle : middle + len(content) // 20] = os.urandom(len(content) // 20)
    path.write_bytes(content)
    found = list(frames(path, per_window=4))
    assert all(isinstance(window, Window) for window in found)
    assert len(found) == 4
    assert [number_of(frame) for frame in found[0].frames] == [5, 15, 25, 35]
    assert [number_of(frame) for frame in found[-1].frames] == [125, 135, 145, 155]


@pytest.mark.parametrize("cover", [False, True])
def test_audio_file_is_not_a_video(tmp_path, cover):
    """Audio is not a video, even with a cover image."""
    with av.open(str(tmp_path / "song.mp4"), "w") as container:
        sound = container.add_stream("aac", rate=44100, layout="mono")
        if cover:
            picture = container.add_stream("mjpeg", rate=1)
            picture.width, picture.height, picture.pix_fmt = 64, 48, "yuvj420p"
            picture.disposition = Disposition.attached_pic
            container.mux(picture.encode(av.VideoFrame.from_ndarray(scene(0), format="rgb24")))
            container.mux(picture.encode())
        write_silence(container, sound, 1.0)
    assert problem_of(tmp_path / "song.mp4").reason == "only sound in it"
    assert describe(found_at(tmp_path / "song.mp4"), tmp_path).reason == "only sound in it"


def test_video_stream_without_frames(tmp_path):
    with av.open(str(tmp_path / "none.mkv"), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        container.start_encoding()
    assert "frame" in problem_of(tmp_path / "none.mkv").reason
    assert "frame" in describe(found_at(tmp_path / "none.mkv"), tmp_path).reason


@pytest.mark.parametrize("content", [b"", b"hello, this is text", b"\0" * 5000, MP4_START, b"RIFF\0\0\0\0AVI LIST"])
def test_other_content_is_not_read_as_video(tmp_path, content):
    """Empty files, text, zeros, and headers without content."""
    path = tmp_path / "clip.mp4"
    path.write_bytes(content)
    assert problem_of(path).reason
    assert isinstance(describe(found_at(path), tmp_path), Problem)


@pytest.mark.parametrize(
    "content",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{other}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile {name}\n",
    ],
)
def test_play_lists_are_not_followed(tmp_path, content):
    """A playlist does not make libav open another file."""
    write_clip(tmp_path / "other.mp4", seconds=2)
    path = tmp_path / "list.mp4"
    path.write_text(content.format(other=tmp_path / "other.mp4", name="other.mp4"))
    assert "not a video" in problem_of(path).reason


def test_missing_video_folder_and_pipe_are_problems(tmp_path):
    """A missing file, a folder and a pipe are problems, and reading never blocks on a pipe."""
    os.mkfifo(tmp_path / "pipe.mp4")
    assert problem_of(tmp_path / "none.mp4").reason == "no such file"
    assert problem_of(tmp_path).reason == "not a regular file"
    assert problem_of(tmp_path / "pipe.mp4").reason == "not a regular file"
    assert "null character" in problem_of("clip\0.mp4").reason


def test_names_that_look_like_addresses(tmp_path, monkeypatch):
    """Protocols, patterns, options and line breaks in a name have no effect."""
    monkeypatch.chdir(tmp_path)
    write_clip("plain.mp4", seconds=1)
    for name in ("http:x.mp4", "concat:a|b.mp4", "%03d.mp4", "-i.mp4", "two\nlines.mp4", "Ünï 日本.mp4", "a?b=c#d.mp4"):
        os.rename("plain.mp4", name)  # noqa: PTH104 - Path would normalise some of these names
        assert isinstance(next(frames(name)), Window)
        os.rename(name, "plain.mp4")  # noqa: PTH104


def test_video_limits(tmp_path):
    """Limits on pixels, duration and decoding time are enforced, by ``describe`` too."""
    path = tmp_path / "clip.mp4"
    write_clip(path, seconds=8)
    assert "3,072 pixels, at most 3,071" in problem_of(path, limits=VideoLimits(max_pixels=3071)).reason
    assert isinstance(next(frames(path, limits=VideoLimits(max_pixels=3072))), Window)
    assert "lasts 8 s, at most 7 s" in problem_of(path, limits=VideoLimits(max_duration=7)).reason
    limits = ScanLimits(video=VideoLimits(max_duration=7))
    assert "lasts 8 s" in describe(found_at(path), tmp_path, limits=limits).reason
    assert problem_of(path, limits=VideoLimits(max_time=0)).reason == "took longer than 0 s to decode"
    limits = ScanLimits(video=VideoLimits(max_time=0))
    assert describe(found_at(path), tmp_path, limits=limits).reason == "took longer than 0 s to decode"


def test_the_time_of_the_caller_does_not_count(tmp_path, monkeypatch):
    """A slow consumer does not trigger the decoding timeout."""
    write_clip(tmp_path / "clip.mp4", seconds=40)
    clock = Clock(monkeypatch)
    found = []
    for window in frames(tmp_path / "clip.mp4", limits=VideoLimits(max_time=600)):
        clock.now += 10_000
        found.append(window)
    assert len(found) == 10
    assert all(isinstance(window, Window) and window.remark is None for window in found)


@pytest.mark.parametrize("name", ["clip.mp4", "live.webm"])
def test_a_clip_that_takes_too_long(tmp_path, monkeypatch, name):
    """On a timeout the last element is a problem, so that earlier windows are not mistaken for the whole video.

    The second video has no duration; measuring it counts against the timeout too.
    """
    live = {"codec": "libvpx-vp9", "options": {"live": "1"}}
    write_clip(tmp_path / name, seconds=40, **(live if name == "live.webm" else {}))
    Clock(monkeypatch, step=1.0)  # per packet: there are 400, and a few more clock reads
    *windows, problem = frames(tmp_path / name, limits=VideoLimits(max_time=300))
    assert all(isinstance(window, Window) for window in windows)
    assert (0 < len(windows) < 10) if name == "clip.mp4" else not windows
    assert isinstance(problem, Problem)
    assert problem.reason == "took longer than 300 s to decode"
    whole = list(frames(tmp_path / name, limits=VideoLimits(max_time=2000)))
    assert len(whole) == 10
    assert all(isinstance(window, Window) for window in whole)


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    for name, options in CUT.items():
        write_clip(folder / name, seconds=2, **options)
    return {name: (folder / name).read_bytes() for name in CUT}


@pytest.mark.parametrize("name", CUT)
@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_corrupt_videos_give_windows_or_one_problem(contents, tmp_path, name, data):
    """Flipped, cut, inserted or removed bytes give windows or one problem, a file or a problem, and nothing else."""
    content = bytearray(contents[name])
    for _ in range(data.draw(st.integers(1, 8))):
        reach = data.draw(st.sampled_from([200, 2000, len(content)]))  # headers are the most fragile part
        position = data.draw(st.integers(0, max(min(reach, len(content)) - 1, 0)))
        change = data.draw(st.sampled_from(["flip", "cut", "insert", "remove"]))
        if change == "flip" and content:
            content[position] ^= data.draw(st.integers(1, 255))
        elif change == "cut":
            del content[position + 100 :]
        elif change == "insert":
            content[position:position] = data.draw(st.binary(max_size=8))
        else:
            del content[position : position + data.draw(st.integers(1, 8))]
    path = tmp_path / name
    path.write_bytes(content)
    limits = VideoLimits(max_pixels=1_000_000)
    found = list(frames(path, limits=limits))
    assert len(found) >= 1
    assert all(isinstance(window, Window) for window in found) or [type(one) for one in found] == [Problem]
    assert all(window.frames for window in found if isinstance(window, Window))
    describe(found_at(path), tmp_path, limits=ScanLimits(video=limits))

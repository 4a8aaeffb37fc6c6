"""Videos that cost much: one packet may be a whole attack."""

from __future__ import annotations

import pytest
from tests.hostile import images as hostile
from tests.index.pipeline.support import model, new_collection

from vse.index.pipeline import index_folder
from vse.inputs.decoding import decode_video, video_thumbnail
from vse.inputs.files import BadMediaError
from vse.inputs.preprocessing import imagenet
from vse.inputs.video.file import VideoLimits

SIDE = 256


@pytest.fixture
def video(tmp_path):
    """The path of a Matroska file."""
    path = tmp_path / "videos" / "a.mkv"
    path.parent.mkdir()
    return path


def test_motion_jpeg_of_many_scans_is_refused(video, tmp_path):
    """Frames, thumbnail and indexing refuse it with the reason; nothing of it is decoded.

    FFmpeg skips what comes before the image, and an end before it.
    """
    for before in (b"\0", b"\xff\xd8\xff\xd9", b""):
        hostile.write_motion_jpeg(video, [before + hostile.repeated_scans(3000, SIDE)], SIDE)
        with pytest.raises(BadMediaError, match="scans, at most"):
            decode_video(video, imagenet(64), 4)
    with pytest.raises(BadMediaError, match="scans, at most"):
        video_thumbnail(video, 0.0, 320, 80, VideoLimits())
    hostile.write_motion_jpeg(video.parent / "b.mkv", [hostile.photograph(n, SIDE) for n in range(10)], SIDE)
    with new_collection(tmp_path / "index.vse") as collection:
        report = index_folder(collection, model(), video.parent)
    assert (report.new, [problem.path for problem in report.problems]) == (1, ["a.mkv"])
    assert "scans, at most" in report.problems[0].reason


def test_video_is_killed_beyond_its_time(video):
    """The time of a video is over, whatever its decoder does."""
    hostile.write_motion_jpeg(video, [hostile.photograph(n, SIDE) for n in range(10)], SIDE)
    with pytest.raises(BadMediaError, match="took longer than 0 s"):
        decode_video(video, imagenet(64), 4, limits=VideoLimits(max_time=0))

"""Moments: the indexed frames are read again, and their shares sum to the score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.examples import directions
from tests.inputs.video.clips import number_of, write_clip
from tests.support_models import SIZE, build, grid_config

from vse.errors import InputError
from vse.index.evidence import frame_evidence, moment_frames, shares
from vse.index.explanation import BAR, GAP, HEIGHT, LINE, timeline
from vse.index.pipeline.reading import FRAMES
from vse.index.scan import frames
from vse.inputs.video.windows import Window
from vse.models.encode import direction

QUERIES = directions(4, SIZE, seed=60)


@given(st.integers(1, 9), st.integers(0, 10_000))
def test_shares_add_up_to_the_score(count, seed):
    """For any unit embeddings and query, within 1e-6; each equals the formula computed in plain Python."""
    vectors, query = directions(count, SIZE, seed=seed), QUERIES[seed % 4]
    moment = direction(vectors)
    assert moment is not None
    found = shares(vectors, query)
    assert float(found.sum()) == pytest.approx(float(moment.astype(np.float64) @ query), abs=1e-6)
    mean = [sum(float(vector[d]) for vector in vectors) / count for d in range(SIZE)]
    length = sum(value * value for value in mean) ** 0.5
    for share, vector in zip(found, vectors, strict=True):
        product = sum(float(a) * float(b) for a, b in zip(vector, query, strict=True))
        assert share == pytest.approx(product / count / length, abs=1e-6)


def test_frames_without_a_common_direction_are_an_error():
    with pytest.raises(InputError, match="cancel"):
        shares(np.concatenate([QUERIES[:1], -QUERIES[:1]]), QUERIES[1])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.mp4", {"seconds": 13.0, "rate": 10}),
        ("a.mkv", {"seconds": 13.0, "rate": 10, "gop": 50}),
        ("a.webm", {"seconds": 9.0, "rate": 10, "codec": "libvpx-vp9"}),
        ("slow.mp4", {"times": [0.0, 1.0, 5.0, 5.2, 11.0], "end": 12.0, "reordered": False}),
        ("one.mp4", {"times": [0.0], "end": 0.5}),
        ("long.mp4", {"seconds": 300.0, "rate": 1}),  # more than 64 windows of four seconds
    ],
)
def test_the_frames_are_those_that_were_indexed(tmp_path, name, options):
    """Every window has the same frames as when it was indexed, with ascending times within the window."""
    write_clip(tmp_path / name, **options)
    for window in frames(tmp_path / name, per_window=FRAMES):
        found = moment_frames(tmp_path / name, window.start)
        assert [number_of(each) for each in found.frames] == [number_of(each) for each in window.frames]
        for ours, theirs in zip(found.frames, window.frames, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert list(found.times) == sorted(set(found.times))
        assert window.start <= found.times[0]
        assert found.times[-1] <= window.end


def test_moment_frames_of_truncated_video(tmp_path):
    """The last window of a truncated video has the frames that were indexed."""
    write_clip(tmp_path / "a.mkv", seconds=12.0, rate=5)
    content = (tmp_path / "a.mkv").read_bytes()
    (tmp_path / "a.mkv").write_bytes(content[: len(content) * 3 // 5])
    *_, last = frames(tmp_path / "a.mkv", per_window=FRAMES)
    found = moment_frames(tmp_path / "a.mkv", last.start)
    assert [number_of(each) for each in found.frames] == [number_of(each) for each in last.frames]


def test_the_seconds_are_those_of_the_frames(tmp_path):
    """A repeated frame is returned once, with the first time at which it was sampled."""
    write_clip(tmp_path / "a.mkv", times=[0.0, 1.2, 3.0, 3.9])
    found = moment_frames(tmp_path / "a.mkv", 0.0)
    assert [number_of(each) for each in found.frames] == [0, 1, 2]
    assert found.times == pytest.approx([0.25, 1.25, 3.25])


def test_moment_evidence_refuses_invalid_moment(tmp_path):
    """A wrong start, a file that is not a video, a feature model, and a query of another model."""
    write_clip(tmp_path / "a.mp4", seconds=8.0)
    (tmp_path / "no.mp4").write_bytes(b"no clip")
    with pytest.raises(InputError, match=r"begins at 1\.500 s"):
        moment_frames(tmp_path / "a.mp4", 1.5)
    with pytest.raises(InputError, match="not a video"):
        moment_frames(tmp_path / "no.mp4", 0.0)
    found = moment_frames(tmp_path / "a.mp4", 0.0)
    with pytest.raises(InputError, match="sets of features"):
        frame_evidence(build(), found, QUERIES[0])
    with pytest.raises(InputError, match=r"\(5,\)"):
        frame_evidence(build(grid_config()), found, QUERIES[0][:5])


class TestTimeline:
    """The image of a moment."""

    FRAMES = Window(0, 62, tuple(np.full((90, 160, 3), 50 * n + 60, np.uint8) for n in range(3)), (0.25, 0.75, 61.0))
    SHARES = np.array([0.2, -0.1, 0.05], np.float32)

    def test_moment_evidence_draws_frames_and_bars(self):
        """Each frame in its column; red bars above the line and blue ones below, proportional to their shares."""
        drawn = timeline(self.FRAMES, self.SHARES).astype(int)
        width = (drawn.shape[1] - GAP) // 3
        ground = HEIGHT + GAP + 2 * LINE + GAP + BAR
        for column, share in enumerate(self.SHARES):
            middle = GAP + column * width + width // 2 - GAP
            assert (drawn[GAP + HEIGHT // 2, middle] == 50 * column + 60).all()
            line = drawn[HEIGHT + GAP + 2 * LINE + GAP :, middle]
            red, blue = ((line[:, a] > 150) & (line[:, b] < 60) for a, b in ((0, 2), (2, 0)))
            length = round(BAR * abs(float(share)) / 0.2)
            assert abs(int((red if share > 0 else blue).sum()) - length) <= 1
            assert not (blue if share > 0 else red).any()
        assert (drawn[ground] != 255).any(axis=1).all()  # the line is unbroken

    @pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [-0.1, -0.2, -0.3], [0.1, 0.2, 0.3]])
    def test_moment_evidence_of_any_signs(self, values):
        """All zero, all negative, all positive."""
        drawn = timeline(self.FRAMES, np.array(values, np.float32))
        assert drawn.dtype == np.uint8
        assert drawn.shape[2] == 3

    def test_long_and_tiny_frames(self):
        """A frame keeps its aspect ratio within its column."""
        for shape in ((1, 1, 3), (1000, 3, 3), (3, 1000, 3)):
            drawn = timeline(Window(0, 1, (np.zeros(shape, np.uint8),), (0.0,)), np.ones(1, np.float32))
            assert max(drawn.shape) <= 260

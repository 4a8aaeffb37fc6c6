"""Videos: one embedding per window, however reading is split into parts."""

from __future__ import annotations

import numpy as np
import pytest
from tests.index.pipeline.support import counts, ids_of, later, model, new_collection, save_picture
from tests.inputs.video.clips import Clock, write_clip

from vse.index.pipeline import index_folder
from vse.index.pipeline.reading import read_parts
from vse.index.scan import ScanLimits, VideoLimits, frames, walk


@pytest.fixture
def root(tmp_path):
    """A video of two windows, one of seven, and images between them."""
    folder = tmp_path / "media"
    save_picture(folder, "a.png", 1)
    write_clip(folder / "b.mp4", seconds=8.0, rate=5)
    save_picture(folder, "c.png", 2)
    write_clip(folder / "d.mkv", seconds=28.0, rate=5)
    save_picture(folder, "e.png", 3)
    return folder


@pytest.fixture
def collection(tmp_path):
    with new_collection(tmp_path / "index.vse") as made:
        yield made


def naive_moments(path):
    """Yield the windows of a video with the normalised mean of the embeddings of its frames."""
    for window in frames(path):
        mean = model().encode_images(list(window.frames)).astype(np.float64).mean(axis=0)
        yield window.start, window.end, mean / np.sqrt((mean**2).sum())


@pytest.mark.parametrize("batch_size", [1, 8, 32, 200])
def test_each_video_window_is_an_item(collection, root, batch_size):
    """Each window of a video is an item with its times and embedding, in chronological order."""
    report = index_folder(collection, model(), root, batch_size=batch_size)
    assert counts(report) == {"new": 5}
    ids = ids_of(collection)
    assert [len(ids[path]) for path in sorted(ids)] == [1, 2, 1, 7, 1]
    assert report.images == 3 + sum(len(window.frames) for name in ("b.mp4", "d.mkv") for window in frames(root / name))
    for name in ("b.mp4", "d.mkv"):
        expected = list(naive_moments(root / name))
        items = collection.items(ids[name])
        assert [(item.start, item.end) for item in items] == [(start, end) for start, end, _ in expected]
        np.testing.assert_allclose(collection.vectors(ids[name]), [vector for *_, vector in expected], atol=1e-5)
        assert items[0].file.duration == pytest.approx(items[-1].end, abs=0.5)
    np.testing.assert_allclose(collection.vectors(ids["c.png"]), model().encode_images([root / "c.png"]), atol=1e-5)


def test_a_moved_clip_keeps_its_ids(collection, root):
    """All moments of a moved video keep their ids."""
    index_folder(collection, model(), root)
    before = ids_of(collection)
    (root / "d.mkv").rename(root / "z.mkv")
    report = index_folder(collection, model(), root)
    assert counts(report) == {"moved": 1, "unchanged": 4}
    assert ids_of(collection)["z.mkv"] == before["d.mkv"]


def test_corrupt_videos_are_problems_or_partly_indexed(collection, root):
    """A file that is not a video is a problem; a truncated video is used as far as it goes, with a note."""
    (root / "no.mp4").write_bytes(b"no clip at all")
    whole = (root / "d.mkv").read_bytes()
    (root / "d.mkv").write_bytes(whole[: len(whole) * 2 // 3])
    report = index_folder(collection, model(), root)
    assert counts(report) == {"new": 5, "problems": 1}
    assert report.problems[0].path == "no.mp4"
    assert 0 < len(ids_of(collection)["d.mkv"]) < 7
    assert any(note.startswith("d.mkv: ") for note in report.notes)


class Interfering:
    """The tiny model, which changes a file's time on its first call."""

    def __init__(self, path):
        self._path = path

    def __getattr__(self, name):
        return getattr(model(), name)

    def embed_images(self, batch, lengths=None):
        if self._path is not None:
            later(self._path)
            self._path = None
        return model().embed_images(batch, lengths)


def test_a_clip_that_changes_while_it_is_read(collection, tmp_path):
    """Nothing of it is committed although parts were encoded; the next run indexes it completely."""
    root = tmp_path / "growing"
    root.mkdir()
    write_clip(root / "d.mkv", seconds=28.0, rate=5)
    report = index_folder(collection, Interfering(root / "d.mkv"), root, batch_size=8)
    assert counts(report) == {"problems": 1}
    assert "changed while it was read" in report.problems[0].reason
    assert collection.info().items == 0
    assert counts(index_folder(collection, model(), root)) == {"new": 1}
    assert collection.info().items == 7


def test_slow_consumer_gets_all_video_parts(root, monkeypatch):
    """Time between two parts, such as the model's, does not count against the decoding timeout."""
    clock, found = Clock(monkeypatch), next(each for each in walk(root) if each.path == "d.mkv")
    parts = []
    for part in read_parts(found, str(root), (), model().preprocessing, 1, ScanLimits()):
        clock.now += 3600
        parts.append(part)
    assert [part.last for part in parts] == [False] * 6 + [True]
    assert parts[-1].remark is None


def test_video_that_times_out_is_retried(collection, root):
    """On a timeout nothing of it is committed and its known state stays; the next run has another chance."""
    limits = ScanLimits(video=VideoLimits(max_time=0))
    report = index_folder(collection, model(), root, batch_size=8, limits=limits)
    assert counts(report) == {"new": 3, "problems": 2}
    assert str(report.problems[1]) == "d.mkv: took longer than 0 s to decode"
    assert counts(index_folder(collection, model(), root)) == {"new": 2, "unchanged": 3}
    before = ids_of(collection)
    assert len(before["d.mkv"]) == 7
    write_clip(root / "d.mkv", seconds=29.0, rate=5)
    assert counts(index_folder(collection, model(), root, limits=limits)) == {"unchanged": 4, "problems": 1}
    assert ids_of(collection) == before


def test_timeout_after_encoded_parts_is_a_problem(root, monkeypatch):
    """A video whose time is over between two parts ends with a problem, so that none of its parts is committed."""
    Clock(monkeypatch, step=1.0)
    found, limits = (
        next(each for each in walk(root) if each.path == "d.mkv"),
        ScanLimits(video=VideoLimits(max_time=100)),
    )
    *parts, last = read_parts(found, str(root), (), model().preprocessing, 1, limits)
    assert parts
    assert str(last) == "d.mkv: took longer than 100 s to decode"

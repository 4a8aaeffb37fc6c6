"""Contracts of frames packed into one file."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from tests.data.video_support import frames, write_hdf5

from vse.data.frames import ARRAY, INDEX, find_frames, open_packed, write_packed
from vse.data.video_sources import open_frames
from vse.errors import InputError

SIZES = {"a": 3, "b/c": 30, "d": 1}


@pytest.fixture
def source(tmp_path):
    stored = {name.replace("/", "_"): frames(count, seed=count) for name, count in SIZES.items()}
    return write_hdf5(tmp_path / "frames.hdf5", stored)


def packed(file, folder, limit=5):
    videos, _ = find_frames(open_frames(file), list(SIZES), limit)
    folder.mkdir(exist_ok=True)
    write_packed(videos, folder)
    return videos, open_packed(videos, folder)


def test_packed_frames_equal_source(source, tmp_path):
    """Names, sizes and frames; only those that are used are there, in the type they were stored in."""
    videos, found = packed(source, tmp_path / "packed")
    assert (found.ids, found.dim, found.sizes.tolist()) == (videos.ids, 4, [3, 5, 1])
    for number in range(len(videos)):
        np.testing.assert_array_equal(found[number], videos[number])
        assert found.stored(number).dtype == np.float16
    assert np.load(tmp_path / "packed" / ARRAY).shape == (9, 4)
    some = np.array([0, 4])
    np.testing.assert_array_equal(found.source.read("b_c", some), found[1][some])


def test_stale_packed_frames_are_not_used(source, tmp_path):
    """Another limit, other videos, a file that was rewritten, a broken index or a folder that is not there: None."""
    videos, _ = packed(source, tmp_path / "packed")
    assert open_packed(find_frames(open_frames(source), list(SIZES), 4)[0], tmp_path / "packed") is None
    assert open_packed(find_frames(open_frames(source), ["a"], 5)[0], tmp_path / "packed") is None
    assert open_packed(videos, tmp_path / "elsewhere") is None
    before = source.stat()
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 1000))
    assert open_packed(videos, tmp_path / "packed") is None
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert open_packed(videos, tmp_path / "packed") is not None
    (tmp_path / "packed" / INDEX).write_text("{")
    assert open_packed(videos, tmp_path / "packed") is None


def test_truncated_packed_frames_are_not_used(source, tmp_path):
    """Its index says how many frames there should be, its header how many bytes."""
    videos, _ = packed(source, tmp_path / "packed")
    file = tmp_path / "packed" / ARRAY
    whole = file.read_bytes()
    np.save(file, np.zeros((4, 4), dtype=np.float16))
    assert open_packed(videos, tmp_path / "packed") is None
    file.write_bytes(whole[:-2])
    assert open_packed(videos, tmp_path / "packed") is None
    file.write_bytes(whole)
    assert open_packed(videos, tmp_path / "packed") is not None


def test_packed_frames_keep_precision(tmp_path):
    """float32 stays, float64 becomes float32; a wider video among halves is named."""
    for dtype, kept in (("float32", np.float32), ("float64", np.float32)):
        file = write_hdf5(
            tmp_path / f"{dtype}.hdf5", {name.replace("/", "_"): frames(2, dtype=dtype) for name in SIZES}
        )
        assert packed(file, tmp_path / dtype)[1].stored(0).dtype == kept
    mixed = {"a": frames(2), "b_c": frames(2, dtype="float32"), "d": frames(2)}
    with pytest.raises(InputError, match=r"frames of 'a' are float16, of 'b/c' float32: expected one type"):
        packed(write_hdf5(tmp_path / "mixed.hdf5", mixed), tmp_path / "mixed")


def test_packed_frames_of_folder_notice_any_changed_file(tmp_path):
    """A file of one video that changes is noticed."""
    (tmp_path / "many").mkdir()
    for name in SIZES:
        np.save(tmp_path / "many" / f"{name.replace('/', '_')}.npy", frames(2))
    videos, found = packed(tmp_path / "many", tmp_path / "packed")
    assert pickle.loads(pickle.dumps(found))[1].shape == (2, 4)
    np.save(tmp_path / "many" / "d.npy", frames(3))
    assert open_packed(videos, tmp_path / "packed") is None


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e60])
def test_packing_refuses_frames_that_are_not_finite(tmp_path, value):
    """In the type they are packed in: a float64 that float32 cannot hold is infinite. The video is named."""
    videos = {"a": frames(2, dtype="float64"), "b_c": frames(2, dtype="float64"), "d": frames(2, dtype="float64")}
    videos["b_c"][1, 1] = value
    with pytest.raises(InputError, match=r"video 'b/c': its frames hold NaN or infinite values"):
        packed(write_hdf5(tmp_path / "x.hdf5", videos), tmp_path / "packed")
    assert open_packed(find_frames(open_frames(tmp_path / "x.hdf5"), ["a"])[0], tmp_path / "packed") is None

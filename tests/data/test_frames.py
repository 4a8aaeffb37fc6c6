"""Contracts of frame features: where they are, which frames are used, what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy_format
from tests.data.video_support import Bomb, frames, write_hdf5

from vse.data.frames import even_frames, find_frames
from vse.data.video_sources import open_frames
from vse.errors import InputError

VIDEOS = {"a": frames(3, seed=1), "b": frames(50, seed=2), "c_d": frames(20, seed=3)}


def write_as(form: str, folder: Path, videos: dict[str, np.ndarray]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if form == "hdf5":
        return write_hdf5(folder / "x.hdf5", videos)
    if form == "npz":
        np.savez(folder / "x.npz", **videos)
        return folder / "x.npz"
    for number, (name, array) in enumerate(videos.items()):
        home = folder / ("part" if number and form == "folders" else ".")
        home.mkdir(exist_ok=True)
        if number % 2:
            np.savez(home / f"{name}.npz", features=array)
        else:
            np.save(home / f"{name}.npy", array[None] if form == "folders" else array)  # (1, frames, size): I3D
    return folder


@given(st.integers(1, 300), st.integers(1, 40))
def test_frames_are_evenly_spaced(count, limit):
    """All frames of a short video; of a long one ``limit``: the nearest frames to equal steps, first to last."""
    chosen = even_frames(count, limit).tolist()
    if count <= limit:
        assert chosen == list(range(count))
        return
    assert len(set(chosen)) == limit
    assert chosen == sorted(chosen)
    assert chosen[0] == 0
    for k, frame in enumerate(chosen):
        exact = k * (count - 1) / (limit - 1) if limit > 1 else 0
        assert abs(frame - exact) <= 0.5 + 1e-9
    if limit > 1:
        assert chosen[-1] == count - 1


def test_frame_choice_matches_hgr():
    """Worked out by hand for 39 frames: every second one, and a half goes to the even number."""
    assert even_frames(39, 20).tolist() == list(range(0, 39, 2))
    assert even_frames(4, 3).tolist() == [0, 2, 3]
    assert even_frames(6, 3).tolist() == [0, 2, 5]


@pytest.mark.parametrize("form", ["hdf5", "npz", "folder", "folders"])
def test_all_frame_sources_give_the_same_videos(tmp_path, form):
    """An hdf5 file, one npz, and a folder of npy and npz files; a slash in a name is an underscore in the file."""
    source = open_frames(write_as(form, tmp_path / "x", VIDEOS))
    videos, dropped = find_frames(source, ["b", "nothing", "c/d", "a"])
    assert (videos.ids, dropped) == (("b", "c/d", "a"), ("nothing",))
    assert (len(videos), videos.dim, videos.kind) == (3, 4, "features")
    assert videos.counts.tolist() == [50, 20, 3]
    assert videos.sizes.tolist() == [20, 20, 3]
    expected = VIDEOS["b"][np.round(np.linspace(0, 49, 20)).astype(int)].astype(np.float32)
    assert videos[0].dtype == np.float32
    assert np.array_equal(videos[0], expected)
    assert np.array_equal(videos[-1], VIDEOS["a"].astype(np.float32))
    again = pickle.loads(pickle.dumps(videos))
    assert np.array_equal(again[0], expected)
    with pytest.raises(IndexError):
        videos[3]


def test_no_limit_keeps_every_frame(tmp_path):
    """``limit=None`` uses all frames; a limit below one is refused."""
    source = open_frames(write_as("hdf5", tmp_path, VIDEOS))
    assert find_frames(source, ["b"], None)[0][0].shape == (50, 4)
    with pytest.raises(InputError, match="limit=0"):
        find_frames(source, ["b"], 0)


@pytest.mark.parametrize("form", ["hdf5", "npz", "folder"])
@pytest.mark.parametrize("nothing", [np.zeros((0, 4)), np.zeros((0, 0)), np.zeros(0)])
def test_empty_arrays_have_no_frames(tmp_path, form, nothing):
    """An empty array is as good as no array; when no video is left, the error names the first ones."""
    source = open_frames(write_as(form, tmp_path / "x", {"a": nothing, "b": frames(2)}))
    videos, dropped = find_frames(source, ["a", "b"])
    assert (videos.ids, videos.dim, dropped) == (("b",), 4, ("a",))
    with pytest.raises(InputError, match=r"no frames of any of the 2 videos \('a', 'z'\), it holds 2 others"):
        find_frames(source, ["a", "z"])


BAD = {
    "sizes": ({"a": frames(2, 4), "b": frames(2, 5)}, "'a' have 4 values, of 'b' 5"),
    "shape": ({"a": np.zeros((2, 3, 4))}, r"shape \(2, 3, 4\)"),
    "vector": ({"a": np.zeros(3)}, r"shape \(3,\)"),
    "no values": ({"a": np.zeros((3, 0))}, r"shape \(3, 0\)"),
    "whole numbers": ({"a": np.zeros((2, 3), dtype=int)}, "holds int64"),
}


@pytest.mark.parametrize("form", ["hdf5", "npz", "folder"])
@pytest.mark.parametrize("case", BAD)
def test_frames_refuse_invalid_arrays(tmp_path, case, form):
    """One line names the file, the video and what was expected."""
    videos, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        find_frames(open_frames(write_as(form, tmp_path / "x", videos)), list(videos))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_frames_refuse_object_arrays(tmp_path):
    """An array of objects is refused by its header, and so is one that took the place of frames after opening."""
    (tmp_path / "x").mkdir()
    np.save(tmp_path / "x" / "a.npy", frames(2))
    videos, _ = find_frames(open_frames(tmp_path / "x"), ["a"])
    np.save(tmp_path / "x" / "a.npy", np.array([[Bomb(tmp_path / "fired")]], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="holds object"):
        find_frames(open_frames(tmp_path / "x"), ["a"])
    for read in (lambda: videos[0], lambda: videos.source.read("a")):
        with pytest.raises(InputError, match="object"):
            read()
    assert not (tmp_path / "fired").exists()


@pytest.mark.parametrize("name", ["x.hdf5", "x.npz", "x.pt", "missing.hdf5"])
def test_frames_refuse_other_files(tmp_path, name):
    """A file of rubbish, of an unknown kind, or none at all is one line."""
    if name != "missing.hdf5":
        (tmp_path / name).write_bytes(b"rubbish")
    with pytest.raises(InputError, match=name):
        open_frames(tmp_path / name).names()


@pytest.mark.parametrize("form", ["npz", "folder"])
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3), st.floats(0, 1))
def test_corrupt_frame_file_gives_frames_or_input_error(tmp_path_factory, form, flips, kept):
    """Whatever bytes are changed, and wherever it is cut."""
    folder = tmp_path_factory.mktemp("damaged")
    source = write_as(form, folder / "x", {"a": frames(3)})
    file = source if form == "npz" else source / "a.npy"
    content = bytearray(file.read_bytes())
    for place, value in flips:
        content[place % len(content)] = value
    file.write_bytes(content[: round(kept * len(content)) if not flips else None])
    told = "nothing"
    try:
        videos, _ = find_frames(open_frames(source), ["a"])
        assert np.isfinite(videos[0]).all()
    except InputError as error:
        told = str(error)
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e60])
def test_frames_name_video_without_numbers(tmp_path, value):
    """A video that holds no numbers is named by file and name when it is read; the others are not touched by it."""
    videos = {"a": frames(2, dtype="float64"), "b/c": frames(2, dtype="float64")}
    videos["b/c"][1, 1] = value
    file = write_hdf5(tmp_path / "x.h5", {name.replace("/", "_"): array for name, array in videos.items()})
    found, _ = find_frames(open_frames(file), ["a", "b/c"])
    assert np.array_equal(found[0], videos["a"].astype(np.float32))
    with pytest.raises(InputError, match=r"x\.h5, video 'b/c': its frames hold NaN or infinite values"):
        found[1]


def test_find_frames_checks_all_videos_first(tmp_path):
    """``expect_finite`` reads each video once, and names the one that holds no numbers."""
    videos = {"a": frames(2), "b": frames(30)}
    sound, _ = find_frames(open_frames(write_hdf5(tmp_path / "sound.h5", videos)), ["a", "b"])
    sound.expect_finite()
    videos["b"][29, 0] = np.inf
    broken, _ = find_frames(open_frames(write_hdf5(tmp_path / "broken.h5", videos)), ["a", "b"])
    with pytest.raises(InputError, match=r"broken\.h5, video 'b'"):
        broken.expect_finite()


MANY = 10**10  # frames that no machine could hold


@pytest.mark.parametrize("shape", [(MANY, 12), (1, MANY, 12)])
@pytest.mark.parametrize("form", ["hdf5", "npy"])
def test_frame_sources_read_only_used_frames(tmp_path, form, shape):
    """Twenty of ten thousand million, first to last."""
    if form == "hdf5":
        with h5py.File(tmp_path / "x.h5", "w") as file:
            stored = file.create_dataset("a", shape, "f4", chunks=(1,) * (len(shape) - 2) + (4, 12))
            stored[..., 0, :], stored[..., MANY - 1, :] = 1, 2
    else:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        with (tmp_path / "a.npy").open("wb") as file:
            npy_format.write_array_header_2_0(file, header)
            first = file.tell()
            file.write(np.ones(12, "f4").tobytes())
            file.truncate(first + 4 * 12 * MANY)  # a file with a hole
            file.seek(-48, 2)
            file.write(np.full(12, 2, "f4").tobytes())
    videos, _ = find_frames(open_frames(tmp_path / "x.h5" if form == "hdf5" else tmp_path), ["a"])
    assert videos.counts.tolist() == [MANY]
    assert videos[0][:, 0].tolist() == [1] + [0] * 18 + [2]


def test_frames_refuse_header_larger_than_file(tmp_path):
    """An array that is shorter than its header says is one line, however much would have to be held."""
    with (tmp_path / "a.npy").open("wb") as file:
        npy_format.write_array_header_2_0(file, {"descr": "<f4", "fortran_order": False, "shape": (5, MANY)})
    videos, _ = find_frames(open_frames(tmp_path), ["a"])
    with pytest.raises(InputError, match=r"a\.npy cannot be read"):
        videos[0]


def test_frames_refuse_names_that_differ_in_slash(tmp_path):
    """``a/b`` and ``a_b`` would be given the same frames."""
    file = write_hdf5(tmp_path / "x.h5", {"a_b": frames(2)})
    with pytest.raises(InputError, match="'a/b' and 'a_b' are both stored as 'a_b'"):
        find_frames(open_frames(file), ["a/b", "a_b"])


def test_frame_folder_refuses_two_files_per_video(tmp_path):
    """A folder that has a video twice does not say which is meant."""
    for home in ("x", "y"):
        (tmp_path / home).mkdir()
        np.save(tmp_path / home / "a.npy", frames(2))
    with pytest.raises(InputError, match="two files for video 'a'"):
        open_frames(tmp_path)


def test_frames_notice_changed_file(tmp_path):
    """A video that is another than when it was opened is an error, not a silently different set."""
    np.save(tmp_path / "a.npy", frames(3))
    videos, _ = find_frames(open_frames(tmp_path), ["a"])
    np.save(tmp_path / "a.npy", frames(4))
    with pytest.raises(InputError, match=r"video 'a': 4 × 4, but it was 3 × 4"):
        videos[0]

"""Contracts of opening data by its path alone."""

from __future__ import annotations

import subprocess
import sys
import tarfile

import pytest
from tests.data.support import entry, features, write_image, write_karpathy, write_lines, write_precomp
from tests.data.video_support import frames, msrvtt_json, write_hdf5, write_hgr, write_json

from vse.data import LAYOUTS, check_data, detect_layout, list_splits, open_data
from vse.errors import InputError


def make(layout, folder):
    """A tiny dataset of each layout."""
    if layout == "precomp":
        return write_precomp(folder, "test", features(1), ["x"])
    if layout == "flickr8k":
        write_lines(folder / "Flickr_8k.testImages.txt", ["a.jpg"])
        write_lines(folder / "Flickr8k.token.txt", ["a.jpg#0\tx"])
    elif layout == "karpathy":
        return write_karpathy(folder / "dataset_x.json", [entry("a.jpg", "test", "x")])
    elif layout == "table":
        return write_lines(folder / "t.csv", ["path,caption", "a.jpg,x"])
    elif layout == "packed":
        with tarfile.open(folder / "a.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo("a.jpg"))
        return folder
    elif LAYOUTS[layout].kind == "video":
        return make_videos(layout, folder)
    write_image(folder / "images/a.jpg")
    return folder


def make_videos(layout, folder):
    """One video with its frames; those of the published layouts are beside the captions."""
    write_hdf5(folder / FRAMES, {"v": frames(3)})
    if layout == "hgr":
        return write_hgr(folder, {"v": ["x"]}, {"test": {"v": frames(3)}})
    if layout == "msrvtt":
        write_json(folder / "test_videodatainfo.json", msrvtt_json({"v": ("test", ["x"])}))
        write_lines(folder / "t.csv", ["path,caption", "a.jpg,x"])
    else:
        write_json(folder / "vatex_public_test_english_v1.1.json", [{"videoID": "v", "enCap": ["x"]}])
    return folder


FRAMES = "frames.hdf5"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_detected(tmp_path, layout):
    """The layout is found from the files, by text or path, and a name that is given is used as it is."""
    path = make(layout, tmp_path)
    assert detect_layout(str(path)) == layout
    (split,) = list_splits(path)
    for choice in ("auto", layout):
        features = {"features": tmp_path / FRAMES} if layout in {"msrvtt", "vatex"} else {}
        data = open_data(str(path), split, layout=choice, **features)
        assert (data.layout, data.split, len(data.images)) == (layout, split, 1)


@pytest.mark.parametrize("layout", [name for name, one in LAYOUTS.items() if one.kind == "video"])
def test_video_layouts_need_frame_features(tmp_path, layout):
    """Images of them are refused, frame features of images too, and a layout without frames asks for them."""
    path = make(layout, tmp_path)
    with pytest.raises(InputError, match="holds videos as frame features, not images"):
        open_data(path, use="files")
    images = make("table", tmp_path / "images")
    for call in (open_data, check_data):
        with pytest.raises(
            InputError, match=r"--features 'f' \(features= in Python\) is for videos, and .* holds images"
        ):
            call(images, features="f")
    if layout != "hgr":
        with pytest.raises(InputError, match="has no frame features of its own"):
            open_data(path)


def test_detection_prefers_distinctive_file_names(tmp_path):
    """Images beside the files of a layout do not make it a plain folder."""
    write_image(tmp_path / "images/a.jpg")
    make("karpathy", tmp_path)
    assert detect_layout(tmp_path) == "karpathy"
    make("precomp", tmp_path / "precomp")
    assert detect_layout(tmp_path) == "precomp"


def test_open_data_refuses_missing_and_unknown_paths(tmp_path):
    """A path that is not there, a path of nothing, and names that do not exist are one line each."""
    with pytest.raises(InputError, match="nowhere does not exist"):
        open_data(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no known layout"):
        detect_layout(tmp_path)
    with pytest.raises(InputError, match=r"unknown layout 'precmp': expected one of .*'precomp'\?"):
        open_data(tmp_path, layout="precmp")
    with pytest.raises(InputError, match="unknown use 'pixels'"):
        open_data(make("precomp", tmp_path), use="pixels")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_open_data_refuses_wrong_layout(tmp_path, layout):
    """A layout that the data does not have says what it misses, and never fails in another way."""
    (tmp_path / "something.bin").write_bytes(b"\x00")
    for path in (tmp_path, tmp_path / "something.bin"):
        with pytest.raises(InputError):
            open_data(path, "all", layout=layout)


def test_open_data_needs_no_torch():
    """The readers work in an install without torch."""
    code = "import sys; sys.modules['torch'] = None; import vse.data; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

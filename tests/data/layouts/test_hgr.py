"""Contracts of the layout of HGR."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
from tests.data.video_support import frames, read_captions, write_hdf5, write_hgr, write_json

from vse.data import open_data
from vse.data.dataset import CaptionedImages
from vse.data.open import find_layout
from vse.data.roles.graphs import role_graphs
from vse.data.vocabulary import VideoVocabulary
from vse.errors import InputError

CAPTIONS = {
    "v1": ["a man runs", " a dog barks "],
    "v2": ["a man runs"],
    "v3": ["a cat", "a cat", "a bird"],
    "v/4": ["in a folder"],
}
SPLITS = {
    "train": {"v3": frames(25, seed=3)},
    "test": {"v2": frames(4, seed=2), "v1": frames(7, seed=1), "v/4": frames(2, seed=4), "v5": frames(2, seed=5)},
}


def test_hgr_split_follows_its_lists(tmp_path):
    """Videos in the order of the list, captions by video, a sentence of two videos once for each."""
    data = open_data(write_hgr(tmp_path / "msvd", CAPTIONS, SPLITS), "test")
    assert isinstance(data, CaptionedImages)
    assert (data.name, data.split, data.layout) == ("msvd", "test", "hgr")
    assert data.images.ids == ("v2", "v1", "v/4", "v5")
    assert data.captions == ("a man runs", "a man runs", "a dog barks", "in a folder")
    assert data.caption_to_image.tolist() == [0, 1, 1, 2]
    assert data.captions_of(1) == ("a man runs", "a dog barks")
    assert data.captions_of(3) == ()
    assert data.images.sizes.tolist() == [4, 7, 2, 2]
    assert np.array_equal(data.images[1], SPLITS["test"]["v1"].astype(np.float32))
    assert data.dropped == ()


def test_hgr_drops_videos_without_frames_and_their_captions(tmp_path):
    """They are listed; owners follow. A split of which nothing is left is an error that names a video."""
    splits = {"test": {**SPLITS["test"], "v2": None}}
    data = open_data(write_hgr(tmp_path, CAPTIONS, splits))
    assert data.dropped == ("v2",)
    assert data.captions == ("a man runs", "a dog barks", "in a folder")
    assert data.caption_to_image.tolist() == [0, 0, 1]
    write_hgr(tmp_path / "none", CAPTIONS, {"test": {"v1": None}})
    with pytest.raises(InputError, match="'v1'"):
        open_data(tmp_path / "none")


def test_hgr_split_names(tmp_path):
    """``dev`` is ``val``; an unknown split names the known ones; ``test`` is not read from train's file."""
    root = write_hgr(tmp_path, CAPTIONS, {**SPLITS, "val": {"v1": frames(1)}})
    assert open_data(root, "dev").split == "val"
    assert open_data(root, "train", frame_limit=10).images.sizes.tolist() == [10]
    with pytest.raises(InputError, match="unknown split 'all'"):
        open_data(root, "all")


def test_hgr_feature_kind_must_be_named_among_several(tmp_path):
    """Of several kinds one has to be named; a file or a folder of one's own is taken as it is."""
    root = write_hgr(tmp_path, CAPTIONS, SPLITS, kind="i3d")
    write_hgr(root, CAPTIONS, {"test": {name: frames(3, 6) for name in SPLITS["test"]}}, kind="resnet")
    with pytest.raises(InputError, match="2 kinds of features, i3d, resnet"):
        open_data(root)
    with pytest.raises(InputError, match=r"unknown kind of features 'resnets'.*did you mean 'resnet'"):
        open_data(root, features="resnets")
    assert open_data(root, features="resnet").images.dim == 6
    assert open_data(root, features=root / "ordered_feature/SA/i3d").images.dim == 4
    own = write_hdf5(tmp_path / "own.h5", {"v1": frames(2, 9)})
    assert open_data(root, features=own).images.ids == ("v1",)


def test_hgr_feature_kind_takes_precedence_over_path(tmp_path, monkeypatch):
    """A folder beside the user that is called as a kind of features is not taken for it, unless named as a path."""
    root = write_hgr(tmp_path / "data", CAPTIONS, SPLITS, kind="i3d")
    write_hgr(root, CAPTIONS, {"test": {name: frames(3, 6) for name in SPLITS["test"]}}, kind="resnet")
    write_hdf5(tmp_path / "resnet" / "tst_ft.hdf5", {"v1": frames(2, 9)})
    monkeypatch.chdir(tmp_path)
    assert open_data(root, features="resnet").images.dim == 6
    assert open_data(root, features="./resnet").images.dim == 9
    assert open_data(root, features=tmp_path / "resnet").images.dim == 9


def test_hgr_names_option_for_missing_features(tmp_path):
    """By the option of the command and the argument of Python."""
    root = write_hgr(tmp_path / "two", CAPTIONS, SPLITS, kind="i3d")
    write_hgr(root, CAPTIONS, SPLITS, kind="resnet")
    none = write_hgr(tmp_path / "none", CAPTIONS, SPLITS)
    shutil.rmtree(none / "ordered_feature")
    other = write_hdf5(tmp_path / "other.h5", {"x": frames(1)})
    for path, features in ((root, None), (none, None), (none, other)):
        with pytest.raises(InputError, match=r"with --features [A-Z]+ \(features= in Python\)"):
            open_data(path, features=features)


def test_hgr_refuses_object_arrays_of_names(tmp_path):
    """A pickled list could run anything: the error says how to convert it, in one line."""
    root = write_hgr(tmp_path, CAPTIONS, SPLITS)
    np.save(root / "public_split/tst_names.npy", np.array(["v1"], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"tst_names\.npy.*allow_pickle=True\)\.astype\(str\)") as caught:
        open_data(root)
    assert "\n" not in str(caught.value)
    np.save(root / "public_split/tst_names.npy", np.array([b"v1"]))
    assert open_data(root).images.ids == ("v1",)


BAD = {
    "a list": ([], r"expected an object \{video: \[sentence\]\}"),
    "no list of sentences": ({"v2": "a man"}, "'v2': expected a list of sentences"),
    "a number": ({"v2": [3]}, r"'v2'\[0\]: the caption is 3, expected a sentence"),
    "an empty caption": ({"v2": ["a", " "]}, r"'v2'\[1\]: empty caption"),
}


@pytest.mark.parametrize("case", BAD)
def test_hgr_names_malformed_captions(tmp_path, case):
    """What is wrong with the file is one line that says where."""
    content, message = BAD[case]
    root = write_hgr(tmp_path, {}, SPLITS)
    (root / "annotation/RET/ref_captions.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        open_data(root)


SPACES = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]


def test_hgr_graphs_and_tokens_count_the_same_words(tmp_path):
    """Whatever whitespace a caption has, its words have single spaces between them, and a graph is found by them."""
    told = [f"{space}a{space * 2}man{space}runs" for space in SPACES]
    root = write_hgr(tmp_path, {"v1": told}, {"test": {"v1": frames(2)}})
    captions = open_data(root).captions
    assert captions == ("a man runs",) * len(SPACES)
    tokens = VideoVocabulary.build(captions).tokenizer().encode(captions)
    assert tokens.lengths.tolist() == [3] * len(SPACES)
    graph = [{"1": {"role": "V", "spans": [2]}}, []]
    folder = root / "annotation/RET"
    for sentence in ("a man runs", "a  man\x1cruns "):
        write_json(folder / "sent2rolegraph.json", {sentence: graph})
        found = role_graphs(captions, folder)
        assert (found.graphs["a man runs"], found.missing) == (graph, ())


def test_hgr_reports_name_listed_twice(tmp_path):
    """It is a problem; a check continues with one of them."""
    root = write_hgr(tmp_path, CAPTIONS, SPLITS)
    np.save(root / "public_split/tst_names.npy", np.array(["v1", "v2", "v1"]))
    with pytest.raises(InputError, match="v1 is listed 2 times"):
        open_data(root)
    flaws: list[str] = []
    captions = read_captions(root, on_problem=lambda kind, place: flaws.append(kind))
    assert captions.ids == ("v1", "v2")
    assert flaws == ["name listed twice"]


def test_hgr_reports_video_described_twice(tmp_path):
    """JSON would keep the last of two lists without a word. It is a problem where the split has the video."""
    root = write_hgr(tmp_path, CAPTIONS, SPLITS)
    file = root / "annotation/RET/ref_captions.json"
    file.write_text(file.read_text()[:-1] + ', "v1": ["a ghost"]}')
    with pytest.raises(InputError, match="v1 is described twice"):
        open_data(root)
    assert open_data(root, "train").images.ids == ("v3",)


def test_hgr_conversion_command_of_error_works(tmp_path):
    """The error's command works from anywhere, and the list is read afterwards."""
    root = write_hgr(tmp_path / "it's a folder", CAPTIONS, SPLITS)
    np.save(root / "public_split/tst_names.npy", np.array(["v1", "v2"], dtype=object), allow_pickle=True)
    with pytest.raises(InputError) as caught:
        open_data(root)
    command = shlex.split(str(caught.value).rpartition("convert it with ")[2])
    subprocess.run([sys.executable, *command[1:]], check=True, cwd="/")
    assert open_data(root).images.ids == ("v1", "v2")


def test_find_video_layout_rejects_other_paths(tmp_path):
    """A folder without videos, a missing path and an unknown name are errors."""
    for path, message in ((tmp_path, "no known layout of videos"), (tmp_path / "x", "does not exist")):
        with pytest.raises(InputError, match=message):
            find_layout(path, kind="video")
    with pytest.raises(InputError, match="unknown video layout 'hrg'"):
        find_layout(tmp_path, "hrg", kind="video")


def test_hgr_reads_msvd_splits(shared_data):
    """The real splits: 1,200, 100 and 670 videos of 20 frames, all 80,827 captions."""
    splits = [open_data(shared_data / "msvd", split) for split in ("train", "val", "test")]
    assert [len(one.images) for one in splits] == [1200, 100, 670]
    assert sum(len(one.captions) for one in splits) == 80827
    assert all((one.images.sizes == 20).all() and one.images.dim == 512 for one in splits)
    assert splits[2].images[669].shape == (20, 512)

"""Contracts of the layout of published region features."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.support import features, write_image, write_lines, write_precomp

from vse.data import FeatureRows, ImageFiles, list_splits, open_data
from vse.errors import InputError


def captions(count: int) -> list[str]:
    return [f"caption {j}" for j in range(count)]


def pairs(data):
    """What a model sees: each caption beside the features of its image."""
    return [(data.captions[j], data.images[data.caption_to_image[j]]) for j in range(len(data.captions))]


@given(
    st.integers(1, 6),
    st.integers(1, 7),
    st.booleans(),
    st.sampled_from([None, "image", "row"]),
    st.sampled_from(["float32", "float16"]),
    st.booleans(),
)
def test_precomp_repeated_and_single_rows_are_equivalent(images, each, repeated, ids, dtype, fortran):
    """Whether a file repeats an image for each of its captions or not, each image is there once and the pairs of
    caption and features are those of the naive expansion, for any number of captions an image."""
    array = features(images, dtype=dtype)
    rows = np.repeat(array, each, axis=0) if repeated else array
    names = [f"id{i}" for i in range(images)]
    given_ids = {None: None, "image": names, "row": [name for name in names for _ in range(len(rows) // images)]}[ids]
    with tempfile.TemporaryDirectory() as folder:
        stored = np.asfortranarray(rows) if fortran else rows
        data = open_data(write_precomp(Path(folder), "dev", stored, captions(images * each), given_ids), "dev")
        assert isinstance(data.images, FeatureRows)
        assert isinstance(data.images.array, np.memmap)
        assert len(data.images) == images
        assert data.images.ids == (tuple(names) if ids else tuple(f"dev/{i}" for i in range(images)))
        naive = [(f"caption {j}", array[j // each].astype("float32")) for j in range(images * each)]
        for (caption, feature), (expected_caption, expected) in zip(pairs(data), naive, strict=True):
            assert caption == expected_caption
            np.testing.assert_array_equal(feature, expected)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_precomp_ids_allow_any_order_of_rows(counts, random):
    """With an id for each row images may have different numbers of captions, and need not stand together."""
    array = features(len(counts))
    owners = [i for i, count in enumerate(counts) for _ in range(count)]
    random.shuffle(owners)
    with tempfile.TemporaryDirectory() as folder:
        path = write_precomp(Path(folder), "test", array[owners], captions(len(owners)), [f"id{i}" for i in owners])
        data = open_data(path)
        assert sorted(data.images.ids) == sorted(f"id{i}" for i in range(len(counts)))
        for j, (_, feature) in enumerate(pairs(data)):
            np.testing.assert_array_equal(feature, array[owners[j]])


def test_precomp_flat_array_is_one_region(tmp_path):
    """Features without an axis of regions are sets of one."""
    data = open_data(write_precomp(tmp_path, "test", features(3)[:, 0], captions(6)))
    assert data.images[2].shape == (1, 4)
    assert data.caption_to_image.tolist() == [0, 0, 1, 1, 2, 2]


def test_precomp_adjacent_equal_images_keep_repetition(tmp_path):
    """Two copies of an image in a row are two images, as long as others tell how often rows repeat."""
    array = features(5)
    array[2] = array[1]
    data = open_data(write_precomp(tmp_path, "test", np.repeat(array, 5, axis=0), captions(25)))
    assert len(data.images) == 5
    assert data.images.rows.tolist() == [0, 5, 10, 15, 20]


def test_precomp_compares_rows_with_nan(tmp_path):
    """Repetition is seen in the bytes: NaN differs from itself as a number."""
    array = features(4)
    array[1] = np.nan
    data = open_data(write_precomp(tmp_path, "test", np.repeat(array, 3, axis=0), captions(12)))
    assert len(data.images) == 4


def test_precomp_accepts_parent_folder(tmp_path):
    """``DATA/f30k`` is read from ``DATA/f30k/precomp`` and named after the dataset."""
    write_precomp(tmp_path / "f30k" / "precomp", "test", features(2), captions(10))
    for path in (tmp_path / "f30k", tmp_path / "f30k" / "precomp"):
        data = open_data(path)
        assert (data.name, data.layout, data.split, len(data.images)) == ("f30k", "precomp", "test", 2)


def test_precomp_dev_and_val_are_synonyms(tmp_path):
    """Splits come in their usual order; ``val`` and ``dev`` are one."""
    for split in ("testall", "dev", "train", "extra", "test"):
        write_precomp(tmp_path, split, features(2), captions(2))
    assert list_splits(tmp_path) == ("train", "dev", "test", "testall", "extra")
    assert open_data(tmp_path, "val").split == "dev"
    with pytest.raises(InputError, match=r"unknown split 'tset': expected one of 'train', .* mean 'test'"):
        open_data(tmp_path, "tset")


def test_precomp_splits_captions_at_newline_only(tmp_path):
    """Separators that some programs take for line ends stay inside a caption; whitespace around it goes."""
    lines = ["  a\u2028b ", "c\x0bd\r", "e\x85f\tg"]
    assert open_data(write_precomp(tmp_path, "test", features(3), lines)).captions == (
        "a\u2028b",
        "c\x0bd",
        "e\x85f\tg",
    )


# ---------------------------------------------------------------------------------------------------------------- files


@pytest.fixture
def f30k(tmp_path):
    """Two images as features, ids and files."""
    root = tmp_path / "f30k"
    write_precomp(root / "precomp", "test", np.repeat(features(2), 2, axis=0), captions(4), ["007", "007", "8", "8"])
    (root / "id_mapping.json").write_text(json.dumps({"7": "a.jpg", "8": "sub/b.jpg"}))
    for name in ("a.jpg", "sub/b.jpg"):
        write_image(root / "flickr30k-images" / name)
    return root


def test_precomp_reads_split_as_files(f30k, tmp_path):
    """With ids and their mapping a split is read as files, in a folder that is guessed or given."""
    assert open_data(f30k).images.kind == "features"
    data = open_data(f30k, use="files", check_files=True)
    assert isinstance(data.images, ImageFiles)
    assert data.images.paths == (f30k / "flickr30k-images/a.jpg", f30k / "flickr30k-images/sub/b.jpg")
    assert data.images.ids == ("007", "8")
    assert data.caption_to_image.tolist() == [0, 0, 1, 1]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert open_data(f30k, images=elsewhere).images[0] == elsewhere / "a.jpg"
    assert open_data(f30k, images=elsewhere, use="features").images.kind == "features"


def test_precomp_files_need_no_features(f30k):
    """Somebody who trains on pixels need not have the feature file."""
    (f30k / "precomp/test_ims.npy").unlink()
    assert open_data(f30k).images.kind == "files"


def test_precomp_reports_missing_images_on_request(f30k):
    """Files are looked for only on request, and the error counts them and names the first."""
    (f30k / "flickr30k-images/sub/b.jpg").unlink()
    assert len(open_data(f30k, use="files").images) == 2
    with pytest.raises(InputError, match=r"1 of 2 image files are missing, .*b\.jpg"):
        open_data(f30k, use="files", check_files=True)


def test_precomp_names_ids_without_image(f30k, tmp_path):
    """What is missing between an id and its file is named with its line."""
    with pytest.raises(InputError, match="is not a folder"):
        open_data(f30k, images=tmp_path / "nowhere")
    (f30k / "id_mapping.json").write_text('{"7": "a.jpg"}')
    with pytest.raises(InputError, match=r"test_ids.txt:3: id '8' has no file in .*id_mapping.json"):
        open_data(f30k, use="files")
    (f30k / "id_mapping.json").write_text("[]")
    with pytest.raises(InputError, match=r"expected an object.*got a list"):
        open_data(f30k, use="files")
    (f30k / "id_mapping.json").unlink()
    with pytest.raises(InputError, match=r"no id_mapping\.json"):
        open_data(f30k, use="files")


# --------------------------------------------------------------------------------------------------------------- errors

ROWS = features(4)
BAD = {
    "captions are no multiple": (ROWS, captions(6), None, "6 captions for 4 feature rows"),
    "fewer captions than rows": (ROWS, captions(2), None, "2 captions for 4 feature rows"),
    "no captions": (ROWS, [], None, "0 captions for 4 feature rows"),
    "empty caption": (ROWS, ["a", "  ", "c", "d"], None, r"test_caps\.txt:2: empty caption"),
    "float64": (ROWS.astype("float64"), captions(4), None, "float64.*float32 or float16"),
    "whole numbers": (ROWS.astype("int32"), captions(4), None, "int32"),
    "one axis": (ROWS[:, 0, 0], captions(4), None, r"\(4,\).*\(images, regions, size\)"),
    "four axes": (ROWS[None], captions(4), None, r"\(1, 4, 3, 4\)"),
    "no images": (ROWS[:0], captions(4), None, "zero images"),
    "no regions": (ROWS[:, :0], captions(4), None, r"\(4, 0, 4\).*at least one region"),
    "ids do not fit": (ROWS, captions(4), ["a", "b", "c"], "3 ids for 4 feature rows"),
    "ids do not fit single rows": (ROWS, captions(8), ["a"] * 3, "3 ids for 4 feature rows and 8 captions"),
    "empty id": (ROWS, captions(4), ["a", "", "c", "d"], r"test_ids\.txt:2: empty line"),
    "one id, different rows": (ROWS, captions(4), ["a", "a", "b", "b"], "rows 0 and 1 differ.*one image"),
    "ids of captions": (np.repeat(ROWS, 2, 0), captions(8), list("abcdefgh"), "repeated 2 times.*not of captions"),
    "too few ids for the rows": (ROWS, captions(4), ["a", "b"], "rows 0 and 1 differ"),
    "irregular": (ROWS[[0, 0, 0, 1, 1, 1, 2, 2, 3, 3]], captions(10), None, "irregularly.*row 8 starts"),
    "ids change inside a row": (ROWS, captions(8), list("aabbccde"), "id 'e' on line 8 differs from 'd'"),
}


@pytest.mark.parametrize("case", BAD)
def test_precomp_names_mismatched_files(tmp_path, case):
    """Every way in which the files contradict each other is one line that names file and figures."""
    rows, lines, ids, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        open_data(write_precomp(tmp_path, "test", rows, lines, ids))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_precomp_refuses_object_arrays(tmp_path):
    """An object array is refused by its header."""
    write_lines(tmp_path / "test_caps.txt", captions(2))
    np.save(tmp_path / "test_ims.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="object values"):
        open_data(tmp_path)


def test_precomp_reports_truncated_features(tmp_path):
    """A file that was truncated is recognized by its size, and both sizes are named."""
    write_precomp(tmp_path, "test", features(4), captions(4))
    file = tmp_path / "test_ims.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    with pytest.raises(InputError, match=f"truncated.*{len(whole)} bytes.*{len(whole) - 5}"):
        open_data(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x10\x00{'descr'", b"\x93NUMPY\x09\x00", b"text"]
)
def test_precomp_refuses_other_files_as_features(tmp_path, content):
    """Anything else under the name of an array is called so."""
    write_precomp(tmp_path, "test", features(4), captions(4))
    (tmp_path / "test_ims.npy").write_bytes(content)
    with pytest.raises(InputError, match=r"test_ims\.npy is not a \.npy file") as caught:
        open_data(tmp_path)
    assert "\n" not in str(caught.value)


def test_precomp_names_missing_half_of_split(tmp_path):
    """A split with half of its files names the other half."""
    write_precomp(tmp_path, "test", features(4), captions(4))
    (tmp_path / "test_ims.npy").unlink()
    with pytest.raises(InputError, match=r"test_ims\.npy does not exist"):
        open_data(tmp_path)
    write_precomp(tmp_path, "test", features(4), captions(4))
    (tmp_path / "test_caps.txt").unlink()
    with pytest.raises(InputError, match=r"test_caps\.txt does not exist"):
        open_data(tmp_path)


def test_precomp_reports_captions_that_are_not_utf8(tmp_path):
    """The line of the first wrong byte is named."""
    write_precomp(tmp_path, "test", features(2), captions(2))
    (tmp_path / "test_caps.txt").write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(InputError, match=r"test_caps\.txt:2: byte 0xe9 is not UTF-8"):
        open_data(tmp_path)

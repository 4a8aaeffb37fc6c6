"""Contracts of the values that readers return."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.support import features

from vse.data import CaptionedImages, FeatureRows, ImageFiles
from vse.errors import InputError


def collection(images: int, owners) -> CaptionedImages:
    names = tuple(f"{i}.jpg" for i in range(images))
    captions = tuple(f"caption {j}" for j in range(len(owners)))
    return CaptionedImages("x", "test", "folder", ImageFiles(tuple(map(Path, names)), names), captions, owners)


@given(st.data())
def test_captions_are_grouped_by_image(data):
    """Each image gets exactly its captions in the order of the file, however ragged and shuffled they are."""
    images = data.draw(st.integers(1, 6))
    owners = data.draw(st.lists(st.integers(0, images - 1), max_size=20))
    given_data = collection(images, np.array(owners, dtype=np.int64))
    for i in range(images):
        expected = [j for j, owner in enumerate(owners) if owner == i]
        assert given_data.caption_indices_of(i).tolist() == expected
        assert given_data.captions_of(i) == tuple(f"caption {j}" for j in expected)
        assert given_data.captions_of(i - images) == given_data.captions_of(i)
        assert given_data.captions_per_image[i] == len(expected)


@pytest.mark.parametrize("index", [2, -3])
def test_captions_of_image_out_of_range_raises(index):
    """An image that does not exist has no captions to ask for."""
    with pytest.raises(IndexError):
        collection(2, np.array([0, 1])).captions_of(index)


@pytest.mark.parametrize(
    ("images", "owners", "message"),
    [
        (2, np.array([0, 2]), r"caption_to_image\[1\] is 2: expected 0 to 1"),
        (2, np.array([-1, 0]), r"caption_to_image\[0\] is -1"),
        (2, np.array([0.0, 1.0]), "float64"),
        (2, np.array([[0, 1]]), r"\(1, 2\)"),
        (0, np.array([], dtype=np.int64), "zero images"),
    ],
)
def test_captions_must_belong_to_images(images, owners, message):
    """Indices out of range, of a wrong type, or of no images are refused by name."""
    with pytest.raises(InputError, match=message):
        collection(images, owners)


def test_dataset_refuses_mismatched_counts():
    """Paths and ids, rows and ids, captions and owners come in pairs."""
    with pytest.raises(InputError, match="1 paths and 0 ids"):
        ImageFiles((Path("a"),), ())
    with pytest.raises(InputError, match="2 rows and 1 ids"):
        FeatureRows(features(3), np.array([0, 1]), ("a",))
    with pytest.raises(InputError, match="2 entries for 1 captions"):
        CaptionedImages("x", "test", "folder", ImageFiles((Path("a"),), ("a",)), ("one",), np.array([0, 0]))
    with pytest.raises(InputError, match=r"rows\[1\] is 3: expected 0 to 2"):
        FeatureRows(features(3), np.array([0, 3]), ("a", "b"))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_feature_rows_return_float32_copies(dtype):
    """What is handed out is float32 and the caller's own; an array without regions counts as one region."""
    array = features(4, dtype=dtype)
    images = FeatureRows(array, np.array([2, 0]), ("a", "b"))
    taken = images[0]
    assert taken.dtype == np.float32
    assert taken.shape == (images.regions, images.dim) == (3, 4)
    np.testing.assert_array_equal(taken, array[2].astype("float32"))
    taken[:] = 0
    assert array[2].any()
    assert images.sizes.tolist() == [3, 3]
    flat = FeatureRows(array[:, 0], np.array([3]), ("a",))
    assert flat[0].shape == (1, 4)
    assert flat.sizes.tolist() == [1]


@pytest.mark.parametrize("order", ["C", "F"])
def test_feature_rows_pickle_without_mapped_data(tmp_path, order):
    """Sent to another process, a mapped array is mapped again and not copied, in either memory order."""
    np.save(tmp_path / "x.npy", np.asarray(features(500), order=order))
    images = FeatureRows(np.load(tmp_path / "x.npy", mmap_mode="r"), np.array([7]), ("a",))
    sent = pickle.dumps(images)
    assert len(sent) < 2000
    received = pickle.loads(sent)
    assert isinstance(received.array, np.memmap)
    np.testing.assert_array_equal(received.array, images.array)
    np.testing.assert_array_equal(received[0], images[0])


def test_feature_rows_pickle_views_by_value(tmp_path):
    """A view has no place of its own in the file, so its values are sent."""
    np.save(tmp_path / "x.npy", features(5))
    images = FeatureRows(np.load(tmp_path / "x.npy", mmap_mode="r")[2:], np.array([1]), ("a",))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(images))[0], images[0])

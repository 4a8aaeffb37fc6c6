"""Boxes of regions and the mean of cells inside them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support_models import picture

from vse.errors import InputError
from vse.inputs.preprocessing import efficientnet_lite, imagenet, load_pixels
from vse.inputs.regions import LARGEST, SMALLEST_AREA, propose_boxes, region_weights, window_boxes


def areas(boxes: np.ndarray) -> np.ndarray:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def naive_weights(box: np.ndarray, rows: int, columns: int, fine: int = 60) -> np.ndarray:
    """Count the points of a fine lattice that lie in the box, cell by cell."""
    counts = np.zeros((rows, columns))
    for y in range(rows * fine):
        for x in range(columns * fine):
            across, down = (x + 0.5) / (columns * fine), (y + 0.5) / (rows * fine)
            if box[0] <= across < box[2] and box[1] <= down < box[3]:
                counts[y // fine, x // fine] += 1
    return counts.ravel() / counts.sum()


def drawing(shift: int = 0) -> np.ndarray:
    """Two plain objects on a plain ground, as an image (96, 128, 3)."""
    image = np.full((96, 128, 3), (40, 90, 40), np.uint8)
    image[20:60, 10 + shift : 50 + shift] = (220, 30, 30)
    image[30:90, 80:110] = (30, 30, 220)
    return image


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5])
def test_complete_levels_of_windows_cover_the_image_evenly(levels):
    """Level g has g × g windows of side 2 / (g + 1); all points but the border lie in four windows of a level."""
    count = sum(level**2 for level in range(1, levels + 1))
    last = window_boxes(count)[-(levels**2) :]
    assert len(window_boxes(count)) == count
    np.testing.assert_allclose(last[:, 2:] - last[:, :2], 2 / (levels + 1), atol=1e-6)
    np.testing.assert_allclose([last[:, :2].min(), last[:, 2:].max()], [0, 1], atol=1e-6)
    assert len(np.unique(last.round(5), axis=0)) == levels**2


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200))
def test_any_number_of_windows_is_given_and_fewer_are_its_beginning(count):
    """Distinct boxes inside the image; the complete levels are those of any larger number."""
    boxes = window_boxes(count)
    assert boxes.shape == (count, 4)
    assert boxes.dtype == np.float32
    assert len(np.unique(boxes, axis=0)) == count
    assert boxes.min() >= 0
    assert boxes.max() <= 1 + 1e-6
    whole = max(total for total in np.cumsum(np.arange(1, 20) ** 2) if total <= count)
    np.testing.assert_array_equal(boxes[:whole], window_boxes(count + 50)[:whole])


@pytest.mark.parametrize("count", [0, -1, LARGEST + 1, 2.0, True])
def test_impossible_numbers_of_regions_are_one_line(count):
    """The message names the value and the range."""
    with pytest.raises(InputError, match=f"regions must be a whole number from 1 to {LARGEST}, got"):
        window_boxes(count)


def test_a_region_is_the_mean_over_the_area_of_its_box():
    """Equal to counting points; weights are not negative and sum to one."""
    boxes = np.array([[0, 0, 1, 1], [0.1, 0.25, 0.65, 0.9], [0.5, 0.5, 0.75, 1], [0.3, 0.3, 0.4, 0.35]], np.float32)
    found = region_weights(boxes, (3, 4))
    assert found.shape == (4, 12)
    for row, box in zip(found, boxes, strict=True):
        np.testing.assert_allclose(row, naive_weights(box, 3, 4), atol=0.02)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(found[0], 1 / 12, rtol=1e-6)


def test_a_box_without_area_takes_the_cell_it_lies_in():
    """Also at the far border, and for many images at once."""
    boxes = np.array([[[0.5, 0.5, 0.5, 0.5]], [[1, 1, 1, 1]]], np.float32)
    found = region_weights(boxes, (3, 3))
    assert found.shape == (2, 1, 9)
    np.testing.assert_allclose(found[0, 0], np.eye(9)[4], atol=1e-6)
    np.testing.assert_allclose(found[1, 0], np.eye(9)[8], atol=1e-6)


@pytest.mark.parametrize("how", [efficientnet_lite(112), imagenet(112)])
def test_selective_search_finds_objects_and_windows_fill_the_rest(how):
    """Each object has a box close to it; the same pixels give the same boxes, and small ones are left out."""
    pytest.importorskip("cv2.ximgproc")
    pixels = load_pixels(drawing(), how)
    boxes = propose_boxes(pixels, how, 60, "selective-search")
    assert boxes.shape == (60, 4)
    np.testing.assert_array_equal(boxes, propose_boxes(pixels, how, 60, "selective-search"))
    for wanted in ([10 / 128, 20 / 96, 50 / 128, 60 / 96], [80 / 128, 30 / 96, 110 / 128, 90 / 96]):
        assert np.abs(boxes - wanted).max(axis=1).min() < 0.05
    assert areas(boxes).min() >= SMALLEST_AREA
    found = next(n for n in range(60) if (boxes[n:] == window_boxes(60)[: 60 - n]).all())
    assert 2 <= found < 60
    assert areas(boxes[:found]).tolist() == sorted(areas(boxes[:found]), reverse=True)


def test_few_proposals_are_of_all_sizes():
    """Fewer boxes than proposals: the largest and the smallest proposal stay, largest first."""
    pytest.importorskip("cv2.ximgproc")
    how = efficientnet_lite(112)
    pixels = load_pixels(picture(3), how)
    many, few = (propose_boxes(pixels, how, count, "selective-search") for count in (400, 3))
    assert areas(few).tolist() == sorted(areas(few), reverse=True)
    np.testing.assert_array_equal(few[0], many[0])


def test_unknown_methods_are_named():
    """The message lists what there is."""
    how = efficientnet_lite(112)
    with pytest.raises(InputError, match="unknown boxes 'detector'"):
        propose_boxes(load_pixels(drawing(), how), how, 4, "detector")

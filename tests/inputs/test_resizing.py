"""Resizing: the plain one by its formula, the others by Pillow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.inputs import naive
from tests.inputs.pictures import gradient

from vse.errors import InputError
from vse.inputs import resize
from vse.inputs.resizing import WHOLE

SIDES = st.integers(1, 24)


@st.composite
def pictures(draw, height=SIDES, width=SIDES):
    """Noise of uint8 or float32, in several memory layouts."""
    shape = (draw(height), draw(width), 3)
    picture = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(0, 256, shape, dtype=np.uint8)
    if draw(st.booleans()):
        picture = picture.astype(np.float32)
    return draw(st.sampled_from([picture, picture.copy("F"), picture[::-1, ::-1], picture[:, :, ::-1]]))


@given(picture=pictures(), height=SIDES, width=SIDES)
def test_plain_bilinear_by_hand(picture, height, width):
    """Larger or smaller on either axis, every pixel is the weighted mean of its four neighbours."""
    found = resize(picture, (height, width), "plain-bilinear")
    assert found.dtype == np.float32
    assert found.shape == (height, width, 3)
    np.testing.assert_allclose(found, naive.plain_bilinear(picture, (height, width)), rtol=0, atol=1e-3)


@given(
    picture=pictures(st.integers(1, 300), st.integers(1, 300)), height=st.integers(1, 300), width=st.integers(1, 300)
)
def test_plain_bilinear_is_that_of_torch(picture, height, width):
    """torch's interpolate without antialiasing and without aligned corners gives the same."""
    torch = pytest.importorskip("torch")
    source = torch.from_numpy(picture.astype(np.float64, order="C").copy()).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(
        source, size=(height, width), mode="bilinear", align_corners=False, antialias=False
    )
    found = resize(picture, (height, width), "plain-bilinear")
    np.testing.assert_allclose(found, expected[0].permute(1, 2, 0), rtol=0, atol=1e-3)


@given(picture=pictures())
def test_resize_to_same_size_changes_nothing(picture):
    """And gives a copy, never the input."""
    before = picture.copy()
    found = resize(picture, picture.shape[:2], "plain-bilinear")
    assert np.array_equal(found, picture)
    assert not np.shares_memory(found, picture)
    found += 1
    assert np.array_equal(picture, before)


@given(picture=pictures(), height=SIDES, width=SIDES)
def test_resize_does_not_write_to_input(picture, height, width):
    """Also when the arithmetic is done in place."""
    before = picture.copy()
    resize(picture, (height, width), "plain-bilinear")
    assert np.array_equal(picture, before)


@given(height=SIDES, width=SIDES, value=st.integers(0, 255))
def test_resize_keeps_uniform_colour(height, width, value):
    """No rounding error creeps into a flat image."""
    assert (resize(np.full((7, 9, 3), value, np.uint8), (height, width), "plain-bilinear") == value).all()


@pytest.mark.parametrize(("method", "filter_"), [("bilinear", "BILINEAR"), ("bicubic", "BICUBIC")])
@pytest.mark.parametrize("size", [(5, 7), (30, 50), (12, 20)])
def test_bilinear_and_bicubic_are_pillows(method, filter_, size):
    """Pillow's own resize, as floats."""
    expected = Image.fromarray(gradient()).resize((size[1], size[0]), Image.Resampling[filter_])
    found = resize(gradient(), size, method)
    assert found.dtype == np.float32
    assert np.array_equal(found, np.asarray(expected))


def test_plain_bilinear_is_not_antialiased():
    """One white row in eight, reduced by eight: the plain method sees two rows of each eight, others all of them."""
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[3::8] = 255
    assert np.allclose(resize(stripes, (8, 8), "plain-bilinear"), 255 / 2)
    assert np.allclose(resize(stripes, (8, 8), "bilinear")[1:-1], 255 / 8, atol=1)
    stripes = np.roll(stripes, 2, axis=0)
    assert np.allclose(resize(stripes, (8, 8), "plain-bilinear"), 0)
    assert np.allclose(resize(stripes, (8, 8), "bilinear")[1:-1], 255 / 8, atol=1)


@given(data=st.data(), picture=pictures(), height=SIDES, width=SIDES)
def test_resize_window_is_part_of_whole_result(data, picture, height, width):
    """Whichever rows and columns are asked for, they are those of the whole result, exactly."""
    method = data.draw(st.sampled_from(["plain-bilinear", "bilinear", "bicubic"]))
    if method != "plain-bilinear":
        picture = picture.astype(np.uint8)
    rows, columns = (
        slice(start, data.draw(st.integers(start + 1, side)))
        for side in (height, width)
        for start in [data.draw(st.integers(0, side - 1))]
    )
    whole = resize(picture, (height, width), method)
    if whole.size > WHOLE * whole[rows, columns].size:
        method = "plain-bilinear"
        whole = resize(picture, (height, width), method)
    found = resize(picture, (height, width), method, window=(rows, columns))
    assert found.dtype == np.float32
    assert np.array_equal(found, whole[rows, columns])
    assert not np.shares_memory(found, picture)


@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("rows", "columns"), [(2, 900), (900, 2), (37, 4000), (3, 200)])
def test_resize_small_window_of_large_result(method, rows, columns):
    """Where Pillow does not make the whole, the part differs by its rounding alone, also at both ends."""
    picture = np.random.default_rng(0).integers(64, 192, (rows, columns, 3), dtype=np.uint8)  # nothing is clipped
    scale = max(40 / rows, 40 / columns)
    size = (round(rows * scale), round(columns * scale))
    whole = resize(picture, size, method)
    for start in (0, 0.3, 0.5, 1):
        top, left = (int(start * (side - 40)) for side in size)
        window = slice(top, top + 40), slice(left, left + 40)
        found = resize(picture, size, method, window=window)
        assert whole.size > WHOLE * found.size
        np.testing.assert_allclose(found, whole[window], rtol=0, atol=2)
        assert np.abs(found - whole[window]).mean() < 0.5


@pytest.mark.parametrize(
    ("picture", "size", "method", "message"),
    [
        (gradient(), (0, 5), "bilinear", "0 x 5"),
        (gradient(), (5, -1), "plain-bilinear", "5 x -1"),
        (gradient()[:, :, 0], (5, 5), "plain-bilinear", r"\(12, 20\)"),
        (gradient()[:0], (5, 5), "plain-bilinear", r"\(0, 20, 3\)"),
        (gradient().astype(np.float64), (5, 5), "plain-bilinear", "float64"),
        (gradient().astype(np.float32), (5, 5), "bicubic", "float32"),
        (gradient(), (5, 5), "bilinaer", "unknown resize method 'bilinaer'.*did you mean 'bilinear'"),
    ],
)
def test_resize_names_invalid_argument(picture, size, method, message):
    """The bad value is named."""
    with pytest.raises(InputError, match=message):
        resize(picture, size, method)


@pytest.mark.parametrize(
    "window", [(slice(0, 6), slice(0, 5)), (slice(-1, 3), slice(0, 5)), (slice(0, 5), slice(3, 3))]
)
def test_resize_window_outside_result_is_refused(window):
    """Is refused; it would be filled with whatever lies at the edge."""
    with pytest.raises(InputError, match="outside of 5 x 5"):
        resize(gradient(), (5, 5), "plain-bilinear", window=window)

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
def test_the_same_size_changes_nothing(picture):
    """And gives a copy, never the input."""
    before = picture.copy()
    found = resize(picture, picture.shape[:2], "plain-bilinear")
    assert np.array_equal(found, picture)
    assert not np.shares_memory(found, picture)
    found += 1
    assert np.array_equal(picture, before)


@given(picture=pictures(), height=SIDES, width=SIDES)
def test_the_input_is_not_written_to(picture, height, width):
    """Also when the arithmetic is done in place."""
    before = picture.copy()
    resize(picture, (height, width), "plain-bilinear")
    assert np.array_equal(picture, before)


@given(height=SIDES, width=SIDES, value=st.integers(0, 255))
def test_one_colour_stays_exactly(height, width, value):
    """No rounding error creeps into a flat picture."""
    assert (resize(np.full((7, 9, 3), value, np.uint8), (height, width), "plain-bilinear") == value).all()


@pytest.mark.parametrize(("method", "filter_"), [("bilinear", "BILINEAR"), ("bicubic", "BICUBIC")])
@pytest.mark.parametrize("size", [(5, 7), (30, 50), (12, 20)])
def test_the_others_are_pillows(method, filter_, size):
    """Pillow's own resize, as floats."""
    expected = Image.fromarray(gradient()).resize((size[1], size[0]), Image.Resampling[filter_])
    found = resize(gradient(), size, method)
    assert found.dtype == np.float32
    assert np.array_equal(found, np.asarray(expected))


def test_plain_is_not_antialiased():
    """One white row in eight, reduced by eight: the plain method sees two rows of each eight, others all of them."""
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[3::8] = 255
    assert np.allclose(resize(stripes, (8, 8), "plain-bilinear"), 255 / 2)
    assert np.allclose(resize(stripes, (8, 8), "bilinear")[1:-1], 255 / 8, atol=1)
    stripes = np.roll(stripes, 2, axis=0)
    assert np.allclose(resize(stripes, (8, 8), "plain-bilinear"), 0)
    assert np.allclose(resize(stripes, (8, 8), "bilinear")[1:-1], 255 / 8, atol=1)


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
def test_wrong_arguments(picture, size, method, message):
    """The bad value is named."""
    with pytest.raises(InputError, match=message):
        resize(picture, size, method)

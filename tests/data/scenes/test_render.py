"""Rendering: the image shows the objects where the scene says, and nothing else of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.data.scenes import Background, Group, Scene, Shape, render, sample_scene
from vse.data.scenes.scene import KINDS, PALETTE
from vse.errors import InputError

PLAIN = Background("plain", ((200, 200, 200), (200, 200, 200)), angle=0, waves=1, seed=0)


def one_shape(kind: str, turn: float = 0.0) -> Scene:
    shape = Shape(kind, "red", "large", x=0.5, y=0.5, radius=0.4, turn=turn, rgb=PALETTE["red"])
    return Scene("row", (Group(kind, "red", "large", (shape,)),), PLAIN, ())


@given(st.integers(0, 20_000), st.sampled_from([32, 100, 128]))
def test_objects_change_pixels_within_their_circles_only(index, size):
    """With and without its objects, an image differs inside every object's circle and nowhere outside of them."""
    scene = sample_scene(0, "train", index)
    drawn = np.asarray(render(scene, size), dtype=int)
    empty = np.asarray(render(replace(scene, groups=()), size), dtype=int)
    changed = np.abs(drawn - empty).sum(axis=2) > 0
    centres = (np.arange(size) + 0.5) / size
    inside = np.zeros((size, size), dtype=bool)
    for shape in scene.shapes:
        distance = np.hypot(centres[None, :] - shape.x, centres[:, None] - shape.y)
        assert changed[distance < shape.radius].any()
        inside |= distance < shape.radius + 1.5 / size
    assert not changed[~inside].any()


@given(st.integers(0, 2000))
def test_objects_have_their_color(index):
    """The middle of an object has exactly the object's colour; a ring has it on the ring."""
    scene, size = sample_scene(0, "test", index), 128
    picture = render(scene, size)
    for shape in scene.shapes:
        reach = 0.8 * shape.radius if shape.kind == "ring" else 0.0
        assert picture.getpixel((int((shape.x + reach) * size), int(shape.y * size))) == shape.rgb


def test_scene_kinds_cover_different_pixels():
    """No two kinds cover the same pixels, and a ring leaves its middle open."""
    masks = {kind: np.asarray(render(one_shape(kind)), dtype=int)[..., 1] < 116 for kind in KINDS}
    for one in KINDS:
        for other in KINDS:
            if one != other:
                assert (masks[one] ^ masks[other]).sum() > 0.1 * min(masks[one].sum(), masks[other].sum())
    assert not masks["ring"][64, 64]
    assert all(masks[kind][64, 64] for kind in KINDS if kind != "ring")


def test_scene_shapes_are_upright():
    """A triangle stands on its base, a heart on its tip; turning changes a square and not a circle."""
    for kind, heavy_half in (("triangle", slice(64, None)), ("heart", slice(None, 64))):
        mask = np.asarray(render(one_shape(kind)), dtype=int)[..., 1] < 116
        assert mask[heavy_half].sum() > mask.sum() / 2
    assert render(one_shape("square", 12.0)).tobytes() != render(one_shape("square")).tobytes()
    assert render(one_shape("circle", 12.0)).tobytes() == render(one_shape("circle")).tobytes()


def test_scene_edges_are_antialiased():
    """Between an object and the background lie shades of both."""
    assert len(np.unique(np.asarray(render(one_shape("star")))[..., 1])) > 4


@pytest.mark.parametrize("size", [32, 127, 128, 300])
def test_rendered_scene_is_square_rgb_and_deterministic(size):
    """Any size gives RGB pixels of that size, twice the same."""
    scene = sample_scene(0, "dev", 3)
    picture = render(scene, size)
    assert picture.mode == "RGB"
    assert picture.size == (size, size)
    assert picture.tobytes() == render(scene, size).tobytes()


@pytest.mark.parametrize("texture", ["plain", "gradient", "stripes", "checks", "clouds"])
def test_background_is_between_its_tones(texture):
    """Every texture uses the two tones and what lies between, and only the plain one is flat."""
    background = Background(texture, ((100, 110, 120), (150, 160, 170)), angle=30, waves=4, seed=7)
    pixels = np.asarray(render(Scene("row", (), background, ()), 64))
    assert (pixels >= [100, 110, 120]).all()
    assert (pixels <= [150, 160, 170]).all()
    assert (len(np.unique(pixels[..., 0])) == 1) == (texture == "plain")


@pytest.mark.parametrize("size", [0, -1, 31, 2049, 64.0, "64", None, True])
def test_render_refuses_invalid_size(size):
    """Sizes without room for an image, and values that are no size, are refused with the value."""
    with pytest.raises(InputError, match=f"size.*{size!r}"):
        render(sample_scene(0, "train", 0), size)

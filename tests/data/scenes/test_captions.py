"""Captions: five, different, and true by an independent reading of the sentence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.scenes.naive import is_true

from vse.data.scenes import KeyedRandom, caption_scene, describe, sample_scene
from vse.data.scenes.vocabulary import SPLITS

# fmt: off
WORDING = (
    "left of", "to the left of", "right of", "to the right of", "above", "over", "below", "under", "beneath",
    "to its left", "to their right", "above it", "below them", "large", "big", "small", "little", "a single", "one",
    "two", "three", "four", "some", "several", "disc", "plus sign", "hoops", "rhombuses", "violet", "an orange",
    "shapes:", "there is", "there are", "with", "and",
)
# fmt: on


@given(st.integers(0, 10**6), st.sampled_from(SPLITS), st.integers(0, 10**6), st.integers(0, 10**6))
def test_every_caption_is_true(seed, split, index, wording):
    """Whatever the scene and the draw of words, all five captions are different and hold of the objects."""
    scene = sample_scene(seed, split, index)
    captions = describe(scene, KeyedRandom(wording))
    assert len({caption.removesuffix(".") for caption in captions}) == 5
    for caption in captions:
        assert is_true(caption, scene.shapes), caption


def test_many_scenes_are_captioned_truly():
    """The same for the captions that data sets get, scene after scene."""
    for index in range(400):
        scene = sample_scene(0, "train", index)
        assert all(is_true(caption, scene.shapes) for caption in caption_scene(scene, 0, "train", index))


def test_captions_tell_near_misses_apart():
    """Most captions are false of the other scenes of the family, though they share all words."""
    false = total = 0
    for family in range(40):
        scenes = [sample_scene(1, "test", 4 * family + member) for member in range(4)]
        for member, scene in enumerate(scenes):
            for caption in caption_scene(scene, 1, "test", 4 * family + member):
                verdicts = [is_true(caption, other.shapes) for other in scenes if other is not scene]
                false += verdicts.count(False)
                total += len(verdicts)
    assert false > 0.6 * total


def test_wording_varies():
    """Every word for a place, a size, a number and a construction comes up; a full stop is there or not."""
    captions = [caption for i in range(300) for caption in caption_scene(sample_scene(0, "dev", i), 0, "dev", i)]
    text = " ".join(f" {caption} " for caption in captions)
    for words in WORDING:
        assert f" {words} " in text.replace(".", ""), words
    stops = sum(caption.endswith(".") for caption in captions)
    assert 0.3 < stops / len(captions) < 0.7


def thing(kind, color, x, y, radius=0.05):
    return SimpleNamespace(kind=kind, color=color, x=x, y=y, radius=radius)


OBJECTS = [thing("circle", "red", 0.2, 0.2, 0.1), thing("square", "blue", 0.7, 0.6), thing("square", "blue", 0.8, 0.9)]


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a large red circle left of two small blue squares", True),
        ("a red circle above two blue squares.", True),
        ("two little squares are to the right of a disc", True),
        ("below a big circle are some blue shapes", True),
        ("three shapes: a red circle and two blue squares", True),
        ("a circle with two squares to its right", True),
        ("there is a red circle left of two squares and above two blue shapes", True),
        ("a large blue circle left of two small red squares", False),
        ("a small red circle left of two large blue squares", False),
        ("two blue squares left of a red circle", False),
        ("a red circle below two blue squares", False),
        ("a blue square and a red circle", False),
        ("several blue squares and a red circle", False),
        ("four shapes: a red circle and two blue squares", False),
        ("a circle with two squares to its left", False),
    ],
)
def test_the_reader_of_captions_can_tell(caption, expected):
    """The checker itself: it finds true sentences true and false ones false."""
    assert is_true(caption, OBJECTS) is expected


@pytest.mark.parametrize(
    "caption",
    [
        "a orange circle and two squares",
        "an red circle and two squares",
        "two square and a circle",
        "there are a circle and two squares",
        "two squares is left of a circle",
        "a circle with two squares to their right",
        "a circle near two squares",
        "A circle and two squares",
        "a circle",
    ],
)
def test_the_reader_of_captions_refuses_what_it_cannot_read(caption):
    """Bad grammar and unknown constructions are errors, never passed over."""
    with pytest.raises(ValueError):  # noqa: PT011 (any refusal will do)
        is_true(caption, OBJECTS)

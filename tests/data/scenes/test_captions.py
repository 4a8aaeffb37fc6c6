"""Captions: five, different, and true by an independent reading of the sentence."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.scenes.naive import is_true, meaning, shown

from vse.data.scenes import KeyedRandom, caption_scene, describe, sample_scene
from vse.data.scenes.scene import SPLITS

# fmt: off
WORDING = (
    "left of", "to the left of", "right of", "to the right of", "above", "over", "below", "under", "beneath",
    "to its left", "to their right", "above it", "below them", "large", "big", "small", "little", "a single", "one",
    "two", "three", "four", "disc", "plus sign", "hoops", "rhombuses", "violet", "an orange",
    "shapes:", "there is", "there are", "with", "and",
)
# fmt: on


@given(st.integers(0, 10**6), st.sampled_from(SPLITS), st.integers(0, 2000), st.integers(0, 10**6))
def test_scene_captions_are_true(seed, split, index, wording):
    """Whatever the scene and the draw of words, all five captions are different and hold of the objects."""
    scene = sample_scene(seed, split, index)
    captions = describe(scene, KeyedRandom(wording))
    assert len({caption.removesuffix(".") for caption in captions}) == 5
    for caption in captions:
        assert is_true(caption, scene.shapes), caption


def test_captions_of_many_scenes_are_true():
    """The same for the captions that datasets get, scene after scene."""
    for index in range(400):
        scene = sample_scene(0, "train", index)
        assert all(is_true(caption, scene.shapes) for caption in caption_scene(scene, 0, "train", index))


@pytest.mark.parametrize("seed", [0, 1])
def test_oracle_retrieves_every_scene(seed):
    """In a gallery of 600 scenes, what a caption names is what its own scene shows, and what no other scene shows.

    Hence a model that reads and sees perfectly ranks the own scene first and alone, for all captions, both ways.
    """
    scenes = [sample_scene(seed, "test", index) for index in range(600)]
    gallery: dict[tuple, list[int]] = {}
    for index, scene in enumerate(scenes):
        gallery.setdefault(shown(scene.shapes), []).append(index)
    seen: dict[str, int] = {}
    for index, scene in enumerate(scenes):
        for caption in caption_scene(scene, seed, "test", index):
            assert gallery[meaning(caption)] == [index], caption
            assert seen.setdefault(caption.removesuffix("."), index) == index, caption


def test_scene_caption_is_true_of_one_scene():
    """Read word by word, a caption holds of its own scene and of no other one, though none of them says "only"."""
    scenes = [sample_scene(1, "test", index) for index in range(80)]
    for index, scene in enumerate(scenes):
        for caption in caption_scene(scene, 1, "test", index):
            assert [other for other in range(80) if is_true(caption, scenes[other].shapes)] == [index], caption


def test_scenes_do_not_contain_each_other():
    """The groups of a scene are never among the groups of another one, in 2,000 scenes of a split."""
    meanings = [frozenset(shown(sample_scene(2, "train", index).shapes)) for index in range(2000)]
    known = set(meanings)
    assert len(known) == len(meanings)
    for groups in meanings:
        assert not any(frozenset(part) in known for part in combinations(groups, len(groups) - 1))


def test_scene_caption_wording_varies():
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
        ("two little blue squares are to the right of a red disc", True),
        ("below a big red circle are two blue squares", True),
        ("three shapes: a red circle and two blue squares", True),
        ("a red circle with two blue squares to its right", True),
        ("there is a red circle left of two blue squares and above two blue squares", True),
        ("left of two blue squares and above two blue squares is a red circle", True),
        ("a red circle with two blue squares to its right and two blue squares below it", True),
        ("a large blue circle left of two small red squares", False),
        ("a small red circle left of two large blue squares", False),
        ("two blue squares left of a red circle", False),
        ("a red circle below two blue squares", False),
        ("a red circle left of two blue squares and below two blue squares", False),
        ("a blue square and a red circle", False),
        ("three blue squares and a red circle", False),
        ("four shapes: a red circle and two blue squares", False),
        ("a red circle with two blue squares to its left", False),
        ("a red circle with two blue squares to its right and two blue squares above it", False),
    ],
)
def test_caption_reader_distinguishes_scenes(caption, expected):
    """The checker itself: it finds true sentences true and false ones false."""
    assert is_true(caption, OBJECTS) is expected


def test_meaning_reader_agrees_with_objects():
    """The other checker: number, colour and kind of the groups, whatever else is said."""
    expected = ((1, "red", "circle"), (2, "blue", "square"))
    assert shown(OBJECTS) == expected
    assert meaning("three shapes: two little blue squares and a single red disc.") == expected
    assert meaning("below a big red circle are two blue squares") == expected


@pytest.mark.parametrize(
    "caption",
    [
        "a orange circle and two blue squares",
        "an red circle and two blue squares",
        "two blue square and a red circle",
        "there are a red circle and two blue squares",
        "two blue squares is left of a red circle",
        "a red circle with two blue squares to their right",
        "a red circle near two blue squares",
        "A red circle and two blue squares",
        "a circle and two blue squares",
        "a red circle",
    ],
)
def test_caption_reader_refuses_unknown_captions(caption):
    """Bad grammar and unknown constructions are errors, never passed over."""
    with pytest.raises(ValueError):  # noqa: PT011 (any refusal will do)
        is_true(caption, OBJECTS)

"""Sampled scenes: fixed by their key, free of overlaps, in families, and in one split each."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.data.scenes import KeyedRandom, caption_scene, sample_scene
from vse.data.scenes.layout import LAYOUTS, place, slots
from vse.data.scenes.vocabulary import COLORS, KINDS, RADII, SPLITS
from vse.errors import InputError

SCENES = st.builds(sample_scene, st.integers(0, 2**32 - 1), st.sampled_from(SPLITS), st.integers(0, 2**32 - 1))


def words(scene) -> tuple:
    """Everything the scene is made of, with what belongs to what forgotten."""
    groups = scene.groups
    return (
        scene.layout,
        tuple(sorted(group.kind for group in groups)),
        tuple(sorted(group.color for group in groups)),
        tuple(sorted(group.size for group in groups)),
        tuple(sorted(len(group.shapes) for group in groups)),
    )


def bindings(scene) -> tuple:
    """What the scene shows as symbols: which group stands where."""
    return scene.layout, tuple((group.kind, group.color, group.size, len(group.shapes)) for group in scene.groups)


@pytest.mark.parametrize(
    ("key", "fingerprint", "caption"),
    [
        ((0, "train", 0), "69600d3d00ba125d", "three little pink hearts with two small orange crosses to their right"),
        ((0, "train", 1), "db1d23ab88cd476a", "five shapes: three pink hearts and two orange crosses"),
        ((0, "dev", 0), "362c7438d5227e26", "below two little green rings is a little red ring."),
        ((0, "test", 7), "9b84b106e1b6091b", "there are three big yellow rhombuses to the left of a big violet heart"),
        ((4294967295, "test", 123456), "a9e18b8b99919db4", "right of two small purple hoops is one large yellow heart"),
    ],
)
def test_scenes_are_fixed_for_good(key, fingerprint, caption):
    """A key gives the same scene and captions in every version; a change here needs another FORMAT in dataset.py."""
    scene = sample_scene(*key)
    assert scene.fingerprint() == fingerprint
    assert caption_scene(scene, *key)[0] == caption


def test_another_process_makes_the_same_scenes():
    """Neither the process nor its hash seed nor the scenes made before have a part in it."""
    program = (
        "import hashlib, json; from vse.data.scenes import *;"
        "scenes = {i: sample_scene(3, 'dev', i) for i in (5, 0, 9)};"
        "print(json.dumps([[i, s.fingerprint(), caption_scene(s, 3, 'dev', i),"
        " hashlib.sha256(render(s, 64).tobytes()).hexdigest()] for i, s in sorted(scenes.items())]))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    for index, fingerprint, captions, _ in json.loads(outputs[0]):
        scene = sample_scene(3, "dev", index)
        assert scene.fingerprint() == fingerprint
        assert caption_scene(scene, 3, "dev", index) == captions


@given(SCENES)
def test_objects_neither_overlap_nor_leave_the_picture(scene):
    """The circles around all objects lie apart from each other and inside the unit square."""
    for shape in scene.shapes:
        assert shape.radius < shape.x < 1 - shape.radius
        assert shape.radius < shape.y < 1 - shape.radius
    for one, other in combinations(scene.shapes, 2):
        assert math.dist((one.x, one.y), (other.x, other.y)) > one.radius + other.radius


@given(SCENES)
def test_scenes_are_made_of_the_vocabulary(scene):
    """Two or three groups of one to four objects, told apart by kind and colour; sizes are far apart in radius."""
    assert 2 <= len(scene.groups) <= 3
    assert len({(group.kind, group.color) for group in scene.groups}) == len(scene.groups)
    for group in scene.groups:
        assert group.kind in KINDS
        assert group.color in COLORS
        assert 1 <= len(group.shapes) <= 4
        for shape in group.shapes:
            assert (shape.kind, shape.color, shape.size) == (group.kind, group.color, group.size)
            assert shape.radius < 0.065 if shape.size == "small" else shape.radius > 0.085
    assert scene.clutter


@given(st.integers(0, 1000), st.sampled_from(SPLITS), st.integers(0, 1000))
def test_four_scenes_in_a_row_share_all_words(seed, split, family):
    """Scenes 4f to 4f + 3 are four different scenes of the same words."""
    scenes = [sample_scene(seed, split, 4 * family + member) for member in range(4)]
    assert len({words(scene) for scene in scenes}) == 1
    assert len({bindings(scene) for scene in scenes}) == 4


def test_exchanged_colors_are_common():
    """Most families hold a pair of scenes that differ in nothing but which group has which colour."""
    found = 0
    for family in range(50):
        one, two = (sample_scene(0, "train", 4 * family + member) for member in (0, 1))
        without = [[(group.kind, group.size, len(group.shapes)) for group in scene.groups] for scene in (one, two)]
        found += without[0] == without[1]
    assert found > 30


def test_no_words_are_in_two_splits():
    """The splits share no scene, and not even a near miss; this holds across seeds."""
    seen = {
        split: {words(sample_scene(seed, split, 4 * family)) for seed in range(4) for family in range(60)}
        for split in SPLITS
    }
    for one, other in combinations(SPLITS, 2):
        assert not seen[one] & seen[other]


def test_every_word_is_in_use():
    """Forty families of a split show all kinds, all colours and all layouts."""
    scenes = [sample_scene(0, "test", 4 * family) for family in range(40)]
    assert {group.kind for scene in scenes for group in scene.groups} == set(KINDS)
    assert {group.color for scene in scenes for group in scene.groups} == set(COLORS)
    assert {scene.layout for scene in scenes} == set(LAYOUTS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_there_is_room_for_everything_that_can_be_drawn(layout):
    """Up to eight objects in groups of up to four fit into every layout, whatever their sizes."""
    for counts in product(range(1, 5), repeat=slots(layout)):
        for sizes in product(RADII, repeat=slots(layout)):
            if sum(counts) <= 8:
                assert place(layout, counts, [RADII[size][1] for size in sizes], KeyedRandom(0)) is not None


def test_too_many_objects_are_noticed():
    """Where objects cannot stand apart, nothing is placed."""
    assert place("row", [4, 4], [0.2, 0.2], KeyedRandom(0)) is None


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((-1, "train", 0), "seed.*-1"),
        ((2**32, "train", 0), "seed.*4294967296"),
        ((0, "train", -1), "index.*-1"),
        ((0, "train", 1.5), r"index.*1\.5"),
        ((True, "train", 0), "seed.*True"),
        ((0, "val", 0), "split 'val'.*'train', 'dev', 'test'"),
    ],
)
def test_a_bad_key_is_named(key, message):
    """The error names what is wrong with the key, for scenes and for captions."""
    with pytest.raises(InputError, match=message):
        sample_scene(*key)
    with pytest.raises(InputError, match=message):
        caption_scene(sample_scene(0, "train", 0), *key)

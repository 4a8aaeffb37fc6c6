"""Sampled scenes: fixed by their key, free of overlaps, in pairs of near misses, and in one split each."""

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
from tests.data.scenes.naive import shown

from vse.data.scenes import KeyedRandom, caption_scene, sample_scene
from vse.data.scenes.sample import max_scenes
from vse.data.scenes.scene import COLORS, KINDS, LAYOUTS, RADII, SPLITS, place, slots
from vse.errors import InputError

SCENES = st.builds(sample_scene, st.integers(0, 2**32 - 1), st.sampled_from(SPLITS), st.integers(0, 2799))


def words(scene) -> tuple:
    """Everything the scene is made of, with what belongs to what forgotten."""
    groups = scene.groups
    return (
        tuple(sorted(group.kind for group in groups)),
        tuple(sorted(group.color for group in groups)),
        tuple(sorted(len(group.shapes) for group in groups)),
    )


@pytest.mark.parametrize(
    ("key", "fingerprint", "caption"),
    [
        ((0, "train", 0), "00a9e7d3a34c3404", "four violet squares with a green heart to their right."),
        ((0, "train", 1), "b94abf430bb378a9", "a green square to the left of four violet hearts"),
        ((0, "dev", 0), "aeba47cfd2e1c085", "left of an orange triangle are four blue circles."),
        ((0, "test", 7), "cc40d8c0bb7b1251", "three green hearts are to the right of two pink crosses"),
        (
            (4294967295, "test", 2345),
            "83fab73931a24f85",
            "two little green hoops to the left of a big pink triangle and under two large pink stars",
        ),
    ],
)
def test_scenes_are_pinned(key, fingerprint, caption):
    """A key gives the same scene and captions in every version; a change here needs another FORMAT in dataset.py."""
    scene = sample_scene(*key)
    assert scene.fingerprint() == fingerprint
    assert caption_scene(scene, *key)[0] == caption


def test_scenes_are_equal_across_processes():
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
def test_objects_neither_overlap_nor_leave_the_image(scene):
    """The circles around all objects lie apart from each other and inside the unit square."""
    for shape in scene.shapes:
        assert shape.radius < shape.x < 1 - shape.radius
        assert shape.radius < shape.y < 1 - shape.radius
    for one, other in combinations(scene.shapes, 2):
        assert math.dist((one.x, one.y), (other.x, other.y)) > one.radius + other.radius


@given(SCENES)
def test_scenes_use_the_vocabulary(scene):
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
def test_scene_pairs_share_all_words(seed, split, family):
    """Scenes 2f and 2f + 1 have the same kinds, colours, numbers and layout, and bind them differently."""
    one, two = (sample_scene(seed, split, 2 * family + member) for member in (0, 1))
    assert one.layout == two.layout
    assert words(one) == words(two)
    assert shown(one.shapes) != shown(two.shapes)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_scenes_of_a_split_have_distinct_meanings(split):
    """Up to the last scene that a split has, none shows what another one shows."""
    number = max_scenes(split)
    assert number >= 2000
    assert len({shown(sample_scene(0, split, index).shapes) for index in range(number)}) == number


def test_scene_families_are_in_one_split():
    """The splits share no scene, and not even a near miss; this holds across seeds."""
    seen = {
        split: {words(sample_scene(seed, split, 2 * family)) for seed in range(4) for family in range(200)}
        for split in SPLITS
    }
    for one, other in combinations(SPLITS, 2):
        assert not seen[one] & seen[other]


def test_scenes_use_every_word():
    """Sixty families of a split show all kinds, all colours and all layouts."""
    scenes = [sample_scene(0, "test", 2 * family) for family in range(60)]
    assert {group.kind for scene in scenes for group in scene.groups} == set(KINDS)
    assert {group.color for scene in scenes for group in scene.groups} == set(COLORS)
    assert {scene.layout for scene in scenes} == set(LAYOUTS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_room_for_its_objects(layout):
    """Up to eight objects in groups of up to four fit into every layout, whatever their sizes."""
    for counts in product(range(1, 5), repeat=slots(layout)):
        for sizes in product(RADII, repeat=slots(layout)):
            if sum(counts) <= 8:
                assert place(layout, counts, [RADII[size][1] for size in sizes], KeyedRandom(0)) is not None


def test_sampling_reports_too_many_objects():
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
        ((0, "test", max_scenes("test")), "index must be below .*'test'"),
        ((0, "val", 0), "split 'val'.*'train', 'dev', 'test'"),
    ],
)
def test_sampling_names_invalid_key(key, message):
    """The error names what is wrong with the key, for scenes and for captions."""
    with pytest.raises(InputError, match=message):
        sample_scene(*key)
    with pytest.raises(InputError, match=message):
        caption_scene(sample_scene(0, "train", 0), *key)

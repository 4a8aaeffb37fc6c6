"""Sample a scene and its captions from a key: seed, split and index."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Any

from numpy.typing import NDArray

from vse.data.scenes.captions import describe
from vse.data.scenes.keyed import KEY_LIMIT, KeyedRandom
from vse.data.scenes.scene import (
    COLORS,
    KINDS,
    LAYOUTS,
    PALETTE,
    RADII,
    RGB,
    SIZES,
    SPLITS,
    Background,
    Color,
    Content,
    Group,
    Kind,
    Part,
    Point,
    Scene,
    Shape,
    Split,
    Stroke,
    Texture,
    place,
    slots,
)
from vse.errors import InputError, VSEError, unknown_choice

FAMILY_SIZE = 2
EVERY = 3
"""One family in this many has two groups, the others have three."""
COUNTS = {
    2: ((1, 4), (2, 3), (2, 4), (3, 3), (3, 4), (4, 4)),
    3: ((1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 2, 2), (2, 2, 2)),
}
"""Numbers of objects by the number of groups."""
SHARES: tuple[Split, ...] = ("train", "train", "train", "train", "train", "train", "train", "train", "dev", "test")


@dataclass(frozen=True)
class Family:
    """The words of a scene without their binding to groups."""

    kinds: tuple[Kind, ...]
    colors: tuple[Color, ...]
    counts: tuple[int, ...]

    def members(self) -> list[tuple[tuple[Kind, Color, int], ...]]:
        """All bindings of the words to groups that differ in kind or color, in a fixed order."""
        bound = {
            tuple(sorted(zip(self.kinds, colors, counts, strict=True)))
            for colors, counts in product(permutations(self.colors), permutations(self.counts))
        }
        return [groups for groups in sorted(bound) if len({group[:2] for group in groups}) == len(groups)]


def family_of(seed: int, split: Split, number: int) -> Family:
    """Return family ``number`` of a split; different numbers give different families."""
    triple, rest = divmod(number, EVERY)
    groups, rank = (2, triple) if rest == 0 else (3, (EVERY - 1) * triple + rest - 1)
    return _families(groups)[_dealt(groups, split)[_order(seed, groups, split)[rank]]]


def max_scenes(split: Split) -> int:
    """Return the number of scenes of a split."""
    return FAMILY_SIZE * EVERY * min(len(_dealt(2, split)), len(_dealt(3, split)) // (EVERY - 1))


@lru_cache
def _families(groups: int) -> list[Family]:
    """Return all families; two of three groups may share their kind or their color, but not both."""
    kinds, colors = list(combinations(KINDS, groups)), list(combinations(COLORS, groups))
    words: list[tuple[tuple[Kind, ...], tuple[Color, ...]]] = list(product(kinds, colors))
    if groups > 2:
        words += product([(kind, kind, other) for kind, other in permutations(KINDS, 2)], colors)
        words += product(kinds, [(color, color, other) for color, other in permutations(COLORS, 2)])
    return [Family(*both, counts) for both, counts in product(words, COUNTS[groups])]


# The keys below have two and three numbers, those of scenes have more: no stream is used twice.
@lru_cache
def _dealt(groups: int, split: Split) -> NDArray[Any]:
    """Return the positions in the list of all families that belong to the split, for any seed."""
    places = KeyedRandom(0, groups).permutation(len(_families(groups)))
    mine = [place for place in range(len(places)) if SHARES[place % len(SHARES)] == split]
    return places[mine]


@lru_cache(maxsize=64)
def _order(seed: int, groups: int, split: Split) -> NDArray[Any]:
    return KeyedRandom(seed, SPLITS.index(split), groups).permutation(len(_dealt(groups, split)))


CONTENT_STREAM = 0
GEOMETRY_STREAM = 1
CAPTION_STREAM = 2
TEXTURES: tuple[Texture, ...] = ("plain", "gradient", "stripes", "checks", "clouds")
TURN = 12.0
"""Objects are rotated by at most this many degrees: a square rotated by 45 would be a diamond."""
COLOR_JITTER = 14
STROKES = (6, 18)


def sample_scene(seed: int, split: Split, index: int) -> Scene:
    """Return scene ``index`` of a split, the same on every machine and in any order.

    No two indices of a split give scenes of the same meaning, so that a caption of one is not true of another; this
    limits their number, see :func:`~vse.data.scenes.sample.max_scenes`. The meanings of the three splits are disjoint,
    for equal and for different seeds.
    """
    split_number = _check_key(seed, split, index)
    content = _content(seed, split, index)
    rng = KeyedRandom(seed, split_number, GEOMETRY_STREAM, index)
    counts = [part.count for part in content.parts]
    centres = place(content.layout, counts, [RADII[part.size][1] for part in content.parts], rng)
    if centres is None:
        raise VSEError(f"no room for {content}: expected fewer or smaller objects")  # a test tries them all
    groups = tuple(_group(part, points, rng) for part, points in zip(content.parts, centres, strict=True))
    clutter = tuple(_stroke(rng) for _ in range(STROKES[0] + rng.below(STROKES[1] - STROKES[0] + 1)))
    return Scene(content.layout, groups, _background(rng), clutter)


def caption_scene(scene: Scene, seed: int, split: Split, index: int) -> list[str]:
    """Return the five captions of scene ``index`` of a split."""
    return describe(scene, KeyedRandom(seed, _check_key(seed, split, index), CAPTION_STREAM, index))


def _check_key(seed: int, split: Split, index: int) -> int:
    """Return the number of the split after checking all three."""
    if split not in SPLITS:
        raise InputError(unknown_choice("split", split, SPLITS))
    for name, value in (("seed", seed), ("index", index)):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < KEY_LIMIT:
            raise InputError(f"{name} must be an integer from 0 to 2^32 - 1, got {value!r}")
    if index >= max_scenes(split):
        raise InputError(f"index must be below {max_scenes(split)}, the number of scenes of {split!r}, got {index!r}")
    return SPLITS.index(split)


def _content(seed: int, split: Split, index: int) -> Content:
    """Return the content of a scene; indices 2f and 2f + 1 share family and layout, not order and sizes."""
    number, member = divmod(index, FAMILY_SIZE)
    rng = KeyedRandom(seed, SPLITS.index(split), CONTENT_STREAM, number)
    members = rng.shuffled(family_of(seed, split, number).members())
    layout = rng.choice([layout for layout in LAYOUTS if slots(layout) == len(members[0])])
    own = KeyedRandom(seed, SPLITS.index(split), CONTENT_STREAM, number, member)
    groups = own.shuffled(members[member])
    return Content(layout, tuple(Part(kind, color, own.choice(SIZES), count) for kind, color, count in groups))


def _group(part: Part, points: list[Point], rng: KeyedRandom) -> Group:
    shapes = tuple(
        Shape(
            part.kind,
            part.color,
            part.size,
            x,
            y,
            radius=rng.uniform(*RADII[part.size]),
            turn=rng.uniform(-TURN, TURN),
            rgb=_jittered(PALETTE[part.color], rng),
        )
        for x, y in points
    )
    return Group(part.kind, part.color, part.size, shapes)


def _jittered(rgb: RGB, rng: KeyedRandom) -> RGB:
    red, green, blue = (min(255, max(0, channel + rng.below(2 * COLOR_JITTER + 1) - COLOR_JITTER)) for channel in rgb)
    return red, green, blue


def _stroke(rng: KeyedRandom) -> Stroke:
    x, y = rng.uniform(), rng.uniform()
    dx, dy = rng.uniform(-0.06, 0.06), rng.uniform(-0.06, 0.06)
    rgb = _jittered(PALETTE[rng.choice(COLORS)], rng)
    return Stroke((x, y), (x + dx, y + dy), rng.uniform(0.008, 0.014), rgb)


def _background(rng: KeyedRandom) -> Background:
    grey = 160 + rng.below(60)
    contrast = 12 + rng.below(24)
    tint = [rng.below(33) - 16 for _ in range(3)]
    dark, light = (
        tuple(min(255, max(0, level + channel)) for channel in tint) for level in (grey - contrast, grey + contrast)
    )
    return Background(
        texture=rng.choice(TEXTURES),
        tones=((dark[0], dark[1], dark[2]), (light[0], light[1], light[2])),
        angle=rng.uniform(0, 180),
        waves=rng.uniform(3, 9),
        seed=rng.below(KEY_LIMIT),
    )

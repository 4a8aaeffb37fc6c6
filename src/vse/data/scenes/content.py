"""What scenes show, as symbols: families that share all words, and the split each family belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from vse.data.scenes.keyed import KeyedRandom
from vse.data.scenes.layout import LAYOUTS, Layout, slots
from vse.data.scenes.vocabulary import COLORS, KINDS, SIZES, SPLITS, Color, Kind, Size, Split

T = TypeVar("T")
FAMILY_SIZE = 4
MOST_OBJECTS = 8
COUNTS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 4)
"""How many objects a group has; a number stands here as often as it should come up in ten."""
SHARED = 0.2
"""How often two groups have their kind, or their colour, in common."""
SHARES: tuple[Split, ...] = ("train", "train", "train", "train", "train", "train", "train", "train", "dev", "test")
CONTENT_STREAM = 0


@dataclass(frozen=True)
class Part:
    """One group as symbols."""

    kind: Kind
    color: Color
    size: Size
    count: int


@dataclass(frozen=True)
class Content:
    """A whole scene as symbols; the parts stand in the order of the layout's slots."""

    layout: Layout
    parts: tuple[Part, ...]

    def family(self) -> str:
        """The words of the scene without what belongs to what; the same for all members of a family."""
        columns = zip(*((part.kind, part.color, part.size, str(part.count)) for part in self.parts), strict=True)
        return " ".join((self.layout, *(word for column in columns for word in sorted(column))))

    def split(self) -> Split:
        """The one split in which this content may appear, whatever the seed.

        Decided by a hash of the family, so that near misses of a test scene are not in the training set either.
        """
        digest = hashlib.sha256(self.family().encode()).digest()
        return SHARES[int.from_bytes(digest[:8], "big") % len(SHARES)]


def draw_content(seed: int, split: Split, index: int) -> Content:
    """The content of scene ``index``: indices 4f to 4f + 3 are the members of family f of this split."""
    family, member = divmod(index, FAMILY_SIZE)
    members: list[Content] = []
    attempt = 0
    while not members or members[0].split() != split:
        members = draw_family(KeyedRandom(seed, SPLITS.index(split), CONTENT_STREAM, family, attempt))
        attempt += 1
    return members[member]


def draw_family(rng: KeyedRandom) -> list[Content]:
    """Four different contents of the same words, or none if the draw does not allow for four.

    The second member exchanges colours only, the others one attribute at random or the order of the groups.
    """
    layout = rng.choice(tuple(LAYOUTS))
    # Two layouts hold two groups and six hold three; as many scenes of either are wanted.
    if rng.chance(1 / 3):
        layout = rng.choice(("row", "column"))
    groups = slots(layout)
    kinds, colors = _some(KINDS, groups, rng), _some(COLORS, groups, rng)
    sizes = [rng.choice(SIZES) for _ in range(groups)]
    counts = [rng.choice(COUNTS) for _ in range(groups)]
    if sum(counts) > MOST_OBJECTS:
        return []
    first = tuple(map(Part, kinds, colors, sizes, counts))
    members = [first] if _told_apart(first) else []
    for trial in range(24):
        if not members or len(members) == FAMILY_SIZE:
            break
        change = "colors" if trial < 4 and len(members) == 1 else rng.choice(("colors", "sizes", "counts", "order"))
        new = tuple(
            map(
                Part,
                kinds,
                rng.shuffled(colors) if change == "colors" else colors,
                rng.shuffled(sizes) if change == "sizes" else sizes,
                rng.shuffled(counts) if change == "counts" else counts,
            )
        )
        if change == "order":
            new = tuple(rng.shuffled(new))
        if _told_apart(new) and new not in members:
            members.append(new)
    return [Content(layout, parts) for parts in members] if len(members) == FAMILY_SIZE else []


def _some(choices: Sequence[T], number: int, rng: KeyedRandom) -> list[T]:
    """Different values, of which two are sometimes made equal."""
    chosen = rng.shuffled(choices)[:number]
    if rng.chance(SHARED):
        chosen[1] = chosen[0]
    return rng.shuffled(chosen)


def _told_apart(parts: Sequence[Part]) -> bool:
    """Whether kind and colour name each group."""
    return len({(part.kind, part.color) for part in parts}) == len(parts)

"""Families of near misses: scenes of the same words that differ in what belongs to what, each family in one split.

A family is a choice of kinds, colours and numbers of objects; its members bind them to each other in different ways.
All families are listed, shuffled once and for good, and dealt out to the splits in tens: eight to train, one to dev,
one to test. A seed shuffles the families of a split, so that family f of a split is another one for every f.

A scene has two groups, with five to eight objects together, or three groups, any two of which have at most four.
So no two groups of a scene of three are a whole scene of two, and a caption that names all groups of its scene, with
number, colour and kind, is true of no scene of another meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Any

from numpy.typing import NDArray

from vse.data.scenes.keyed import KeyedRandom
from vse.data.scenes.vocabulary import COLORS, KINDS, SPLITS, Color, Kind, Split

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
    """Words without what belongs to what."""

    kinds: tuple[Kind, ...]
    colors: tuple[Color, ...]
    counts: tuple[int, ...]

    def members(self) -> list[tuple[tuple[Kind, Color, int], ...]]:
        """All ways to bind the words to groups that kind and colour tell apart, in a fixed order."""
        bound = {
            tuple(sorted(zip(self.kinds, colors, counts, strict=True)))
            for colors, counts in product(permutations(self.colors), permutations(self.counts))
        }
        return [groups for groups in sorted(bound) if len({group[:2] for group in groups}) == len(groups)]


def family_of(seed: int, split: Split, number: int) -> Family:
    """Family ``number`` of a split: no two numbers give the same one."""
    triple, rest = divmod(number, EVERY)
    groups, rank = (2, triple) if rest == 0 else (3, (EVERY - 1) * triple + rest - 1)
    return _families(groups)[_dealt(groups, split)[_order(seed, groups, split)[rank]]]


def most_scenes(split: Split) -> int:
    """How many scenes a split has."""
    return FAMILY_SIZE * EVERY * min(len(_dealt(2, split)), len(_dealt(3, split)) // (EVERY - 1))


@lru_cache
def _families(groups: int) -> list[Family]:
    """All families; of three groups, two may have their kind or their colour in common, but not both."""
    kinds, colors = list(combinations(KINDS, groups)), list(combinations(COLORS, groups))
    words: list[tuple[tuple[Kind, ...], tuple[Color, ...]]] = list(product(kinds, colors))
    if groups > 2:
        words += product([(kind, kind, other) for kind, other in permutations(KINDS, 2)], colors)
        words += product(kinds, [(color, color, other) for color, other in permutations(COLORS, 2)])
    return [Family(*both, counts) for both, counts in product(words, COUNTS[groups])]


# The keys below have two and three numbers, those of single scenes have more: no stream is drawn from twice.
@lru_cache
def _dealt(groups: int, split: Split) -> NDArray[Any]:
    """The places in the list of all families that belong to the split, whatever the seed."""
    places = KeyedRandom(0, groups).permutation(len(_families(groups)))
    mine = [place for place in range(len(places)) if SHARES[place % len(SHARES)] == split]
    return places[mine]


@lru_cache(maxsize=64)
def _order(seed: int, groups: int, split: Split) -> NDArray[Any]:
    return KeyedRandom(seed, SPLITS.index(split), groups).permutation(len(_dealt(groups, split)))

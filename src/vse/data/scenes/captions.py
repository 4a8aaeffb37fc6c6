"""Write five true captions of a scene.

A phrase such as "two blue squares" means that exactly two objects of the scene are blue squares. "A left of B" means
that every object of A is to the left of every object of B, with a gap; likewise for right, above and below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from vse.data.scenes.keyed import KeyedRandom
from vse.data.scenes.scene import OPPOSITE, Color, Content, Kind, Part, Relation, Scene, Size, relation

Detail = Literal["full", "plain"]

NOUNS: dict[Kind, tuple[tuple[str, str], ...]] = {
    "circle": (("circle", "circles"), ("circle", "circles"), ("disc", "discs")),
    "square": (("square", "squares"),),
    "triangle": (("triangle", "triangles"),),
    "star": (("star", "stars"),),
    "cross": (("cross", "crosses"), ("cross", "crosses"), ("plus sign", "plus signs")),
    "ring": (("ring", "rings"), ("ring", "rings"), ("hoop", "hoops")),
    "diamond": (("diamond", "diamonds"), ("diamond", "diamonds"), ("rhombus", "rhombuses")),
    "heart": (("heart", "hearts"),),
}
"""Singular and plural; an entry listed twice is drawn twice as often."""
SIZE_WORDS: dict[Size, tuple[str, ...]] = {"small": ("small", "little"), "large": ("large", "big")}
COLOR_WORDS: dict[Color, tuple[str, ...]] = {"purple": ("purple", "violet")}
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def name_group(part: Part, detail: Detail, rng: KeyedRandom) -> str:
    """Return a phrase with number, color and kind of the group; ``full`` adds its size."""
    words = []
    if detail == "full":
        words.append(rng.choice(SIZE_WORDS[part.size]))
    words.append(rng.choice(COLOR_WORDS.get(part.color, (part.color,))))
    noun = rng.choice(NOUNS[part.kind])
    words.append(noun[0] if part.count == 1 else noun[1])
    return f"{_number(part.count, words[0], rng)} {' '.join(words)}"


def _number(count: int, following: str, rng: KeyedRandom) -> str:
    if count > 1:
        return NUMBERS[count]
    article = "an" if following[0] in "aeiou" else "a"
    return rng.choice((article, article, article, article, "one", "a single"))


CAPTIONS = 5
Writer: TypeAlias = Callable[[Content, Detail, KeyedRandom], str]
RELATION_WORDS: dict[Relation, tuple[str, ...]] = {
    "left of": ("left of", "to the left of"),
    "right of": ("right of", "to the right of"),
    "above": ("above", "over"),
    "below": ("below", "under", "beneath"),
}
SIDES: dict[Relation, tuple[str, str]] = {
    "left of": ("to its left", "to their left"),
    "right of": ("to its right", "to their right"),
    "above": ("above it", "above them"),
    "below": ("below it", "below them"),
}
"""A relation as seen from one object, and from several."""


def describe(scene: Scene, rng: KeyedRandom) -> list[str]:
    """Return five different true captions in lower case, some with a full stop.

    Each names all groups with number, color and kind. Three describe how the groups are arranged, two only list them;
    some give the sizes. Order, construction and words are drawn from ``rng``.
    """
    content = scene.content
    writers: list[tuple[Writer, Detail]] = [
        (_related, "full"),
        (_related, "plain"),
        (_related, rng.choice(("full", "plain"))),
        (_listed, "full"),
        (_listed, "plain"),
    ]
    captions: list[str] = []
    for write, detail in rng.shuffled(writers):
        text = write(content, detail, rng)
        while text in captions or f"{text}." in captions:  # another wording always exists
            text = write(content, detail, rng)
        captions.append(f"{text}." if rng.chance(0.5) else text)
    return captions


def _related(content: Content, detail: Detail, rng: KeyedRandom) -> str:
    """Describe the relation of one group to each of the others."""
    first, *others = rng.shuffled(range(len(content.parts)))
    several = content.parts[first].count > 1
    verb = "are" if several else "is"
    one, *names = (name_group(content.parts[which], detail, rng) for which in (first, *others))
    relations = [relation(content.layout, first, other) for other in others]
    words = [rng.choice(RELATION_WORDS[each]) for each in relations]
    if len(set(relations)) == 1 and rng.chance(0.5):
        places = f"{words[0]} {' and '.join(names)}"
    else:
        places = " and ".join(f"{word} {name}" for word, name in zip(words, names, strict=True))
    sides = (SIDES[OPPOSITE[each]][several] for each in relations)
    around = " and ".join(f"{name} {side}" for name, side in zip(names, sides, strict=True))
    return rng.choice(
        (
            f"{one} {places}",
            f"{one} {verb} {places}",
            f"there {verb} {one} {places}",
            f"{places} {verb} {one}",
            f"{one} with {around}",
        )
    )


def _listed(content: Content, detail: Detail, rng: KeyedRandom) -> str:
    """List the groups without their positions."""
    parts = rng.shuffled(content.parts)
    *names, last = (name_group(part, detail, rng) for part in parts)
    listed = f"{', '.join(names)} and {last}"
    there = "there is" if parts[0].count == 1 else "there are"
    total = sum(part.count for part in parts)
    return rng.choice((listed, f"{there} {listed}", f"{NUMBERS[total]} shapes: {listed}"))

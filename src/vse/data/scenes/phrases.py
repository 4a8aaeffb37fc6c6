"""How captions name a group: "two large red circles", "a violet disc"."""

from __future__ import annotations

from typing import Literal

from vse.data.scenes.content import Part
from vse.data.scenes.keyed import KeyedRandom
from vse.data.scenes.vocabulary import Color, Kind, Size

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
"""Singular and plural; what is written twice comes up twice as often."""
SIZE_WORDS: dict[Size, tuple[str, ...]] = {"small": ("small", "little"), "large": ("large", "big")}
COLOR_WORDS: dict[Color, tuple[str, ...]] = {"purple": ("purple", "violet")}
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def name_group(part: Part, detail: Detail, rng: KeyedRandom) -> str:
    """A phrase with number, colour and kind of the group; ``full`` gives its size too."""
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

"""How captions name a group: "two large red circles", "a disc", "some blue shapes"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vse.data.scenes.content import Part
from vse.data.scenes.keyed import KeyedRandom
from vse.data.scenes.vocabulary import Color, Kind, Size

Detail = Literal["full", "plain", "loose"]

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
SHAPE_NOUN = ("shape", "shapes")
SIZE_WORDS: dict[Size, tuple[str, ...]] = {"small": ("small", "little"), "large": ("large", "big")}
COLOR_WORDS: dict[Color, tuple[str, ...]] = {"purple": ("purple", "violet")}
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def name_group(parts: Sequence[Part], which: int, detail: Detail, rng: KeyedRandom) -> str:
    """A phrase that fits all objects of group ``which`` and no other object of the scene.

    ``full`` gives number, size, colour and kind; ``plain`` leaves out the size; ``loose`` leaves out what the scene
    allows, and may say "some" for two or more and "several" for three or more.
    """
    part = parts[which]
    named = _attributes(parts, which, detail, rng)
    words = []
    if "size" in named:
        words.append(rng.choice(SIZE_WORDS[part.size]))
    if "color" in named:
        words.append(rng.choice(COLOR_WORDS.get(part.color, (part.color,))))
    noun = rng.choice(NOUNS[part.kind]) if "kind" in named else SHAPE_NOUN
    words.append(noun[0] if part.count == 1 else noun[1])
    return f"{_number(part.count, detail, words[0], rng)} {' '.join(words)}"


def _attributes(parts: Sequence[Part], which: int, detail: Detail, rng: KeyedRandom) -> tuple[str, ...]:
    if detail == "full":
        return ("size", "color", "kind")
    if detail == "plain":
        return ("color", "kind")
    choices = [("size", "kind"), ("color",), ("kind",), ("size", "color")]
    return next((names for names in rng.shuffled(choices) if _only(parts, which, names)), ("color", "kind"))


def _only(parts: Sequence[Part], which: int, names: Sequence[str]) -> bool:
    """Whether these attributes fit one group alone."""
    values = [tuple(getattr(part, name) for name in names) for part in parts]
    return values.count(values[which]) == 1


def _number(count: int, detail: Detail, following: str, rng: KeyedRandom) -> str:
    if count == 1:
        article = "an" if following[0] in "aeiou" else "a"
        return rng.choice((article, article, article, article, "one", "a single"))
    vague = ["some"] if count == 2 else ["some", "several"]
    return rng.choice(vague) if detail == "loose" and rng.chance(0.4) else NUMBERS[count]

"""A second reading of captions: parses a sentence and looks at the objects, sharing no code with ``vse``.

Objects need ``kind``, ``color``, ``x``, ``y`` and ``radius``; sizes are judged by the radius. A sentence that the
grammar does not know, or that is not English in number or article, is a ``ValueError``: nothing passes unread.
"""

from __future__ import annotations

import re

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight"]
SINGULAR = {
    "circle": "circle",
    "disc": "circle",
    "square": "square",
    "triangle": "triangle",
    "star": "star",
    "cross": "cross",
    "plus sign": "cross",
    "ring": "ring",
    "hoop": "ring",
    "diamond": "diamond",
    "rhombus": "diamond",
    "heart": "heart",
}
PLURAL = {name + ("es" if name.endswith("s") else "s"): kind for name, kind in SINGULAR.items()}
COLORS = {name: name for name in ("red", "orange", "yellow", "green", "blue", "purple", "pink", "black")}
COLORS["violet"] = "purple"
SMALL = {"small", "little"}
BETWEEN = 0.075  # no object has a radius near this, see test_sample.py

RELATION = r"(?:to the )?(?:left|right) of|above|over|below|under|beneath"
PHRASE = (
    r"(a single|an|a|one|two|three|four) (?:(small|little|large|big) )?"
    rf"({'|'.join(COLORS)}) ({'|'.join(sorted([*PLURAL, *SINGULAR], key=len, reverse=True))})"
)


def is_true(caption: str, objects: list) -> bool:
    """Whether what the caption says holds of these objects."""
    text = caption.removesuffix(".")
    if text != text.lower() or text != text.strip() or "  " in text or text.endswith("."):
        raise ValueError(f"not written as a caption: {caption!r}")
    total = re.fullmatch(r"(\w+) shapes: (.*)", text)
    if total:
        return NUMBERS.index(total[1]) == len(objects) and _listed(total[2], objects) == len(objects)
    there = re.fullmatch(r"there (is|are) (.*)", text)
    if there:
        if (there[1] == "is") != _is_singular(there[2]):
            raise ValueError(f"number of the verb: {caption!r}")
        text = there[2]
    around = re.fullmatch(r"(.*?) with (.*)", text)
    if around:
        return _around(around[1], around[2], objects)
    turned = re.fullmatch(rf"((?:{RELATION}) .*) (is|are) (.*)", text)
    if turned:
        return _verb(turned[2], turned[3]) and _places(turned[3], turned[1], objects)
    plain = re.fullmatch(rf"(.*?)(?: (is|are))? ((?:{RELATION}) .*)", text)
    if plain:
        one, verb, places = plain.groups()
        return (verb is None or _verb(verb, one)) and _places(one, places, objects)
    return _listed(text, objects) is not None


def meaning(caption: str) -> tuple:
    """The groups that the caption names, as sorted (number, colour, kind); what it says of sizes and places is left."""
    found = []
    for number, _, color, noun in re.findall(rf"\b{PHRASE}\b", caption):
        count = NUMBERS.index(number) if number in NUMBERS else 1
        found.append((count, COLORS[color], SINGULAR.get(noun, PLURAL.get(noun))))
    return tuple(sorted(found))


def shown(objects: list) -> tuple:
    """The same of objects: each kind and colour with the number of objects that have both."""
    pairs = [(thing.color, thing.kind) for thing in objects]
    return tuple(sorted((pairs.count(pair), *pair) for pair in set(pairs)))


def _places(one: str, text: str, objects: list) -> bool:
    """Whether group ``one`` stands as "left of B and above C" or "left of B and C" say."""
    verdicts, words = [], ""
    for piece in text.split(" and "):
        begun = re.fullmatch(rf"({RELATION}) (.*)", piece)
        words, two = begun.groups() if begun else (words, piece)
        verdicts.append(_stands(one, words, two, objects))
    return all(verdicts)


def _around(one: str, text: str, objects: list) -> bool:
    """Whether the groups of "B to its left and C above it" stand so around group ``one``."""
    verdicts = []
    for piece in text.split(" and "):
        side = re.fullmatch(r"(.*) (?:to (its|their) (left|right)|(above|below) (it|them))", piece)
        if side is None:
            raise ValueError(f"not a group and its place: {piece!r}")
        two, owner, beside, height, pronoun = side.groups()
        if ((owner or pronoun) in {"its", "it"}) != _is_singular(one):
            raise ValueError(f"number of the pronoun: {text!r}")
        verdicts.append(_stands(two, f"{beside} of" if beside else height, one, objects))
    return all(verdicts)


def _verb(verb: str, subject: str) -> bool:
    if (verb == "is") != _is_singular(subject):
        raise ValueError(f"{subject!r} with {verb!r}")
    return True


def _parse(phrase: str) -> re.Match:
    match = re.fullmatch(PHRASE, phrase)
    if match is None:
        raise ValueError(f"not a phrase: {phrase!r}")
    number, _, _, noun = match.groups()
    singular = number in {"a", "an", "one", "a single"}
    if noun not in (SINGULAR if singular else PLURAL):
        raise ValueError(f"number of the noun: {phrase!r}")
    following = phrase.removeprefix(number + " ")
    if number in {"a", "an"} and (number == "an") != (following[0] in "aeiou"):
        raise ValueError(f"article: {phrase!r}")
    return match


def _is_singular(text: str) -> bool:
    """Whether the phrase with which the text begins is about one object."""
    return re.match(r"(a|an|one) ", text) is not None


def _meant(phrase: str, objects: list) -> list | None:
    """The objects that the phrase describes, or None if they are not as many as it says."""
    number, size, color, noun = _parse(phrase).groups()
    kind = SINGULAR.get(noun, PLURAL.get(noun))
    found = [
        thing
        for thing in objects
        if thing.kind == kind
        and thing.color == COLORS[color]
        and (size is None or (thing.radius < BETWEEN) == (size in SMALL))
    ]
    exact = NUMBERS.index(number) if number in NUMBERS else 1
    return found if len(found) == exact else None


def _listed(text: str, objects: list) -> int | None:
    """How many objects a list of phrases names, or None if one of the phrases is false."""
    *start, last = text.split(" and ")
    (first,) = start
    groups = [_meant(phrase, objects) for phrase in (*first.split(", "), last)]
    return None if any(group is None for group in groups) else sum(map(len, groups))


def _stands(one: str, words: str, two: str, objects: list) -> bool:
    left, right = _meant(one, objects), _meant(two, objects)
    if left is None or right is None:
        return False
    return all(_holds(a, words.removeprefix("to the "), b) for a in left for b in right)


def _holds(a, words: str, b) -> bool:
    if words == "left of":
        return a.x + a.radius < b.x - b.radius
    if words == "right of":
        return b.x + b.radius < a.x - a.radius
    if words in {"above", "over"}:
        return a.y + a.radius < b.y - b.radius
    return b.y + b.radius < a.y - a.radius

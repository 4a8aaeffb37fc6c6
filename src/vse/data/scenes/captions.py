"""Five true captions of a scene.

A phrase such as "two blue squares" says that exactly two objects of the scene are blue squares. "A left of B" says that
every object of A lies to the left of every object of B, with room between; likewise for right, above and below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vse.data.scenes.content import Content
from vse.data.scenes.keyed import KeyedRandom
from vse.data.scenes.layout import OPPOSITE, Relation, relation
from vse.data.scenes.phrases import NUMBERS, Detail, name_group
from vse.data.scenes.scene import Scene

CAPTIONS = 5
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
"""How something that stands so is seen from one object, and from several."""


def describe(scene: Scene, rng: KeyedRandom) -> list[str]:
    """Five different captions, all true, in lower case, some with a full stop.

    Two name a pair of groups in full detail and how they stand; one takes in all groups; one leaves out sizes and
    perhaps colours, kinds or numbers; one only lists. Which groups, which order and which words is drawn from ``rng``.
    """
    content = scene.content
    writers: list[Callable[[Content, KeyedRandom], str]] = [_full_pair, _full_pair, _whole, _loose_pair, _list]
    captions: list[str] = []
    for write in rng.shuffled(writers):
        text = write(content, rng)
        while text in captions or f"{text}." in captions:  # another wording always exists
            text = write(content, rng)
        captions.append(f"{text}." if rng.chance(0.5) else text)
    return captions


def _full_pair(content: Content, rng: KeyedRandom) -> str:
    first, second = rng.shuffled(range(len(content.parts)))[:2]
    return _pair(content, first, second, ("full", "full"), rng)


def _loose_pair(content: Content, rng: KeyedRandom) -> str:
    first, second = rng.shuffled(range(len(content.parts)))[:2]
    details: list[Detail] = rng.shuffled(("loose", "plain"))
    return _pair(content, first, second, details, rng)


def _whole(content: Content, rng: KeyedRandom) -> str:
    """All groups: the first is placed against each of the others."""
    first, *others = rng.shuffled(range(len(content.parts)))
    if len(others) == 1:
        return _pair(content, first, others[0], ("plain", "plain"), rng)
    detail: Detail = rng.choice(("full", "plain"))
    name, *names = (name_group(content.parts, which, detail, rng) for which in (first, *others))
    relations = [relation(content.layout, first, other) for other in others]
    words = [rng.choice(RELATION_WORDS[each]) for each in relations]
    if relations[0] == relations[1] and rng.chance(0.5):
        return f"{name} {words[0]} {names[0]} and {names[1]}"
    return f"{name} {words[0]} {names[0]} and {words[1]} {names[1]}"


def _list(content: Content, rng: KeyedRandom) -> str:
    """What there is, without where."""
    order = rng.shuffled(range(len(content.parts)))
    *names, last = (name_group(content.parts, which, "plain", rng) for which in order)
    listed = f"{', '.join(names)} and {last}"
    total = sum(part.count for part in content.parts)
    return rng.choice(
        (listed, f"{_there(content.parts[order[0]].count)} {listed}", f"{NUMBERS[total]} shapes: {listed}")
    )


def _pair(content: Content, first: int, second: int, details: Sequence[Detail], rng: KeyedRandom) -> str:
    """How the first group stands to the second, in one of five constructions."""
    one = name_group(content.parts, first, details[0], rng)
    two = name_group(content.parts, second, details[1], rng)
    stands = relation(content.layout, first, second)
    words = rng.choice(RELATION_WORDS[stands])
    several = content.parts[first].count > 1
    verb = "are" if several else "is"
    side = SIDES[OPPOSITE[stands]][several]
    return rng.choice(
        (
            f"{one} {words} {two}",
            f"{one} {verb} {words} {two}",
            f"there {verb} {one} {words} {two}",
            f"{words} {two} {verb} {one}",
            f"{one} with {two} {side}",
        )
    )


def _there(count: int) -> str:
    return "there is" if count == 1 else "there are"

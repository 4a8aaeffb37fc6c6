"""English word classes for captions: closed lists, verbs with their inflections, suffixes."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

Form = Literal["base", "s", "ing", "past", "participle"]


def _load() -> dict[str, frozenset[str]]:
    text = (files("vse.data.roles") / "lexicon.toml").read_text(encoding="utf-8")
    return {name: frozenset(words.split()) for name, words in tomllib.loads(text).items()}


_LISTS = _load()
DETERMINERS = _LISTS["determiners"]
POSSESSIVES = _LISTS["possessives"]
NUMBERS = _LISTS["numbers"]
PRONOUNS = _LISTS["pronouns"]
BE = _LISTS["be"]
HAVE = _LISTS["have"]
GET = _LISTS["get"]
DO = _LISTS["do"]
MODALS = _LISTS["modals"]
CONJUNCTIONS = _LISTS["conjunctions"]
CLAUSES = _LISTS["clauses"]
RELATIVES = _LISTS["relatives"]
PLACES = _LISTS["places"]
WAYS = _LISTS["ways"]
PARTICLES = _LISTS["particles"]
PEOPLE = _LISTS["people"]
PREPOSITIONS = PLACES | WAYS | _LISTS["other_prepositions"]
COMPOUNDS = frozenset(pair.replace("_", " ") for pair in _LISTS["compounds"])
_IRREGULAR = dict(entry.split(":") for entry in _LISTS["irregular"])
_ADJECTIVE_ENDINGS = tuple(_LISTS["adjective_endings"])
_VOWELS = "aeiou"


@cache
def verb_forms() -> dict[str, frozenset[Form]]:
    """Return every inflected form of the known verbs with the forms it may be."""
    found: dict[str, set[Form]] = {}
    for base in _LISTS["verbs"]:
        past, participle = _IRREGULAR.get(base, f"{_with(base, 'ed')},{_with(base, 'ed')}").split(",")
        for word, form in _inflected(base, past, participle):
            found.setdefault(word, set()).add(form)
    return {word: frozenset(forms) for word, forms in found.items()}


def forms_of(word: str) -> frozenset[Form]:
    """Return which verb forms ``word`` may be, from the list or by its suffix; empty if it is not a verb.

    Unlisted words count as verbs if they end in -ing or -ed: both are mostly verbs in captions, while -s is mostly a
    plural.
    """
    known = verb_forms().get(word)
    if known:
        return known
    if word.endswith("ing") and len(word) > 4 and word not in _LISTS["not_ing"] and _has_vowel(word[:-3]):
        return frozenset({"ing"})
    if word.endswith("ed") and len(word) > 4 and word not in _LISTS["not_ed"] and _has_vowel(word[:-2]):
        return frozenset({"past", "participle"})
    return frozenset()


def is_adjective(word: str) -> bool:
    """Return whether a word is listed or has a suffix that is rare among nouns."""
    return word in _LISTS["adjectives"] or (len(word) > 5 and word.endswith(_ADJECTIVE_ENDINGS))


def is_adverb(word: str) -> bool:
    """Return whether a word is listed or ends in -ly."""
    return word in _LISTS["adverbs"] or (len(word) > 4 and word.endswith("ly") and word not in _LISTS["not_adverbs"])


def is_plural(word: str) -> bool:
    """Return whether a noun looks like a plural."""
    return word in _LISTS["plurals"] or (word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3)


def _inflected(base: str, past: str, participle: str) -> list[tuple[str, Form]]:
    third = base + "es" if base.endswith(("s", "x", "z", "ch", "sh", "o")) else base + "s"
    if base.endswith("y") and base[-2] not in _VOWELS:
        third = base[:-1] + "ies"
    third = "has" if base == "have" else third
    ing = base[:-2] + "ying" if base in {"die", "lie", "tie"} else _with(base, "ing")
    return [(base, "base"), (third, "s"), (ing, "ing"), (past, "past"), (participle, "participle")]


def _with(base: str, ending: str) -> str:
    """Append -ing or -ed: drop a silent e, turn y into i before -ed, double a consonant after a single vowel."""
    if base.endswith("ee") or (base.endswith(("oe", "ye")) and ending == "ing"):
        return base + ending if ending == "ing" else base + "d"
    if base.endswith("e"):
        return base[:-1] + ending
    if base.endswith("y") and base[-2] not in _VOWELS and ending == "ed":
        return base[:-1] + "ied"
    short = len(base) > 2 and base[-1] not in _VOWELS + "wxy" and base[-2] in _VOWELS and base[-3] not in _VOWELS
    stressed = sum(c in _VOWELS for c in base) == 1 or base in _LISTS["stressed_at_the_end"]
    return base + base[-1] + ending if short and stressed else base + ending


def _has_vowel(stem: str) -> bool:
    return any(c in _VOWELS + "y" for c in stem)

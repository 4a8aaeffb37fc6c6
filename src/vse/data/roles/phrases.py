"""Find the noun phrases of a tagged caption, and the verb and role of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from vse.data.roles.lexicon import PEOPLE, PLACES, WAYS
from vse.data.roles.tags import INSIDE_PHRASE, Tagging

ROLE_OF_PREPOSITION = {
    **dict.fromkeys(PLACES, "ARGM-LOC"),
    **dict.fromkeys(WAYS, "ARGM-DIR"),
    "with": "ARGM-MNR",
    "without": "ARGM-MNR",
    "using": "ARGM-MNR",
    "like": "ARGM-MNR",
    "for": "ARGM-PRP",
    "during": "ARGM-TMP",
    "about": "ARG1",
}
COMPANY = "ARGM-COM"


@dataclass(frozen=True)
class Phrase:
    """Words ``start`` to ``end - 1``; ``heads`` are the positions of its nouns, ``preposition`` introduces it."""

    start: int
    end: int
    heads: tuple[int, ...]
    preposition: str | None = None


@dataclass(frozen=True)
class Argument:
    """Phrase number ``phrase`` belongs to the verb at word ``verb``."""

    verb: int
    phrase: int
    role: str


def find_phrases(words: Sequence[str], tagging: Tagging) -> list[Phrase]:
    """Return noun phrases from left to right with their prepositions; "a group of men" is one phrase."""
    tags = tagging.tags
    found: list[Phrase] = []
    i = 0
    while i < len(tags):
        if tags[i] not in INSIDE_PHRASE:
            i += 1
            continue
        end = _phrase_end(tagging, i)
        heads = [k for k in range(i, end) if tags[k] in {"noun", "pron"}]
        if heads:
            led = i > 0 and tags[i - 1] == "prep"
            found.append(Phrase(i - led, end, (heads[-1],), words[i - 1].lower() if led else None))
        i = end
    return _joined(words, tagging, found)


def find_arguments(words: Sequence[str], tagging: Tagging, phrases: Sequence[Phrase]) -> list[Argument]:
    """Return the arguments of every verb, its subject first.

    The subject is the phrase that ends where the verb begins, or the subject of the previous verb; a phrase after a
    verb belongs to it up to the next verb. A preposition decides the role of its phrase.
    """
    verbs = [i for i, tag in enumerate(tagging.tags) if tag == "verb"]
    subjects: dict[int, int | None] = {}
    for number, verb in enumerate(verbs):
        before = subjects[verbs[number - 1]] if number else None
        subjects[verb] = _subject(words, tagging, phrases, verb, before)
    found: list[Argument] = []
    for number, verb in enumerate(verbs):
        following = verbs[number + 1] if number + 1 < len(verbs) else len(words)
        taken = subjects.get(following)
        right = [
            k
            for k, phrase in enumerate(phrases)
            if verb < phrase.start < following and not (k == taken and _new_clause(tagging, phrase, verb))
        ]
        found += _of_verb(words, tagging, phrases, verb, subjects[verb], right)
    return found + _shared_objects(tagging, verbs, found)


def _phrase_end(tagging: Tagging, start: int) -> int:
    """Return whether a phrase ends here: after a noun or pronoun, before an article, number or pronoun."""
    tags = tagging.tags
    end = start + 1
    while end < len(tags) and tags[end] in INSIDE_PHRASE:
        closed = tags[end - 1] in {"noun", "pron"}
        if (closed and tags[end] in {"det", "num", "pron"}) or (tags[end - 1] == "pron" and tags[end] == "noun"):
            break
        end += 1
    return end


def _joined(words: Sequence[str], tagging: Tagging, phrases: list[Phrase]) -> list[Phrase]:
    """Join "of" phrases, phrases with "and" between them, and phrases between a subject and its verb."""
    tags = tagging.tags
    joined: list[Phrase] = []
    for phrase in phrases:
        last = joined[-1] if joined else None
        verb_before = "verb" in tags[: phrase.start]
        verb_next = _verb_next(tagging, phrase.end)
        if last is not None and last.end == phrase.start and phrase.preposition is not None:
            subject = not verb_before and any(tag == "verb" for tag in tags[phrase.end :])
            if phrase.preposition == "of" or (subject and last.preposition is None):
                joined[-1] = replace(last, end=phrase.end, heads=last.heads + phrase.heads)
                continue
        between = last is not None and last.end + 1 == phrase.start and tags[last.end] == "conj"
        if last is not None and between and phrase.preposition is None and (not verb_before or not verb_next):
            joined[-1] = replace(last, end=phrase.end, heads=last.heads + phrase.heads)
            continue
        joined.append(phrase)
    return joined


def _verb_next(tagging: Tagging, position: int) -> bool:
    rest = [tag for tag in tagging.tags[position:] if tag != "adv"]
    return bool(rest) and rest[0] in {"verb", "aux"}


def _subject(
    words: Sequence[str], tagging: Tagging, phrases: Sequence[Phrase], verb: int, before: int | None
) -> int | None:
    start = verb
    while start > 0 and tagging.tags[start - 1] in {"aux", "adv", "clause"}:
        start -= 1
    near = next((k for k, phrase in enumerate(phrases) if phrase.end == start and phrase.preposition is None), None)
    if near is None:
        bare = [k for k, phrase in enumerate(phrases) if phrase.end <= verb and phrase.preposition is None]
        return before if before is not None else (bare[0] if bare else None)
    person = any(words[head].lower() in PEOPLE for head in phrases[near].heads)
    loose = start == verb and before is not None and "verb" in tagging.tags[: phrases[near].start]
    return before if loose and not person else near


def _new_clause(tagging: Tagging, phrase: Phrase, verb: int) -> bool:
    """Return whether a phrase begins a new clause and so is not an object of the verb before it."""
    return any(tag in {"conj", "clause", "mark"} for tag in tagging.tags[verb + 1 : phrase.start])


def _of_verb(
    words: Sequence[str], tagging: Tagging, phrases: Sequence[Phrase], verb: int, subject: int | None, right: list[int]
) -> list[Argument]:
    voice = tagging.voices[verb]
    found = [] if subject is None else [Argument(verb, subject, "ARG0" if voice == "active" else "ARG1")]
    bare = [k for k in right if phrases[k].preposition is None]
    for k in right:
        preposition = phrases[k].preposition
        if preposition is None:
            two = len(bare) > 1 and k == bare[0]
            role = "ARG2" if voice != "active" or two else "ARG1"
        elif preposition == "by" and voice == "passive":
            role = "ARG0"
        elif preposition == "with" and any(words[head].lower() in PEOPLE for head in phrases[k].heads):
            role = COMPANY
        else:
            role = ROLE_OF_PREPOSITION.get(preposition, "ARG2")
        found.append(Argument(verb, k, role))
    return found


def _shared_objects(tagging: Tagging, verbs: Sequence[int], found: Sequence[Argument]) -> list[Argument]:
    """ "peels and slices an egg": the egg is the object of both."""
    shared = []
    for first, second in pairwise(verbs):
        between = [tag for tag in tagging.tags[first + 1 : second] if tag not in {"adv", "particle"}]
        own = [each for each in found if each.verb == first and each.role not in {"ARG0"}]
        if between == ["conj"] and not own:
            shared += [
                Argument(first, each.phrase, "ARG1") for each in found if each.verb == second and each.role == "ARG1"
            ]
    return shared

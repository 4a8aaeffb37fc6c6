"""What stands behind a word, as it was tagged: kept while the tagger goes on, so that no decision looks back again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Tag = Literal[
    "det",
    "num",
    "adj",
    "noun",
    "pron",
    "genitive",
    "verb",
    "aux",
    "to",
    "prep",
    "particle",
    "conj",
    "clause",
    "adv",
    "mark",
]
INSIDE_PHRASE = frozenset({"det", "num", "adj", "noun", "pron", "genitive"})


@dataclass
class TagsBehind:
    """The tags so far, and what the rules ask of them.

    Attributes:
        tags: one for each word, from the first.
        last: the last tag that is no adverb.
        outside: the last tag that belongs to no noun phrase: what leads in the phrase that may be under way.
        subject: the head of the noun phrase that begins the clause; phrases behind a preposition do not count.
    """

    tags: list[Tag] = field(default_factory=list)
    last: Tag | None = None
    outside: Tag | None = None
    subject: str | None = None
    _seen: set[Tag] = field(default_factory=set)

    def add(self, word: str, tag: Tag) -> None:
        """Go one word on."""
        if tag in {"clause", "mark"}:
            self.subject = None
        if tag in {"noun", "pron"} and self.outside != "prep":
            self.subject = word
        if tag not in INSIDE_PHRASE:
            self.outside = tag
        if tag != "adv":
            self.last = tag
        self._seen.add(tag)
        self.tags.append(tag)

    @property
    def joined_subject(self) -> bool:
        """Whether "and" joins two noun phrases, and no verb came yet."""
        return "conj" in self._seen and "verb" not in self._seen

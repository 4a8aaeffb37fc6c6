"""What stands ahead of a word, as far as word lists tell: the tagger has not been there yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vse.data import role_parser_words as lexicon
from vse.data.role_parser_words import forms_of, is_adverb

_OPENING = lexicon.DETERMINERS | lexicon.POSSESSIVES | lexicon.NUMBERS | lexicon.PRONOUNS
_NO_NOUNS = (
    lexicon.PREPOSITIONS
    | lexicon.CONJUNCTIONS
    | lexicon.CLAUSES
    | lexicon.RELATIVES
    | lexicon.BE
    | lexicon.HAVE
    | lexicon.MODALS
)


def opens_phrase(word: str) -> bool:
    """Whether a noun phrase begins with ``word``, whatever follows."""
    return word in _OPENING


@dataclass(frozen=True)
class WordsAhead:
    """The words of a caption, lower case and without marks; positions behind the last one are empty."""

    words: Sequence[str]

    def word(self, i: int) -> str:
        """Word i, or nothing."""
        return self.words[i] if i < len(self.words) else ""

    def may_be_noun(self, i: int) -> bool:
        """Whether a noun phrase may start at word i: a preposition in front of it then has an object."""
        word = self.word(i)
        if opens_phrase(word):
            return True
        if word in _NO_NOUNS or is_adverb(word) or not any(c.isalnum() for c in word):
            return False
        return f"{word} {self.word(i + 1)}" in lexicon.COMPOUNDS or "ing" not in forms_of(word)

    def noun_follows(self, i: int) -> bool:
        """Whether the noun phrase of word i goes on behind it."""
        return self.may_be_noun(i + 1) and not opens_phrase(self.word(i + 1))

    def passive_follows(self, i: int) -> bool:
        """Whether "get" at word i is an auxiliary: "gets eaten", "getting hit by", and not "get cut fruit"."""
        forms = forms_of(self.word(i + 1))
        certain = "base" not in forms or self.word(i + 2) == "by"
        return "participle" in forms and certain and not self.noun_follows(i + 1)

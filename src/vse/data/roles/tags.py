"""Tag the words of a caption in context: verbs, auxiliaries, and parts of noun phrases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from vse.data.roles import lexicon
from vse.data.roles.lexicon import Form, forms_of, is_adjective, is_adverb, is_plural

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
    """Return whether ``word`` always begins a noun phrase."""
    return word in _OPENING


@dataclass(frozen=True)
class WordsAhead:
    """The words of a caption, lower case and without punctuation; positions after the last are empty."""

    words: Sequence[str]

    def word(self, i: int) -> str:
        """Return word i, or an empty text."""
        return self.words[i] if i < len(self.words) else ""

    def may_be_noun(self, i: int) -> bool:
        """Return whether a noun phrase may start at word i, so that a preposition before it has an object."""
        word = self.word(i)
        if opens_phrase(word):
            return True
        if word in _NO_NOUNS or is_adverb(word) or not any(c.isalnum() for c in word):
            return False
        return f"{word} {self.word(i + 1)}" in lexicon.COMPOUNDS or "ing" not in forms_of(word)

    def noun_follows(self, i: int) -> bool:
        """Return whether the noun phrase of word i continues after it."""
        return self.may_be_noun(i + 1) and not opens_phrase(self.word(i + 1))

    def passive_follows(self, i: int) -> bool:
        """Return whether "get" at word i is an auxiliary: "gets eaten", "getting hit by", but not "get cut fruit"."""
        forms = forms_of(self.word(i + 1))
        certain = "base" not in forms or self.word(i + 2) == "by"
        return "participle" in forms and certain and not self.noun_follows(i + 1)


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
    """The tags so far, and what the rules need to know about them.

    Attributes:
        tags: one for each word so far.
        last: the last tag that is not an adverb.
        outside: the last tag outside of noun phrases, before the current phrase.
        subject: the head of the noun phrase that begins the clause; phrases after a preposition do not count.
    """

    tags: list[Tag] = field(default_factory=list)
    last: Tag | None = None
    outside: Tag | None = None
    subject: str | None = None
    _seen: set[Tag] = field(default_factory=set)

    def add(self, word: str, tag: Tag) -> None:
        """Advance by one word."""
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
        """Return whether "and" joins two noun phrases before any verb."""
        return "conj" in self._seen and "verb" not in self._seen


Voice = Literal["active", "passive", "copula"]


@dataclass
class Tagging:
    """``tags[i]`` is the class of word i; ``voices`` has an entry for each word tagged ``verb``."""

    tags: list[Tag]
    voices: dict[int, Voice]


def tag_words(words: Sequence[str]) -> Tagging:
    """Tag from left to right; a decision sees the previous tags and the following words.

    A verb is found where English has one: after an auxiliary or "to", after a complete noun phrase, after another verb
    and a conjunction. The same word after an article belongs to a noun phrase.
    """
    tagger = _Tagger([word.strip(".,;:!?\"'()").lower() for word in words])
    for i, word in enumerate(tagger.words):
        tagger.behind.add(word, tagger.choose(i))
    tagger.settle_auxiliaries()
    return Tagging(tagger.behind.tags, tagger.voices)


class _Tagger:
    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.ahead = WordsAhead(words)
        self.behind = TagsBehind()
        self.voices: dict[int, Voice] = {}
        self.awaits: Literal["be", "base", "have", None] = None  # what the last auxiliary requires
        self.clause_verb: Form | None = None  # the form of the last verb of this clause
        self.clause_forms: set[Form] = set()

    def choose(self, i: int) -> Tag:  # noqa: PLR0911
        """Return the tag of word i. Order: punctuation, function words, possible verbs, all others."""
        word = self.words[i]
        if not any(c.isalnum() for c in word):
            self.awaits = None
            return "mark"
        tag = self._function_word(i)
        if tag is not None:
            return tag
        if f"{word} {self.ahead.word(i + 1)}" in lexicon.COMPOUNDS:
            return "adj"
        forms = forms_of(word)
        if forms and (form := self._verb_here(i, forms)):
            return self._verb(i, form)
        if is_adverb(word) and (self.behind.last != "det" or is_adjective(self.ahead.word(i + 1))):
            return "adv"
        if is_adjective(word) and (self.behind.last in {"aux", "noun", "pron", "verb"} or self.ahead.noun_follows(i)):
            return "adj"
        if self.behind.last == "det" and forms & {"ing", "past", "participle"} and self.ahead.noun_follows(i):
            return "adj"
        if self.behind.last in {"det", "num"} and is_adjective(word) and not self.ahead.noun_follows(i):
            return "adj"
        return "noun"

    def _function_word(self, i: int) -> Tag | None:  # noqa: PLR0911
        word, after = self.words[i], self.ahead.word(i + 1)
        if word in lexicon.BE or (word in lexicon.GET and self.ahead.passive_follows(i)):
            self.awaits = "be"
            return "aux"
        if word in lexicon.MODALS or (word in lexicon.DO and "base" in forms_of(after)):
            self.awaits = "base"
            return "aux"
        if word in lexicon.HAVE and (after == "been" or forms_of(after) & {"participle"}):
            self.awaits = "have"
            return "aux"
        if word == "to" and self._infinitive(i):
            self.awaits = "base"
            return "to"
        if word in {"s", "'s"}:
            starts = "ing" in forms_of(after) or after in lexicon.DETERMINERS or not after
            self.awaits = "be" if starts else self.awaits
            return "aux" if starts else "genitive"
        if word == "her" and not (after and self.ahead.may_be_noun(i + 1)):
            return "pron"
        if word == "that":
            return self._clause() if self.behind.last in {"noun", "pron", "verb"} else "det"
        if word in {"this", "these", "those"} and after in lexicon.BE | lexicon.HAVE | lexicon.MODALS:
            return "pron"
        if word in lexicon.POSSESSIVES or word in lexicon.DETERMINERS:
            if word in {"each", "one"} and after in {"other", "another"}:
                return "adv"
            return "det"
        if word in {"other", "another"} and i and self.words[i - 1] in {"each", "one"}:
            return "pron"
        if word in lexicon.NUMBERS or word.isdecimal():
            return "num" if self.ahead.may_be_noun(i + 1) else "pron"
        if word in lexicon.PRONOUNS:
            return "pron"
        if word in lexicon.CONJUNCTIONS or word == "andor":
            self.awaits = None
            if after in lexicon.DETERMINERS | lexicon.PRONOUNS | lexicon.POSSESSIVES | lexicon.NUMBERS:
                self._clause()  # possibly a new clause
            return "conj"
        if word in lexicon.CLAUSES | lexicon.RELATIVES:
            return self._clause()
        if word in lexicon.PARTICLES and not self.ahead.may_be_noun(i + 1):
            return "particle"
        if word in lexicon.PREPOSITIONS and not (word == "using" and self.awaits == "be"):
            return "prep"
        return None

    def _clause(self) -> Tag:
        self.awaits, self.clause_verb, self.clause_forms = None, None, set()
        return "clause"

    def _verb(self, i: int, form: Form) -> Tag:
        passive = self.awaits == "be" and form == "participle"
        self.voices[i] = "passive" if passive or form == "participle" else "active"
        self.awaits, self.clause_verb = None, form
        self.clause_forms.add(form)
        return "verb"

    def _verb_here(self, i: int, forms: frozenset[Form]) -> Form | None:  # noqa: PLR0911
        """Return the form in which word i is a verb here, None if it is not."""
        behind, after = self.behind.last, self.ahead.word(i + 1)
        if self.awaits == "base":
            return "base" if "base" in forms else None
        if self.awaits == "be" and behind != "det":
            if "ing" in forms:
                return "ing"
            if "participle" in forms and not (is_adjective(self.words[i]) and behind == "aux"):
                return "participle"
            return "base" if forms == {"base"} and behind == "aux" and "ing" not in forms_of(after) else None
        if self.awaits == "have" and "participle" in forms:
            return "past"
        if behind in {"det", "num", "adj", "genitive"}:
            return None
        if "ing" in forms:
            return "ing" if self._gerund(i, behind) else None
        if behind == "conj":
            return self._like_before(i, forms)
        if behind == "prep" or (behind is None and not opens_phrase(after)):
            return None
        if behind == "verb" and self.clause_verb != "base":
            return None
        return self._finite(i, forms)

    def _finite(self, i: int, forms: frozenset[Form]) -> Form | None:  # noqa: PLR0911
        """Return the form of a finite verb after a noun phrase: it agrees with its subject, and a clause has one."""
        subject = self.behind.subject
        if self.clause_verb is not None:
            loose = "participle" in forms and "base" not in forms and self.ahead.word(i + 1) in lexicon.PREPOSITIONS
            return "participle" if loose else None
        if forms & {"past", "participle"} and "base" not in forms:
            only_participle = "past" not in forms or self.ahead.word(i + 1) in {"by", "with", "in"}
            return "participle" if only_participle else "past"
        if "s" in forms:
            return "s"
        if subject is None:
            return "base"
        if not self.ahead.word(i + 1) and self.behind.outside == "prep":
            return None  # "scenes from a tv show"
        plural = is_plural(subject) or subject in lexicon.PRONOUNS or self.behind.joined_subject
        if plural or "past" in forms:
            return "base"
        person = subject in lexicon.PEOPLE and bool(self.ahead.word(i + 1)) and self.ahead.word(i + 1) not in lexicon.BE
        return "base" if person or opens_phrase(self.ahead.word(i + 1)) else None

    def _gerund(self, i: int, behind: Tag | None) -> bool:
        after = self.ahead.word(i + 1)
        if behind == "prep":
            return opens_phrase(after) or (self.words[i - 1] in {"by", "for", "without", "from", "after", "before"})
        if behind is None:
            return bool(after) and after not in lexicon.BE
        return True

    def _like_before(self, i: int, forms: frozenset[Form]) -> Form | None:
        """Return the form of a verb after a conjunction: that of the verb before it."""
        if same := self.clause_forms & forms:
            return min(same)
        if "s" in forms and self.clause_forms and opens_phrase(self.ahead.word(i + 1)):
            return "s"
        past = self.clause_verb in {"past", "participle"} and forms & {"past", "participle"}
        if past and "base" not in forms:
            return self.clause_verb
        verb_before = i >= 2 and self.behind.tags[i - 2] in {"verb", "particle"}
        if verb_before and forms & {"s", "base"}:
            return "s" if "s" in forms else "base"
        return None

    def settle_auxiliaries(self) -> None:
        """Tag "be" and "have" without a following verb as verbs."""
        tags = self.behind.tags
        for i, tag in enumerate(tags):
            if tag != "aux" or self.words[i] in lexicon.MODALS | lexicon.DO:
                continue
            rest = [t for t in tags[i + 1 :] if t not in {"adv", "aux"}]
            nearby = rest[: next((k for k, t in enumerate(rest) if t not in {"noun", "adj"}), len(rest)) + 1]
            existential = i > 0 and self.words[i - 1] == "there" and self.ahead.word(i + 1) != "being"
            owned = "verb" in nearby and "det" not in nearby and not existential
            if not owned and "aux" not in tags[i + 1 : i + 2]:
                tags[i] = "verb"
                self.voices[i] = "copula"

    def _infinitive(self, i: int) -> bool:
        return "base" in forms_of(self.ahead.word(i + 1)) and self.behind.last not in {"det", "num", "prep"}

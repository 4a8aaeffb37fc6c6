"""Split captions into words by the conventions of the Penn Treebank.

The BiGRU checkpoints were trained on the words that NLTK's ``word_tokenize`` finds in the lower-cased caption. Here the
same conventions are a pipeline of Hugging Face ``tokenizers``: it is compiled, needs no download, and is stored in the
``tokenizer.json`` that training and search share.

- Punctuation is a separate word: ``a dog, running`` has four. A comma or colon before a digit (``1,000``, ``10:30``),
  a hyphen, a slash and a period within a word stay. A run of dots is one word, and so are two hyphens.
- Double quotes become two backquotes where they open and two apostrophes where they close.
- Endings are split from their word (``dog 's``, ``dogs '``, ``ca n't``, ``they 're``), and so are the halves of some
  contractions (``can not``, ``gon na``).
- The period that ends the text is a word. So is one before whitespace, since a sentence ends there, unless it belongs
  to a single letter (``j. smith``, ``the u.s. flag``), to one of ``ABBREVIATIONS``, or to ``no.`` before a number.

NLTK finds the ends of sentences with a trained model, which knows more abbreviations and takes ``in 2005. then`` for an
ordinal. It also differs on text that is rare in captions: of two commas or colons in a row, the second stays attached
to the next word; a sentence that starts with two apostrophes starts with a closing quote, one that starts with two
double quotes opens twice; an ending before an apostrophe (``it's'``) is split only if whitespace follows; ``'tis`` is
split where a contraction is attached to its front; only a space, no other whitespace, allows an opening quote after it;
word characters are Python's, which include ``²`` but not combining marks; the control characters 28 to 31 are spaces; a
final sigma is lower-cased by Python's special rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # printable() is used without splitting text
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

ABBREVIATIONS = (
    *("mr", "mrs", "ms", "dr", "prof", "jr", "sr"),
    *("st", "ave", "blvd", "rd", "mt", "ft"),
    *("vs", "etc", "inc", "ltd", "co"),
)

# The engine is Oniguruma: within a look-behind, alternatives of different lengths are allowed at the top level only.
_CLOSING = r"""\])}>"'»”’"""
_KEEPS_PERIOD = "|".join([r"\A\p{L}", r"[\s.(\[{<\"“‘«`]\p{L}", *(rf"\b{word}" for word in ABBREVIATIONS)])
_PERIOD = "|".join(
    [
        rf"(?<!\.)\.(?=[{_CLOSING}\s]*\z)",  # of the text
        rf"(?<!\.)(?<!{_KEEPS_PERIOD})(?!(?<=\bno)\.\s+\d)\.(?=[{_CLOSING}]*\s)",  # of a sentence within
    ]
)
_OPENING_QUOTE = r"""(?<![^\s(\[{<«“‘„`])(?:"|'')"""  # nothing before it, a space or an opening mark

_PUNCTUATION = r"``|`|''|\.{2,}|--|[:,](?!\d)|[;@#$%&?!*\[\](){}<>«»“”‘’„‒–—―]"
# An apostrophe before a word is a quote, unless both are an ending on its own.
_APOSTROPHE_BEFORE = r"(?<!\w)'(?=\w)(?!(?:[smdtn]|ll|re|ve)\b)"
# Three steps, in this order: a closing apostrophe may hide an ending, "i'll's" loses both endings, "he'd've" the last.
_APOSTROPHE_AFTER = r"(?<=[^'])'\z"
_SHORT_ENDING = r"(?<=[^'])'[smd]\z"
_LONG_ENDING = r"(?<=[^'])(?:'(?:ll|re|ve)|n't)\z"
_HALVES = (("can", "not"), ("d", "'ye"), ("gim", "me"), ("gon", "na"), ("got", "ta"), ("lem", "me"), ("more", "'n"))
_CONTRACTION = "|".join(
    [rf"\b{first}(?={second}\b)|(?<=\b{first}){second}\b" for first, second in _HALVES]
    + [r"\bwan(?=na\z)|(?<=\bwan)na\z"]  # "wanna-be" stays whole
)


def word_normalizer() -> Normalizer:
    """Return the first half of the pipeline, on the whole text: lower case, quotes, periods."""
    from tokenizers import Regex
    from tokenizers.normalizers import Lowercase, Replace
    from tokenizers.normalizers import Sequence as Normalizers

    return Normalizers(
        [
            Lowercase(),
            Replace(Regex(_OPENING_QUOTE), " `` "),
            Replace(Regex(_PERIOD), " . "),  # before the closing quotes, which it depends on
            Replace('"', " '' "),
        ]
    )


def word_splitter() -> PreTokenizer:
    """Return the second half, on the normalized text: what can be decided within one run of non-space."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Sequence as PreTokenizers
    from tokenizers.pre_tokenizers import Split, WhitespaceSplit

    rules = (_PUNCTUATION, _APOSTROPHE_BEFORE, _APOSTROPHE_AFTER, _SHORT_ENDING, _LONG_ENDING, _CONTRACTION)
    return PreTokenizers([WhitespaceSplit(), *(Split(Regex(rule), "isolated") for rule in rules)])


def words_of(text: str) -> list[str]:
    """Return the words of one text.

    >>> words_of('The dog\\'s owner can\\'t say "no" to 1,000 U.S. dollars.')
    ['the', 'dog', "'s", 'owner', 'ca', "n't", 'say', '``', 'no', "''", 'to', '1,000', 'u.s.', 'dollars', '.']
    """
    normalizer, splitter = _pipeline()
    return [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]


def split_words(texts: Iterable[str]) -> list[list[str]]:
    """Return the words of every text."""
    return [words_of(text) for text in texts]


@cache
def _pipeline() -> tuple[Normalizer, PreTokenizer]:
    return word_normalizer(), word_splitter()


_PLAIN = re.compile(r"[a-z0-9]+(?: [a-z0-9]+)*")
_APOSTROPHE = re.compile(r"['’`´]")
_NO_WORD = re.compile(r"[^\w\-&]+|_")
_LONE_DASH = re.compile(r"(?<!\w)-+|-+(?!\w)")


def plain_sentence(caption: str) -> str:
    """Return a text in lower case, without punctuation, with single spaces: the form of HGR's annotations.

    Words are split at whitespace, so ``dog.`` and ``dog`` would be different words. An apostrophe becomes a space:
    ``man's`` is ``man s``. A text without any word is returned unchanged.

    >>> plain_sentence(" A man's dog runs,  fast. ")
    'a man s dog runs fast'
    """
    if _PLAIN.fullmatch(caption):  # the common case among hundreds of thousands
        return caption
    text = _NO_WORD.sub(" ", _APOSTROPHE.sub(" ", caption.lower()))
    return " ".join(_LONE_DASH.sub(" ", text).split()) or caption.strip()


_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return one line that is safe for a terminal: control characters and invalid bytes become escapes.

    Line and paragraph separators and marks that change the writing direction are escaped too. Everything else stays,
    including all kinds of spaces and the joiner within an emoji, so that a name can be copied.
    """
    return _UNSHOWN.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)

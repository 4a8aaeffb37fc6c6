"""Words of files and of queries: how text is split, and which texts of a file are searched.

Words are compared without case and diacritics: "Ärger" and "arger" are one word. A Chinese, Japanese or Korean
ideograph is a word of its own. File and folder names are also split where letters meet digits and small letters meet
capitals, so that ``BeachParty2019.jpg`` is found as "beach party", as "2019" and as "BeachParty2019".
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from vse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vse.index.types import MediaFile

WORDS_VERSION = 1
"""Raise it when :func:`fold` or :func:`texts_of` changes: the next writer then rebuilds the words of a collection."""
FIELDS = ("name", "folder", "caption", "title", "description", "keyword", "camera", "place", "ocr")
"""The texts of a file, by the names that ``Result.matched`` uses."""
RANKED = {
    "name": 1.0,
    "caption": 1.0,
    "title": 1.0,
    "keyword": 1.0,
    "place": 1.0,
    "folder": 0.5,
    "description": 0.5,
    "ocr": 0.5,
}
"""How much a word counts in each field when files are ranked by words.

A folder, a long text and recognised letters say less about one image. Cameras are left out: "apple" and "canon" have
other meanings, so they are found by quotes and by ``Filter.camera`` only.
"""
NAMED = tuple(field for field, weight in RANKED.items() if weight == 1)
"""Fields that tell what a file shows; a word in one of them excludes it."""
MIN_SHARE = 0.25
"""A file is found by words if it holds this share of their weight."""
MAX_WORDS = 32
"""Words of one condition or query text that are looked up."""
SHOWN = 60

SEARCHING = frozenset({"embedded", "postgresql"})
"""Backends that find the words of files; Milvus stores them and searches none."""

_WORD = re.compile(r"[^\W_]+(?:[\u0300-\u036f\u0900-\u0dff]+[^\W_]*)*")
_IDEOGRAPH = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")
_PIECES = re.compile(r"\d+|[^\W\d_]+")
# Words that say nothing about an image, and what people write around them.
COMMON = frozenset(
    word
    for line in (
        "a an and are as at be by for from has have he her his i in is it its me my near of on or our s she some t",
        "that the their there these they this those to was we were with you your find show",
        "image images photo photos picture pictures video videos",
        "am auf bei das dem den der des die ein eine einem einen einer im mit und von zu",
        "au aux avec con da dans de del di do du e el en et gli il la las le les lo los os sur um uma un una une y",
    )
    for word in line.split()
)


def fold(text: str) -> list[str]:
    """Return the words of a text, in order, as they are compared.

    >>> fold("Zwei Hunde, im_Schnee (Café № 7)")
    ['zwei', 'hunde', 'im', 'schnee', 'cafe', 'no', '7']
    """
    if text.isascii():
        return _WORD.findall(text.lower())
    whole = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", whole).casefold())
    plain = "".join(character for character in plain if not unicodedata.combining(character))
    return _WORD.findall(_IDEOGRAPH.sub(r" \1 ", unicodedata.normalize("NFKC", plain)))


def content_words(text: str) -> list[str]:
    """Return the distinct words of a query that say something: no articles and the like, no single letters or digits.

    Numbers of one or two digits are left out too: "3 dogs" is not about ``IMG_3.jpg``.
    """
    return [word for word in dict.fromkeys(fold(text)) if not _says_nothing(word)][:MAX_WORDS]


def _says_nothing(word: str) -> bool:
    return word in COMMON or (word.isascii() and (len(word) == 1 or (len(word) == 2 and word.isdigit())))


def core_words(text: str) -> list[str]:
    """Return the words of a text from the first to the last one that says something."""
    words = fold(text)
    telling = [at for at, word in enumerate(words) if not _says_nothing(word)]
    return words[telling[0] : telling[-1] + 1] if telling else []


def texts_of(file: MediaFile) -> tuple[str, ...]:
    """Return the words of each of :data:`FIELDS`, separated by blanks."""
    folder, _, name = file.path.rpartition("/")
    above = file.root.rstrip("/").rpartition("/")[2]
    return (
        _name_words(name),
        _name_words(f"{above}/{folder}"),
        *(
            " ".join(fold(text)) if text else ""
            for text in (
                "\n".join(file.captions),
                file.title,
                file.description,
                "\n".join(file.keywords),
                file.camera,
                file.place,
                file.ocr,
            )
        ),
    )


def _name_words(name: str) -> str:
    """Return the words of a file or folder name: split in pieces, then as they are where that differs."""
    name = unicodedata.normalize("NFC", name)
    whole = fold(name)
    pieces = [word for piece in _PIECES.findall(name) for part in _humps(piece) for word in fold(part)]
    return " ".join(pieces if pieces == whole else [*pieces, *whole])


def _humps(piece: str) -> list[str]:
    """Split letters before each capital that begins a word: ``JPEGImage`` is ``JPEG`` and ``Image``."""
    if piece.islower() or piece.isupper() or piece.isdecimal():
        return [piece]
    starts = [0]
    for at in range(1, len(piece)):
        after_small = piece[at - 1].islower() and piece[at].isupper()
        before_small = piece[at - 1].isupper() and piece[at].isupper() and piece[at + 1 : at + 2].islower()
        if after_small or before_small:
            starts.append(at)
    return [piece[start:stop] for start, stop in zip(starts, [*starts[1:], len(piece)], strict=True)]


def check_words(field: str, text: object) -> None:
    """Raise InputError unless a condition is a text with some words, but not too many."""
    if not isinstance(text, str):
        raise InputError(f"{field} is {type(text).__name__}: expected words")
    count = len(fold(text))
    if not 0 < count <= MAX_WORDS:
        raise InputError(f"{field} {text[:SHOWN]!r} has {count} words: expected from 1 to {MAX_WORDS}")


def phrase(text: str) -> str:
    """Return the FTS5 expression for adjacent words; a last ``*`` in ``text`` matches any ending of the last one."""
    joined = " ".join(fold(text))
    return f'"{joined}" *' if text.rstrip().endswith("*") else f'"{joined}"'


def needle(text: str) -> str:
    """Return what a string of words, with blanks around each, contains where :func:`phrase` matches.

    >>> needle("Big ca*") in " a big cat "
    True
    """
    return " " + " ".join(fold(text)) + ("" if text.rstrip().endswith("*") else " ")


def share_of(texts: tuple[str, ...], weights: Mapping[str, float]) -> float:
    """Return the weight of the words that a file holds, given the :func:`texts_of` it; see :data:`RANKED`."""
    held = {field: frozenset(text.split()) for field, text in zip(FIELDS, texts, strict=True) if field in RANKED}
    return sum(
        weight * max((RANKED[field] for field, words in held.items() if word in words), default=0.0)
        for word, weight in weights.items()
    )


def matched_fields(
    texts: tuple[str, ...], weights: Mapping[str, float], phrases: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the fields in which a file matches, given the :func:`texts_of` it.

    Args:
        texts: The words of each field.
        weights: Words of a query; they count if the file holds :data:`MIN_SHARE` of them.
        phrases: Exact words, as in ``Filter.words``; they count in any field.
    """
    found = set()
    if weights and share_of(texts, weights) >= MIN_SHARE:
        found = {
            f
            for f, text in zip(FIELDS, texts, strict=True)
            if f in RANKED and not weights.keys().isdisjoint(text.split())
        }
    for each in phrases:
        wanted = needle(each)
        found |= {field for field, text in zip(FIELDS, texts, strict=True) if wanted in f" {text} "}
    return tuple(field for field in FIELDS if field in found)

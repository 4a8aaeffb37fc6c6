"""The words of video captions: white space, at most thirty; what published captions need before that."""

from __future__ import annotations

import re

WORD_LIMIT = 30
_APOSTROPHE = re.compile(r"['’`´]")
_NO_WORD = re.compile(r"[^\w\-&]+|_")
_LONE_DASH = re.compile(r"(?<!\w)-+|-+(?!\w)")


def video_words(caption: str, limit: int | None = WORD_LIMIT) -> list[str]:
    """The words of a caption, split at white space; those behind the ``limit`` are left out."""
    return caption.split()[:limit]


def plain_sentence(caption: str) -> str:
    """Lower case, punctuation gone, one blank between words: how HGR's annotations write captions.

    Words are split at white space, so that ``dog.`` would be another word than ``dog``, and ``A dog`` another sentence
    than ``a dog``. An apostrophe becomes a blank: ``man's`` is ``man s``. A caption without any word stays as it is.

    >>> plain_sentence(" A man's dog runs,  fast. ")
    'a man s dog runs fast'
    """
    text = _NO_WORD.sub(" ", _APOSTROPHE.sub(" ", caption.lower()))
    return " ".join(_LONE_DASH.sub(" ", text).split()) or caption.strip()

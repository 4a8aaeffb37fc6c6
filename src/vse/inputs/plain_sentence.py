"""Sentences in the form that HGR's annotations have, whatever form they were typed in."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[a-z0-9]+(?: [a-z0-9]+)*")
_APOSTROPHE = re.compile(r"['’`´]")
_NO_WORD = re.compile(r"[^\w\-&]+|_")
_LONE_DASH = re.compile(r"(?<!\w)-+|-+(?!\w)")


def plain_sentence(caption: str) -> str:
    """Lower case, punctuation gone, one blank between words: how HGR's annotations write captions.

    Words are split at white space, so that ``dog.`` would be another word than ``dog``, and ``A dog`` another sentence
    than ``a dog``. An apostrophe becomes a blank: ``man's`` is ``man s``. A caption without any word stays as it is.

    >>> plain_sentence(" A man's dog runs,  fast. ")
    'a man s dog runs fast'
    """
    if _PLAIN.fullmatch(caption):  # as most are, of hundreds of thousands
        return caption
    text = _NO_WORD.sub(" ", _APOSTROPHE.sub(" ", caption.lower()))
    return " ".join(_LONE_DASH.sub(" ", text).split()) or caption.strip()

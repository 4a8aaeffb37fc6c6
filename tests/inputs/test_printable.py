"""Names as they are shown: one line that no terminal obeys, and that can be copied where it may be."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.inputs.text import printable

TURNING = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
MARKS = {"\u061c", "\u200e", "\u200f"}


def escaped(character: str) -> bool:
    """Controls, ends of lines, half characters, and what turns the direction of writing."""
    unshown = unicodedata.category(character) in {"Cc", "Zl", "Zp", "Cs"}
    return unshown or character in MARKS or unicodedata.bidirectional(character) in TURNING


@pytest.mark.parametrize("plane", range(17))
def test_every_character_is_printable_or_escaped(plane):
    """Is shown as it is, or as an escape of letters and digits."""
    for character in map(chr, range(plane << 16, (plane + 1) << 16)):
        shown = printable(f"a{character}b")
        if escaped(character):
            assert shown.isascii()
            assert len(shown.splitlines()) == 1
            assert shown.encode().decode("unicode_escape") == f"a{character}b"
        else:
            assert shown == f"a{character}b"


@given(st.text(st.characters(codec=None)))
def test_printable_name_is_one_line(text):
    """Whatever the name, it is one line and can be written as UTF-8."""
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    shown.encode()

"""Texts as Milvus stores them.

File names may hold bytes that are no UTF-8, which Milvus refuses, and characters that end or change a literal in its
expressions. Such characters are stored as ``%`` and two hexadecimal digits, ``%`` itself among them; all others
as they are. Each character is stored by itself, so that what begins with a text is stored as what begins with it, and
a stored text stands between double quotes in an expression without further care.
"""

from __future__ import annotations

import re

from vse.errors import InputError

_UNSAFE = re.compile("[\x00-\x1f\x7f\"'%\\\\\ud800-\udfff]")
_CODE = re.compile("%([0-9A-F]{2})")
_BYTES = 0xDC00  # where Python puts bytes that are no UTF-8


def to_stored(text: str) -> str:
    """The text as it is stored."""
    return _UNSAFE.sub(lambda match: _code(match[0], text), text)


def from_stored(stored: str) -> str:
    """The text that :func:`to_stored` stored."""
    return _CODE.sub(lambda match: _character(int(match[1], 16)), stored)


def literal(text: str) -> str:
    """The text as it stands in an expression, to be compared with stored ones."""
    return f'"{to_stored(text)}"'


def _code(character: str, text: str) -> str:
    value = ord(character)
    if value < 0x80:
        return f"%{value:02X}"
    if _BYTES + 0x80 <= value <= _BYTES + 0xFF:
        return f"%{value - _BYTES:02X}"
    raise InputError(f"{text!r} cannot be stored: expected Unicode, or the bytes of a file's name")


def _character(value: int) -> str:
    return chr(value) if value < 0x80 else chr(_BYTES + value)

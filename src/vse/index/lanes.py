"""The two kinds of vectors that are searched, each in a table of its own."""

from __future__ import annotations

from typing import Literal

Lane = Literal["items", "captions"]
LANES: tuple[Lane, ...] = ("items", "captions")

"""Checks of constructor arguments: the message names the value and what would have been right."""

from __future__ import annotations

import math
from collections.abc import Iterable

from vse.errors import InputError, unknown_choice


def positive_int(name: str, value: int, *, least: int = 1) -> int:
    """``value`` if it is a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return value


def positive_number(name: str, value: float, *, least: float = 0.0) -> float:
    """``value`` if it is a finite number above 0 and of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value!r}")
    if value <= 0 or value < least:
        bound = f"at least {least}" if least else "above 0"
        raise InputError(f"{name} must be {bound}, got {value!r}")
    return float(value)


def one_of(name: str, value: str, valid: Iterable[str]) -> str:
    """``value`` if it is one of a closed set of choices."""
    choices = tuple(valid)
    if value not in choices:
        raise InputError(unknown_choice(name, value, choices))
    return value

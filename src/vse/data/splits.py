"""Names of splits: their order, and which two mean the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from vse.errors import InputError, unknown_choice

ALL = "all"
"""The one split of data that has no splits."""

_SAME = {"dev": "val", "val": "dev"}
_USUAL_ORDER = ("train", "dev", "val", "test", "testall")


def in_usual_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names: train, dev, test first, then the others by name."""
    distinct = set(names)
    usual = [name for name in _USUAL_ORDER if name in distinct]
    return (*usual, *sorted(distinct.difference(usual)))


def find_split(wanted: str, available: Sequence[str], path: Path) -> str:
    """The name under which the data has ``wanted``; ``dev`` and ``val`` are the same split."""
    if wanted in available:
        return wanted
    if _SAME.get(wanted) in available:
        return _SAME[wanted]
    if tuple(available) == (ALL,):
        raise InputError(
            f"{path}: unknown split {wanted!r}: there is no split column and no list of splits, "
            f"everything is in split {ALL!r}: ask for that"
        )
    raise InputError(f"{path}: {unknown_choice('split', wanted, available)}")

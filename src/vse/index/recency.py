"""The order of files when nothing is asked for: the newest first."""

from __future__ import annotations

from vse.errors import InputError


def recency(taken: float | None, modified: int) -> float:
    """Seconds since 1970: the time a picture was taken or, where that is unknown, the file was changed.

    The first is local time and the second UTC, so that between files of both kinds the order may be off by some hours.
    """
    return modified / 1e9 if taken is None else taken


def check_page(k: int, offset: int) -> None:
    """At least one file is asked for, and none before the first."""
    if k < 1:
        raise InputError(f"k {k}: expected 1 file at least")
    if offset < 0:
        raise InputError(f"offset {offset}: expected 0 at least")

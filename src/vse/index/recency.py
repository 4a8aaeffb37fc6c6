"""The order of files when nothing is asked for: the newest first."""

from __future__ import annotations


def recency(taken: float | None, modified: int) -> float:
    """Seconds since 1970: the time a picture was taken or, where that is unknown, the file was changed.

    The first is local time and the second UTC, so that between files of both kinds the order may be off by some hours.
    """
    return modified / 1e9 if taken is None else taken

"""Asking a collection in several steps while a writer may be at work: hits that are gone by then are found anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from vse.errors import InputError, VSEError

T = TypeVar("T")
TRIES = 20
"""How often everything is asked again before giving up."""


class _GoneError(Exception):
    """A hit is not there any more."""


def of_hits(read: Callable[[Sequence[int]], T], ids: Sequence[int]) -> T:
    """What ``read``, :meth:`Collection.items` or :meth:`Collection.vectors`, says of hits; within :func:`steadily`."""
    try:
        return read(ids)
    except InputError as error:  # ids come from the collection itself: nothing else can be wrong with them
        raise _GoneError from error


def steadily(ask: Callable[[], T]) -> T:
    """What ``ask`` returns, asked again when a hit was removed or replaced between its steps."""
    for _ in range(TRIES):
        try:
            return ask()
        except _GoneError:
            continue
    raise VSEError(f"the collection changed {TRIES} times while it was searched: try again when less is written")

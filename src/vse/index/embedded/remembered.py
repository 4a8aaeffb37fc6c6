"""Answers to filters, kept for the next page or query with the same one."""

from __future__ import annotations

from collections.abc import Callable

from vse.index.embedded.database import Ids
from vse.index.filters import Filter

MOST_BYTES = 64 * 2**20


class RememberedFilters:
    """The ids that pass, by filter, as long as nothing changes; the last answer, and others up to 64 MB in all."""

    def __init__(self) -> None:
        self._changes = -1
        self._known: dict[Filter, Ids] = {}

    def ids(self, where: Filter, changes: int, ask: Callable[[], Ids]) -> Ids:
        """What ``ask`` says for ``where`` after so many changes; the same array until something changes."""
        if changes != self._changes:
            self._known.clear()
            self._changes = changes
        found = self._known.pop(where, None)
        if found is None:
            found = ask()
        self._known[where] = found  # behind the others: the oldest goes first
        while len(self._known) > 1 and self.bytes > MOST_BYTES:
            del self._known[next(iter(self._known))]
        return found

    @property
    def bytes(self) -> int:
        """What all answers need."""
        return sum(ids.nbytes for ids in self._known.values())

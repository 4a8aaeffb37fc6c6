"""Reading what belongs together while a writer may be at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from vse.errors import InputError, VSEError
from vse.index.milvus.rows import Row
from vse.index.milvus.searching import alive, next_window
from vse.index.milvus.state import State
from vse.index.milvus.tables import Tables

T = TypeVar("T")
TRIES = 50
"""How often something is read again because a change came between."""


class Reading:
    """The rows of items of one generation, in one state each time."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def steady(self, read: Callable[[State], T]) -> T:
        """What ``read`` finds in one published state, during which no other was published."""
        ledger = self._tables.ledger
        state = ledger.state()
        for _ in range(TRIES):
            try:
                found = read(state)
            except VSEError:
                ledger.state()  # says so when the generation is no longer kept
                raise
            before, state = state, ledger.state()
            if state.batch == before.batch:
                return found
        raise VSEError(
            f"{self._tables.connection.where} changed {TRIES} times while it was read: try again when less is written"
        )

    def known(self, ids: Sequence[int], columns: Sequence[str], only: str | None = None) -> dict[int, Row]:
        """The items with these ids that are there and pass."""
        if not ids:
            return {}
        rows = self.steady(lambda state: self._tables.query_in("items", "item", ids, alive(state, only), columns))
        return {int(row["item"]): row for row in rows}

    def rows(self, ids: Sequence[int], columns: Sequence[str]) -> list[Row]:
        """The items with these ids, in this order; one that is gone is an error."""
        known = self.known([int(each) for each in ids], columns)
        for each in ids:
            if int(each) not in known:
                raise InputError(f"no item has id {each}: it was removed or replaced, search again")
        return [known[int(each)] for each in ids]

    def windows(self, only: str | None, columns: Sequence[str]) -> Iterator[list[Row]]:
        """All items that pass, by id; changes made between two windows are seen or not."""
        after = 0
        while window := self.steady(
            lambda state: next_window(self._tables, state, "items", only, columns, after)  # noqa: B023 - called at once
        ):
            rows, after = window
            yield rows

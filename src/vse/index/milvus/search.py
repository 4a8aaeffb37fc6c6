"""Searching one table, and reading rows within one snapshot.

Milvus proposes rows that are rescored here, as in the embedded collection: the dot product is summed in double
precision and rounded once, so that equal vectors have equal scores and the order (score descending, id ascending) does
not depend on ``k``. With an exact index more rows are requested until no row left out can tie with the last; with
an approximate one, a pool whose size changes with ``k`` in coarse steps only.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, VSEError
from vse.index.filters import Filter
from vse.index.milvus.schema import NUMBER, NUMBERS, Row, State, literal, vectors_of
from vse.index.milvus.tables import BLOCK_BYTES, MAX_ROWS, Tables
from vse.index.scoring import exact_scores, hashes, rounding, smallest
from vse.index.types import Vectors, VectorTable

SPARE = 16
"""Rows requested at first beyond ``k``."""
POOLS = ((256, 1024), (4096, MAX_ROWS))
"""(largest ``k``, proposals requested from an approximate index); larger ``k`` are always searched exactly."""
Found = tuple[list[Row], NDArray[np.float32]]


@dataclass(frozen=True)
class Search:
    """One search: the unit vector ``query (D,)``, how many results, a condition, and the columns to return."""

    table: VectorTable
    query: Vectors
    k: int
    condition: str | None
    columns: tuple[str, ...] = ()

    def fields(self) -> tuple[str, ...]:
        return (NUMBER[self.table], "vector", *self.columns)


def best(tables: Tables, state: State, search: Search, *, exact: bool) -> tuple[Found, bool]:
    """Return the best rows with their scores, and whether every vector was compared."""
    if state.index == "flat":
        return _from_exact_index(tables, state, search) or _scanned(tables, state, search), True
    pool = next((pool for max_k, pool in POOLS if search.k <= max_k), None)
    if not exact and pool is not None:
        proposed, _ = tables.nearest(
            search.table, search.query, pool, alive(state, search.condition), search.fields(), breadth=2 * pool
        )
        if len(proposed) >= search.k:
            return _ordered(search, proposed), False
    return _scanned(tables, state, search), True


def next_window(
    tables: Tables, state: State, table: VectorTable, condition: str | None, columns: Sequence[str], after: int
) -> tuple[list[Row], int] | None:
    """Return the rows of the next non-empty window of ids above ``after``, by id, and where it ends; None at the end.

    Milvus returns rows in any order and limits the size of a reply, so pages are ranges of ids. They are wide where
    only numbers are read: Milvus Lite scans every row for each of them.
    """
    number = NUMBER[table]
    end = state.next_item if table == "items" else state.next_caption
    numbers = NUMBERS.issuperset(columns)
    width = BLOCK_BYTES // 128 if numbers else min(8192, BLOCK_BYTES // (4 * state.dimensions + 1024))
    width = max(64, width)
    while after + 1 < end:
        inside = f"{number} > {after} and {number} <= {after + width}"
        rows = tables.query(table, f"{inside} and {alive(state, condition)}", columns)
        after += width
        if rows:
            return sorted(rows, key=lambda row: int(row[number])), after
    return None


def alive(state: State, condition: str | None) -> str:
    """Return the expression for rows that exist and pass."""
    return state.alive if condition is None else f"{state.alive} and {condition}"


def _from_exact_index(tables: Tables, state: State, search: Search) -> Found | None:
    """Return the best rows by Milvus's exact index; None when more rows tie than Milvus returns."""
    room = rounding(state.dimensions)
    ask = search.k + SPARE
    while ask <= MAX_ROWS:
        proposed, complete = tables.nearest(
            search.table, search.query, ask, alive(state, search.condition), search.fields(), breadth=0
        )
        if complete or proposed[-1]["score"] < proposed[: search.k][-1]["score"] - room:
            return _ordered(search, proposed)
        ask *= 4
    return None


def _scanned(tables: Tables, state: State, search: Search) -> Found:
    """Compare the query with every vector here."""
    kept: list[Row] = []
    after = 0
    while window := next_window(tables, state, search.table, search.condition, search.fields(), after):
        rows, after = window
        kept, _ = _ordered(search, [*kept, *rows])
    return _ordered(search, kept)


def _ordered(search: Search, rows: list[Row]) -> Found:
    numbers = np.array([row[NUMBER[search.table]] for row in rows], np.int64)
    scores = exact_scores(vectors_of(rows, len(search.query)), np.arange(len(rows)), search.query)
    order = np.lexsort((numbers, -scores))[: search.k]
    return [rows[each] for each in order], scores[order]


T = TypeVar("T")
TRIES = 50
"""Attempts at a read before giving up, when changes keep being published meanwhile."""


class Reading:
    """Reads items of one generation, each time within one snapshot."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def steady(self, read: Callable[[State], T]) -> T:
        """Return ``read(state)``, retried until no other state was published meanwhile."""
        ledger = self._tables.ledger
        state = ledger.state()
        for _ in range(TRIES):
            try:
                found = read(state)
            except VSEError:
                ledger.state()  # raises when the generation has been dropped
                raise
            before, state = state, ledger.state()
            if state.batch == before.batch:
                return found
        raise VSEError(
            f"{self._tables.connection.where} changed {TRIES} times while being read: try again when less is written"
        )

    def known(self, ids: Sequence[int], columns: Sequence[str], only: str | None = None) -> dict[int, Row]:
        """Return, by id, those of these items that exist and pass."""
        if not ids:
            return {}
        rows = self.steady(lambda state: self._tables.query_in("items", "item", ids, alive(state, only), columns))
        return {int(row["item"]): row for row in rows}

    def rows(self, ids: Sequence[int], columns: Sequence[str]) -> list[Row]:
        """Return the items with these ids, in this order; a missing id raises InputError."""
        known = self.known([int(each) for each in ids], columns)
        for each in ids:
            if int(each) not in known:
                raise InputError(f"no item has id {each}: it was removed or replaced, search again")
        return [known[int(each)] for each in ids]

    def windows(self, only: str | None, columns: Sequence[str]) -> Iterator[list[Row]]:
        """Iterate over all items that pass, by id; changes between two windows may or may not be seen."""
        after = 0
        while window := self.steady(
            lambda state: next_window(self._tables, state, "items", only, columns, after)  # noqa: B023 - called at once
        ):
            rows, after = window
            yield rows


MAX_TRIED = 100_000
"""Most ids to look up by hash order, rather than reading all vectors."""
LEAST_TRIED = 64
BLOCK = 2**18
"""Ids hashed at a time."""


def few_to_try(state: State, count: int) -> bool:
    """Return whether looking up ids in hash order is the faster way to sample ``count`` items."""
    return count < state.items and count * state.next_item <= MAX_TRIED * state.items


def tried(reading: Reading, state: State, count: int) -> list[Row]:
    """Return at most ``count`` items with ``item`` and ``vector``, by id, looked up in hash order."""
    end = state.next_item
    order = ordered_ids(end, 2 * LEAST_TRIED + 2 * count * end // state.items)
    found: dict[int, Row] = {}
    start = 0
    while start < end - 1 and len(found) < count:
        if start >= len(order):
            order = ordered_ids(end, 2 * len(order))
        some = order[start : start + max(LEAST_TRIED, count - len(found))]
        known = reading.known(some, ("item", "vector"))
        found |= {each: known[each] for each in some if each in known}
        start += len(some)
    return [found[each] for each in sorted(list(found)[:count])]


def ordered_ids(end: int, count: int) -> list[int]:
    """Return the ``count`` ids from 1 to ``end`` - 1 with the smallest hashes, by hash, in bounded memory."""
    kept = np.empty(0, np.int64)
    for start in range(1, end, BLOCK):
        some = np.concatenate([kept, np.arange(start, min(start + BLOCK, end))])
        kept = some[smallest(some, count)]
    return [int(each) for each in kept[np.argsort(hashes(kept))]]


def chosen(blocks: Iterable[tuple[NDArray[np.int64], Vectors]], count: int, dimensions: int) -> Vectors:
    """Return the sampled vectors of at most ``count`` items, from blocks of all of them by id."""
    ids, vectors = np.empty(0, np.int64), np.empty((0, dimensions), np.float32)
    for some, block in blocks:
        ids, vectors = np.concatenate([ids, some]), np.concatenate([vectors, block])
        best = smallest(ids, count)
        ids, vectors = ids[best], vectors[best]
    return vectors


NOTHING = "row < 0"


def condition(where: Filter | None) -> str | None:
    """Return the expression over the columns of items; None when all pass. Null columns pass no comparison."""
    if where is None:
        return None
    if where.needs_words:
        raise InputError("name, camera, place and exact words cannot be filtered on Milvus: leave them out")
    parts: list[str] = []
    if where.root is not None:
        parts.append(f"root == {literal(where.root)}")
    if where.folder is not None:
        folder = where.folder
        parts += [f"path >= {literal(folder + '/')}", f"path < {literal(folder + '0')}"]  # "0" comes right after "/"
    if where.kind is not None:
        parts.append(f"kind == {literal(where.kind)}")
    if where.after is not None:
        parts.append(_compared("taken >=", where.after))
    if where.before is not None:
        parts.append(_compared("taken <", where.before))
    if where.within is not None:
        box = where.within
        parts += [_compared("latitude >=", box.south), _compared("latitude <=", box.north)]
        joined = "and" if box.west <= box.east else "or"  # a box across the date line is two boxes
        parts.append(f"({_compared('longitude >=', box.west)} {joined} {_compared('longitude <=', box.east)})")
    return " and ".join(parts) or None


def _compared(column: str, value: float) -> str:
    """Return a comparison with a number; Milvus has no literal for infinity, and nothing compares with NaN."""
    if math.isnan(value):
        return NOTHING
    largest = sys.float_info.max
    return f"{column} {min(max(float(value), -largest), largest)!r}"

"""The best rows of one lane.

Milvus proposes and the proposals are scored here, as the embedded collection does it: the dot product is summed in
double precision and rounded once, so that equal vectors have equal scores and the order (score descending, id
ascending) does not depend on ``k``. With an exact index more rows are asked for until no row that was left out can
tie with the last; with an approximate one a pool whose size does not follow ``k`` closely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vse.index.collection import Vectors
from vse.index.lanes import Lane
from vse.index.milvus.rows import Row, vectors_of
from vse.index.milvus.schema import NUMBER, NUMBERS
from vse.index.milvus.state import State
from vse.index.milvus.tables import BLOCK_BYTES, MOST_ROWS, Tables
from vse.index.scores import exact_scores, rounding

SPARE = 16
"""How many rows more than asked for are proposed at first."""
POOLS = ((256, 1024), (4096, MOST_ROWS))
"""Up to so many results, so many proposals of an approximate index; more results are always searched exactly."""
Found = tuple[list[Row], NDArray[np.float32]]


@dataclass(frozen=True)
class Search:
    """One question: the unit vector ``query (D,)``, how many, what has to hold, and which columns to bring."""

    lane: Lane
    query: Vectors
    k: int
    condition: str | None
    columns: tuple[str, ...] = ()

    def fields(self) -> tuple[str, ...]:
        return (NUMBER[self.lane], "vector", *self.columns)


def best(tables: Tables, state: State, search: Search, *, exact: bool) -> tuple[Found, bool]:
    """The best rows with their scores, and whether every vector was compared."""
    if state.index == "flat":
        return _from_exact_index(tables, state, search) or _scanned(tables, state, search), True
    pool = next((pool for most, pool in POOLS if search.k <= most), None)
    if not exact and pool is not None:
        proposed, _ = tables.nearest(
            search.lane, search.query, pool, alive(state, search.condition), search.fields(), breadth=2 * pool
        )
        if len(proposed) >= search.k:
            return _ordered(search, proposed), False
    return _scanned(tables, state, search), True


def next_window(
    tables: Tables, state: State, lane: Lane, condition: str | None, columns: Sequence[str], after: int
) -> tuple[list[Row], int] | None:
    """The rows of the first window of ids above ``after`` that has any, in order, and where it ends.

    Milvus returns rows in any order and limits what one call returns, so that pages are ranges of ids. They are wide
    where only numbers are wanted: Milvus Lite looks at every row for each of them.
    """
    number = NUMBER[lane]
    end = state.next_item if lane == "items" else state.next_caption
    numbers = NUMBERS.issuperset(columns)
    width = BLOCK_BYTES // 128 if numbers else min(8192, BLOCK_BYTES // (4 * state.dimensions + 1024))
    width = max(64, width)
    while after + 1 < end:
        inside = f"{number} > {after} and {number} <= {after + width}"
        rows = tables.query(lane, f"{inside} and {alive(state, condition)}", columns)
        after += width
        if rows:
            return sorted(rows, key=lambda row: int(row[number])), after
    return None


def alive(state: State, condition: str | None) -> str:
    """The expression for rows that are there and pass."""
    return state.alive if condition is None else f"{state.alive} and {condition}"


def _from_exact_index(tables: Tables, state: State, search: Search) -> Found | None:
    """None when more rows tie than Milvus returns."""
    room = rounding(state.dimensions)
    ask = search.k + SPARE
    while ask <= MOST_ROWS:
        proposed, complete = tables.nearest(
            search.lane, search.query, ask, alive(state, search.condition), search.fields(), breadth=0
        )
        if complete or proposed[-1]["score"] < proposed[: search.k][-1]["score"] - room:
            return _ordered(search, proposed)
        ask *= 4
    return None


def _scanned(tables: Tables, state: State, search: Search) -> Found:
    """Compare with every vector here."""
    kept: list[Row] = []
    after = 0
    while window := next_window(tables, state, search.lane, search.condition, search.fields(), after):
        rows, after = window
        kept, _ = _ordered(search, [*kept, *rows])
    return _ordered(search, kept)


def _ordered(search: Search, rows: list[Row]) -> Found:
    numbers = np.array([row[NUMBER[search.lane]] for row in rows], np.int64)
    scores = exact_scores(vectors_of(rows, len(search.query)), np.arange(len(rows)), search.query)
    order = np.lexsort((numbers, -scores))[: search.k]
    return [rows[each] for each in order], scores[order]

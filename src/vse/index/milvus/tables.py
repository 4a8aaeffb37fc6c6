"""Reading and writing the rows of one generation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from vse.index.collection import Vectors
from vse.index.lanes import LANES, Lane
from vse.index.milvus.connection import CALL_SECONDS, Connection
from vse.index.milvus.ledger import Ledger
from vse.index.milvus.rows import Row
from vse.index.milvus.schema import COLUMNS, base_name, lane_table, make_tables, meta_table
from vse.index.milvus.state import State

MOST_ROWS = 16_384
"""What Milvus returns at most from one search."""
BLOCK_BYTES = 16 * 2**20
"""Roughly what one call sends or receives; Milvus refuses messages above 64 MiB."""
FLUSH_AFTER = 1024
"""Rows that Milvus Lite may hold in its log, where it searches much slower than in its files."""
AT_ONCE = 1000
"""Values that an expression lists."""


class Tables:
    """The Milvus collections of one generation; ``ledger`` says what of them is published.

    A generation that is not ``serving`` yet has a ledger of its own.
    """

    def __init__(self, connection: Connection, generation: int, *, serving: bool = True) -> None:
        self.connection, self.generation = connection, generation
        self.base = base_name(connection.name, generation)
        self.ledger = Ledger(connection, meta_table(connection.name if serving else self.base), generation)
        self._unflushed = dict.fromkeys(LANES, 0)

    def make(self, state: State) -> None:
        """Make the Milvus collections, empty, and publish their first state, which makes them a generation."""
        with self.connection.using() as client:
            make_tables(client, self.base, state.dimensions, state.index, CALL_SECONDS)
        self.ledger.publish(state)

    def load(self) -> bool:
        """Get everything ready to be read; False when some of it is not there."""
        return self.connection.load(self.ledger.table, *(lane_table(self.base, lane) for lane in LANES))

    def query(
        self, lane: Lane, condition: str, columns: Sequence[str] | None = None, most: int | None = None
    ) -> list[Row]:
        """The rows that pass, in any order and ``most`` of them, whole unless columns are named."""
        limit = {} if most is None else {"limit": most}
        with self.connection.using() as client:
            found = client.query(
                lane_table(self.base, lane), filter=condition,
                output_fields=list(columns or (*COLUMNS[lane], "vector")),
                consistency_level="Strong", timeout=CALL_SECONDS, **limit,
            )  # fmt: skip
            return list(_once(dict(row) for row in found))

    def whole(self, lane: Lane, keys: Sequence[int], dimensions: int) -> Iterator[list[Row]]:
        """The rows with these keys that are there, in blocks."""
        step = rows_at_once(dimensions)
        for start in range(0, len(keys), step):
            yield self.query_in(lane, "row", keys[start : start + step], "row >= 0")

    def query_in(
        self, lane: Lane, column: str, values: Iterable[int | str], condition: str, columns: Sequence[str] | None = None
    ) -> list[Row]:
        """The rows that pass and have one of these values, which are numbers or hashes, in a column."""
        wanted = [f'"{value}"' if isinstance(value, str) else str(int(value)) for value in dict.fromkeys(values)]
        rows: list[Row] = []
        for start in range(0, len(wanted), AT_ONCE):
            listed = ", ".join(wanted[start : start + AT_ONCE])
            rows += self.query(lane, f"{column} in [{listed}] and {condition}", columns)
        return rows

    def nearest(
        self, lane: Lane, query: Vectors, count: int, condition: str, columns: Sequence[str], breadth: int
    ) -> tuple[list[Row], bool]:
        """Of the ``count`` best rows, the best first, the columns and Milvus's own ``score``; whether these are all."""
        options = {"metric_type": "IP", "params": {"ef": breadth} if breadth else {}}
        with self.connection.using() as client:
            (found,) = client.search(
                lane_table(self.base, lane), data=[query.tolist()], anns_field="vector", limit=count,
                filter=condition, output_fields=["row", *columns], search_params=options,
                consistency_level="Strong", timeout=CALL_SECONDS,
            )  # fmt: skip
            hits = [{**hit["entity"], "score": float(hit["distance"])} for hit in found]
        return list(_once(hits)), len(hits) < count

    def insert(self, lane: Lane, rows: Sequence[Row]) -> None:
        """Add rows whose keys are new."""
        for block in _blocks(rows):
            with self.connection.using() as client:
                client.insert(lane_table(self.base, lane), block, timeout=CALL_SECONDS)
            self._unflushed[lane] += len(block)

    def rewrite(self, lane: Lane, rows: Sequence[Row]) -> None:
        """Put rows in the place of those with their keys."""
        for block in _blocks(rows):
            with self.connection.using() as client:
                client.upsert(lane_table(self.base, lane), block, timeout=CALL_SECONDS)
            self._unflushed[lane] += len(block)

    def delete(self, lane: Lane, keys: Sequence[int]) -> None:
        """Delete rows by their keys."""
        for start in range(0, len(keys), AT_ONCE):
            with self.connection.using() as client:
                client.delete(
                    lane_table(self.base, lane), ids=list(keys[start : start + AT_ONCE]), timeout=CALL_SECONDS
                )

    def settle(self, lane: Lane) -> None:
        """Let Milvus Lite move rows from its log to its files when there are many; a server does so by itself."""
        if self.connection.address.folder is not None and self._unflushed[lane] >= FLUSH_AFTER:
            with self.connection.using() as client:
                client.flush(lane_table(self.base, lane), timeout=CALL_SECONDS)
            self._unflushed[lane] = 0


def rows_at_once(dimensions: int) -> int:
    """How many whole rows one call returns."""
    return max(16, min(AT_ONCE, BLOCK_BYTES // (4 * dimensions + 2048)))


def _once(rows: Iterable[Row]) -> Iterator[Row]:
    """Each key once.

    Milvus Lite returns rows twice when it was killed while it moved them from its log to its files, and a server when
    an insert was repeated because its answer was lost.
    """
    seen: set[int] = set()
    for row in rows:
        if row["row"] not in seen:
            seen.add(row["row"])
            yield row


def _blocks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """As many rows as one call takes."""
    block: list[Row] = []
    size = 0
    for row in rows:
        size += 4 * np.size(row["vector"]) + 512 + 4 * sum(len(value) for value in row.values() if type(value) is str)
        block.append(row)
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block

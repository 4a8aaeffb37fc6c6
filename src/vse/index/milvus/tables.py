"""Reading and writing the rows and states of one generation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from vse.errors import InputError, VSEError
from vse.index.milvus.connection import CALL_SECONDS, Connection
from vse.index.milvus.schema import (
    COLUMNS,
    Row,
    State,
    base_name,
    columns_of,
    generation_of,
    make_tables,
    meta_table,
    state_of,
    table_name,
    tables_of,
)
from vse.index.types import VECTOR_TABLES, Vectors, VectorTable

ANSWER_SECONDS = 10.0
"""Timeout for reading the state, which every operation begins with: a lost server is reported after this long."""


class Ledger:
    """The published states, as rows of ``table``, from the view of one generation.

    The newest state of all names the serving generation, the newest of a generation describes its content. A generation
    that served before keeps its last state for as long as it may be read.
    """

    def __init__(self, connection: Connection, table: str, generation: int) -> None:
        self.table, self.generation = table, generation
        self._connection = connection

    def states(self) -> list[State]:
        """Return all states, newest first."""
        with self._connection.using() as client:
            rows = client.query(
                self.table, filter="batch >= 0", output_fields=["batch", "state"],
                consistency_level="Strong", timeout=ANSWER_SECONDS,
            )  # fmt: skip
            newest = sorted(rows, key=lambda row: int(row["batch"]), reverse=True)
        return [state_of(self._connection.where, str(row["state"])) for row in newest]

    def state(self) -> State:
        """Return the newest state of this generation, which need not be the serving one."""
        states = self.states()
        for state in states:
            if state.generation == self.generation:
                return state
        raise self._outdated() if states else self._damaged()

    def serving(self) -> State:
        """Return the newest state of all."""
        states = self.states()
        if not states:
            raise self._damaged()
        return states[0]

    def own(self) -> State:
        """Return the newest state; raise VSEError when another generation serves."""
        state = self.serving()
        if state.generation != self.generation:
            raise self._outdated()
        return state

    def publish(self, state: State) -> None:
        """Make ``state`` the newest one: one row, so atomic."""
        row = {"batch": state.batch, "state": state.to_text(), "vector": [0.0, 0.0]}
        with self._connection.using() as client:
            client.insert(self.table, [row], timeout=CALL_SECONDS)

    def forget(self, batches: Iterable[int]) -> None:
        """Delete superseded states."""
        gone = list(batches)
        if gone:
            with self._connection.using() as client:
                client.delete(self.table, ids=gone, timeout=CALL_SECONDS)

    def _outdated(self) -> VSEError:
        return VSEError(f"{self._connection.where} was switched to a newer generation: open it again")

    def _damaged(self) -> VSEError:
        return VSEError(f"{self._connection.where} is corrupt, it has no state: restore it or index again")


MAX_ROWS = 16_384
"""Most rows that Milvus returns from one search."""
BLOCK_BYTES = 16 * 2**20
"""Approximate size of one request or reply; Milvus rejects messages above 64 MiB."""
FLUSH_AFTER = 1024
"""Rows that Milvus Lite may keep in its log, where searches are much slower than in its files."""
AT_ONCE = 1000
"""Values listed in one expression."""


class Tables:
    """The Milvus collections of one generation; ``ledger`` tells what of them is published.

    A generation that is not ``serving`` yet has its own ledger.
    """

    def __init__(self, connection: Connection, generation: int, *, serving: bool = True) -> None:
        self.connection, self.generation = connection, generation
        self.base = base_name(connection.name, generation)
        self.ledger = Ledger(connection, meta_table(connection.name if serving else self.base), generation)
        self._unflushed = dict.fromkeys(VECTOR_TABLES, 0)

    def make(self, state: State) -> None:
        """Create the Milvus collections, empty, and publish their first state, which makes them a generation."""
        with self.connection.using() as client:
            make_tables(client, self.base, state.dimensions, state.index, CALL_SECONDS)
        self.ledger.publish(state)

    def load(self) -> bool:
        """Load everything for reading; return False when a part is missing."""
        return self.connection.load(self.ledger.table, *(table_name(self.base, table) for table in VECTOR_TABLES))

    def query(
        self, table: VectorTable, condition: str, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> list[Row]:
        """Return at most ``limit`` rows that pass, in any order, with all columns unless some are named."""
        options = {} if limit is None else {"limit": limit}
        with self.connection.using() as client:
            found = client.query(
                table_name(self.base, table), filter=condition,
                output_fields=list(columns or (*COLUMNS[table], "vector")),
                consistency_level="Strong", timeout=CALL_SECONDS, **options,
            )  # fmt: skip
            return list(_once(dict(row) for row in found))

    def whole(self, table: VectorTable, keys: Sequence[int], dimensions: int) -> Iterator[list[Row]]:
        """Iterate over the existing rows with these keys, in blocks."""
        step = rows_at_once(dimensions)
        for start in range(0, len(keys), step):
            yield self.query_in(table, "row", keys[start : start + step], "row >= 0")

    def query_in(
        self,
        table: VectorTable,
        column: str,
        values: Iterable[int | str],
        condition: str,
        columns: Sequence[str] | None = None,
    ) -> list[Row]:
        """Return the rows that pass and have one of these values (numbers or hashes) in a column."""
        wanted = [f'"{value}"' if isinstance(value, str) else str(int(value)) for value in dict.fromkeys(values)]
        rows: list[Row] = []
        for start in range(0, len(wanted), AT_ONCE):
            listed = ", ".join(wanted[start : start + AT_ONCE])
            rows += self.query(table, f"{column} in [{listed}] and {condition}", columns)
        return rows

    def nearest(
        self, table: VectorTable, query: Vectors, count: int, condition: str, columns: Sequence[str], breadth: int
    ) -> tuple[list[Row], bool]:
        """Return the ``count`` best rows, best first, with Milvus's own ``score``, and whether these are all."""
        options = {"metric_type": "IP", "params": {"ef": breadth} if breadth else {}}
        with self.connection.using() as client:
            (found,) = client.search(
                table_name(self.base, table), data=[query.tolist()], anns_field="vector", limit=count,
                filter=condition, output_fields=["row", *columns], search_params=options,
                consistency_level="Strong", timeout=CALL_SECONDS,
            )  # fmt: skip
            hits = [{**hit["entity"], "score": float(hit["distance"])} for hit in found]
        return list(_once(hits)), len(hits) < count

    def insert(self, table: VectorTable, rows: Sequence[Row]) -> None:
        """Insert rows with new keys."""
        for block in _blocks(rows):
            with self.connection.using() as client:
                client.insert(table_name(self.base, table), block, timeout=CALL_SECONDS)
            self._unflushed[table] += len(block)

    def rewrite(self, table: VectorTable, rows: Sequence[Row]) -> None:
        """Replace the rows with the same keys."""
        for block in _blocks(rows):
            with self.connection.using() as client:
                client.upsert(table_name(self.base, table), block, timeout=CALL_SECONDS)
            self._unflushed[table] += len(block)

    def delete(self, table: VectorTable, keys: Sequence[int]) -> None:
        """Delete rows by key."""
        for start in range(0, len(keys), AT_ONCE):
            with self.connection.using() as client:
                client.delete(
                    table_name(self.base, table), ids=list(keys[start : start + AT_ONCE]), timeout=CALL_SECONDS
                )

    def settle(self, table: VectorTable) -> None:
        """Flush Milvus Lite's log to its files when it holds many rows; a server does that itself."""
        if self.connection.address.folder is not None and self._unflushed[table] >= FLUSH_AFTER:
            with self.connection.using() as client:
                client.flush(table_name(self.base, table), timeout=CALL_SECONDS)
            self._unflushed[table] = 0


def rows_at_once(dimensions: int) -> int:
    """Return how many rows with all columns fit one reply."""
    return max(16, min(AT_ONCE, BLOCK_BYTES // (4 * dimensions + 2048)))


def _once(rows: Iterable[Row]) -> Iterator[Row]:
    """Drop duplicate keys.

    Milvus Lite returns rows twice when it was killed while moving them from its log to its files, and a server when an
    insert was retried because its reply was lost.
    """
    seen: set[int] = set()
    for row in rows:
        if row["row"] not in seen:
            seen.add(row["row"])
            yield row


def _blocks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Split rows into requests."""
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


def serving_tables(connection: Connection) -> Tables | None:
    """Return the serving generation, loaded; None when no collection was completely created."""
    table = meta_table(connection.name)
    if not is_ours(connection, table) or not connection.load(table):
        return None
    while states := Ledger(connection, table, 1).states():
        tables = Tables(connection, states[0].generation)
        try:
            if tables.load():
                return tables
        except VSEError:
            if tables.ledger.serving().generation == tables.generation:
                raise  # otherwise an upgrade dropped the generation while it was being opened: retry
        if tables.ledger.serving().generation == tables.generation:
            return None
    return None


def unfinished_tables(connection: Connection, wanted: State) -> Tables | None:
    """Return what an upgrade to the same model and dimensions left, loaded; None when there is nothing."""
    tables = Tables(connection, wanted.generation, serving=False)
    expect_ours(connection, tables_of(tables.base), fix="rename or drop it")
    state = unfinished_state(connection, wanted.generation)
    if state is None or (state.model, state.dimensions) != (wanted.model, wanted.dimensions):
        return None
    return tables if tables.load() else None


def unfinished_state(connection: Connection, generation: int) -> State | None:
    """Return the state of a generation that does not serve yet; None when there is none."""
    ledger = Tables(connection, generation, serving=False).ledger
    if not is_ours(connection, ledger.table) or not connection.load(ledger.table):
        return None
    states = ledger.states()
    return states[0] if states else None


def drop_all(connection: Connection) -> None:
    """Drop what an earlier collection of this name left; a Milvus collection of something else raises InputError."""
    left = [table for table in connection.names() if generation_of(connection.name, table) is not None]
    expect_ours(connection, left, fix="choose another name")
    connection.drop(*left)


def is_ours(connection: Connection, table: str) -> bool:
    """Return whether this Milvus collection exists with our columns."""
    return connection.columns(table) == columns_of(table)


def expect_ours(connection: Connection, tables: Iterable[str], *, fix: str) -> None:
    """Raise InputError when one of these Milvus collections exists and is not ours: it must not be dropped."""
    for table in tables:
        if connection.columns(table) not in (None, columns_of(table)):
            raise InputError(f"{table} at {connection.where} is a Milvus collection of something else: {fix}")


def drop_older(tables: Tables) -> None:
    """Drop the generations before this one, which serves, and the ledger that it had until then.

    The next writer retries what cannot be dropped. The generation after this one is kept: an upgrade is building it.
    """
    connection = tables.connection
    with suppress(VSEError):
        for table in connection.names():
            generation = generation_of(connection.name, table)
            older = generation is not None and generation < tables.generation
            if older and table != meta_table(connection.name) and is_ours(connection, table):
                connection.drop(table)
        if tables.generation > 1:
            connection.drop(meta_table(tables.base))

"""Which generation serves, and what is left of others."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from vse.errors import InputError, VSEError
from vse.index.milvus.connection import Connection
from vse.index.milvus.ledger import Ledger
from vse.index.milvus.schema import columns_of, generation_of, meta_table, tables_of
from vse.index.milvus.state import State
from vse.index.milvus.tables import Tables


def serving_tables(connection: Connection) -> Tables | None:
    """The generation that serves, ready to be read; None when no collection was completely made."""
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
                raise  # otherwise the generation was dropped after an upgrade, while it was being opened
        if tables.ledger.serving().generation == tables.generation:
            return None
    return None


def unfinished_tables(connection: Connection, wanted: State) -> Tables | None:
    """What an upgrade to the same model and dimensions has left, ready to be used; None when there is nothing."""
    tables = Tables(connection, wanted.generation, serving=False)
    expect_ours(connection, tables_of(tables.base), fix="rename or drop it")
    state = unfinished_state(connection, wanted.generation)
    if state is None or (state.model, state.dimensions) != (wanted.model, wanted.dimensions):
        return None
    return tables if tables.load() else None


def unfinished_state(connection: Connection, generation: int) -> State | None:
    """The state of a generation that does not serve yet; None when there is none."""
    ledger = Tables(connection, generation, serving=False).ledger
    if not is_ours(connection, ledger.table) or not connection.load(ledger.table):
        return None
    states = ledger.states()
    return states[0] if states else None


def drop_all(connection: Connection) -> None:
    """Drop whatever an earlier collection of this name has left; what is of something else stays, and is an error."""
    left = [table for table in connection.names() if generation_of(connection.name, table) is not None]
    expect_ours(connection, left, fix="choose another name")
    connection.drop(*left)


def is_ours(connection: Connection, table: str) -> bool:
    """Whether there is such a Milvus collection, with the columns that ours have."""
    return connection.columns(table) == columns_of(table)


def expect_ours(connection: Connection, tables: Iterable[str], *, fix: str) -> None:
    """Raise when one of these Milvus collections is there and is not ours: it must not be dropped."""
    for table in tables:
        if connection.columns(table) not in (None, columns_of(table)):
            raise InputError(f"{table} at {connection.where} is a Milvus collection of something else: {fix}")


def drop_older(tables: Tables) -> None:
    """Drop the generations before this one, which serves, and the ledger that it had before it did.

    What cannot be dropped is tried again by the next writer. The generation after this one is being made by an upgrade.
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

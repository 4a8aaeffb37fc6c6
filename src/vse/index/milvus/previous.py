"""Convert collections that versions before 2 of the format wrote.

Those stored versions of rows in ``NAME``, ``NAME_captions`` and ``NAME_meta`` (``NAME_g2`` and so on after an upgrade),
of which the newest state in ``NAME_meta`` says which are visible: ``born <= batch < died``.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
from typing import Any

import numpy as np

from vse.errors import InputError, VSEError
from vse.index.milvus import connection as calls
from vse.index.milvus.connection import Connection, MilvusAddress
from vse.index.milvus.schema import Row, from_stored
from vse.index.milvus.tables import (
    TOKEN_LENGTH,
    About,
    Tables,
    drop_leftovers,
    full_options,
    part_of,
    serving_generation,
    serving_tables,
)
from vse.index.milvus.writing import Writer
from vse.index.storage import place_key
from vse.index.types import Entry, MediaFile, Moment, Vectors

STATES = frozenset({"batch", "state", "vector"})
"""Columns of ``NAME_meta`` in the previous format."""
VERSIONS = frozenset({"row", "born", "died"})
CONVERTED = "converted"
"""Key of the batch of the state that was copied completely."""
AT_ONCE = 500
_FILE = ("size", "modified", "width", "height", "taken", "latitude", "longitude", "duration")


def exists(connection: Connection) -> bool:
    """Return whether a collection of the previous format has this name."""
    return connection.columns(f"{connection.name}_meta") == STATES and _state(connection) is not None


def refuse(connection: Connection) -> None:
    """Raise InputError with the command that converts a collection of the previous format, if there is one."""
    if exists(connection):
        raise InputError(
            f"{connection.where} was written by an earlier version of vse: "
            f"convert it with 'vse collection upgrade {shlex.quote(connection.where)}'"
        )


def convert(address: MilvusAddress) -> int | None:
    """Convert a collection of the previous format; return the number of its files, None if it is no such collection.

    Items keep their ids. The old rows are dropped when all are copied, the old states last, so that the next call
    resumes an interrupted conversion. Of several at once each copies into tables of its own, and the alias, which
    Milvus creates once, decides which of these serve.

    Raises:
        VSEError: Milvus cannot be reached, or the old collection is corrupt.
    """
    with closing(Connection(address)) as connection:
        state = _state(connection) if connection.columns(f"{connection.name}_meta") == STATES else None
        if state is None:
            return None
        tables = _finished(connection, state)
        if tables is None:
            if address.folder is not None:  # which is locked; on a server they may be of a conversion that runs
                drop_leftovers(connection)
            try:
                tables = _copied(connection, address, state)
            except VSEError:  # another conversion may have been faster, and dropped what was to be copied
                tables = _finished(connection, state)
                if tables is None:
                    raise
        for name in connection.names():  # an alias cannot have the name of a collection: the old one goes first
            if _has_rows(connection, name):
                connection.drop(name)
        tables = _serve(tables)
        drop_leftovers(connection, tables)
        states = [f"{connection.name}_g{number}_meta" for number in range(2, int(state["generation"]) + 2)]
        for name in (*states, f"{connection.name}_meta"):
            if connection.columns(name) == STATES:
                connection.drop(name)
        return tables.count("items", "position == 0")


def _has_rows(connection: Connection, name: str) -> bool:
    """Return whether a Milvus collection holds rows of the previous format, of this name and no longer one."""
    of_name = re.fullmatch(rf"{re.escape(connection.name)}(_g([2-9]|[1-9][0-9]+))?(_captions)?", name)
    return of_name is not None and (connection.columns(name) or frozenset()) >= VERSIONS


def _finished(connection: Connection, state: Mapping[str, Any]) -> Tables | None:
    """Return what serves already, or else what a conversion of this state copied completely."""
    tables = serving_tables(connection)
    if tables is not None:
        return tables
    for name in sorted(connection.names()):
        found = part_of(connection.name, name)
        if found is None or found[2] != "items":
            continue
        tables = Tables(connection, *found[:2])
        with suppress(VSEError):  # another process is making or dropping it
            if tables.load() and tables.values().get(CONVERTED) == str(state["batch"]):
                return tables
    return None


def _copied(connection: Connection, address: MilvusAddress, state: dict[str, Any]) -> Tables:
    """Copy all rows into new tables."""
    generation = int(state["generation"]) + 2  # the one between may be an unfinished upgrade
    tables = Tables(connection, generation, secrets.token_hex(TOKEN_LENGTH // 2))
    try:
        about = About(str(state["model"]), int(state["dimensions"]), full_options(connection, dict(address.options)))
        tables.make(about, {"model_source": str(state["model_source"]), "settings": json.dumps(state["settings"])})
        _copy(connection, tables, state)
        for name in _rows_of(connection, state):  # otherwise some may have been dropped before they were read
            if not _has_rows(connection, name):
                raise VSEError(f"{connection.where} was converted by another process meanwhile: open it again")
        tables.put({CONVERTED: str(state["batch"])})
    except BaseException:
        with suppress(VSEError):
            tables.drop()
        raise
    return tables


def _serve(tables: Tables) -> Tables:
    """Let the alias stand for a generation unless another process was faster; return what serves."""
    connection = tables.connection
    if serving_generation(connection) is None:
        try:
            with connection.using() as client:
                client.create_alias(tables.base, connection.name, timeout=calls.CALL_SECONDS)
        except VSEError:  # another process was faster, or the answer was lost
            if serving_generation(connection) is None:
                raise
    serving = serving_tables(connection)
    if serving is None:
        raise VSEError(f"{connection.where} is not complete: try again")
    return serving


def _state(connection: Connection) -> dict[str, Any] | None:
    """Return the newest published state."""
    table = f"{connection.name}_meta"
    with connection.using() as client:
        client.load_collection(table, timeout=calls.CALL_SECONDS)
        rows = client.query(
            table, filter="batch >= 0", output_fields=["batch", "state"], consistency_level="Strong",
            timeout=calls.CALL_SECONDS,
        )  # fmt: skip
    if not rows:
        return None
    try:
        return dict(json.loads(max(rows, key=lambda row: int(row["batch"]))["state"]))
    except (ValueError, TypeError):
        raise VSEError(f"{connection.where} is corrupt, its state cannot be read: restore it or index again") from None


def _rows_of(connection: Connection, state: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of the items and captions that serve."""
    base = connection.name if state["generation"] == 1 else f"{connection.name}_g{state['generation']}"
    return base, f"{base}_captions"


def _copy(connection: Connection, tables: Tables, state: dict[str, Any]) -> None:
    base, base_captions = _rows_of(connection, state)
    alive = f"born <= {state['batch']} and died > {state['batch']}"
    writer = Writer(tables, serving=False)
    with connection.using() as client:
        for table in (base, base_captions):
            client.load_collection(table, timeout=calls.CALL_SECONDS)

    def query(table: str, condition: str) -> list[Row]:
        with connection.using() as client:
            found = client.query(
                table, filter=f"{condition} and {alive}", output_fields=["*"], consistency_level="Strong",
                timeout=calls.CALL_SECONDS,
            )  # fmt: skip
            return [dict(row) for row in found]

    def files() -> Iterator[list[Row]]:
        """Yield the items of each file; those of one file have ids in a row."""
        waiting: list[Row] = []
        for after in range(0, int(state["next_item"]), AT_ONCE):
            rows = {row["item"]: row for row in query(base, f"item > {after} and item <= {after + AT_ONCE}")}
            for item in sorted(rows):
                if rows[item]["position"] == 0 and waiting:
                    yield waiting
                    waiting = []
                waiting.append(rows[item])
        if waiting:
            yield waiting

    def write(batch: list[list[Row]]) -> None:
        firsts = [int(rows[0]["item"]) for rows in batch]
        spoken: dict[tuple[int, str], Vectors] = {}
        for row in query(base_captions, f"first in [{', '.join(map(str, firsts))}]"):
            spoken[int(row["first"]), from_stored(row["text"])] = np.array(row["vector"], np.float32)
        entries = [_entry(rows, spoken) for rows in batch]
        places = [place_key((entry.file.root, entry.file.path)) for entry in entries]
        writer.add(dict(zip(places, entries, strict=True)), dict(zip(places, firsts, strict=True)))

    left = files()
    while batch := list(islice(left, AT_ONCE)):
        write(batch)


def _entry(rows: list[Row], spoken: Mapping[tuple[int, str], Vectors]) -> Entry:
    row = rows[0]
    captions = tuple(from_stored(text) for text in json.loads(row["captions"]))
    texts: dict[str, Any] = {name: from_stored(row[name]) for name in ("root", "path", "kind", "digest")}
    file = MediaFile(**texts, **{name: row[name] for name in _FILE}, captions=captions)
    moments = tuple(Moment(np.array(each["vector"], np.float32), each["start"], each["end"]) for each in rows)
    none = np.zeros(len(moments[0].vector), np.float32)
    vectors = np.stack([spoken.get((int(row["item"]), text), none) for text in captions]) if captions else None
    return Entry(file, moments, vectors)

"""Convert collections that versions before 2 of the format wrote.

Those stored versions of rows in ``NAME``, ``NAME_captions`` and ``NAME_meta`` (``NAME_g2`` and so on after an upgrade),
of which the newest state in ``NAME_meta`` says which are visible: ``born <= batch < died``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np

from vse.errors import InputError, VSEError
from vse.index.milvus import connection as calls
from vse.index.milvus.connection import Connection, MilvusAddress
from vse.index.milvus.schema import Row, from_stored
from vse.index.milvus.tables import About, Tables, full_options, serving_generation, switch
from vse.index.milvus.writing import Writer
from vse.index.storage import place_key
from vse.index.types import Entry, MediaFile, Moment, Vectors

STATES = frozenset({"batch", "state", "vector"})
"""Columns of ``NAME_meta`` in the previous format."""
VERSIONS = frozenset({"row", "born", "died"})
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

    Items keep their ids. An interrupted conversion is resumed by the next call; the old rows are dropped last.

    Raises:
        VSEError: Milvus cannot be reached, or the old collection is corrupt.
    """
    with closing(Connection(address)) as connection:
        state = _state(connection) if connection.columns(f"{connection.name}_meta") == STATES else None
        if state is None:
            return None
        generation = int(state["generation"])
        tables = Tables(connection, generation + 2)  # the one between may be an unfinished upgrade
        if not tables.load() or "converted" not in tables.values():
            options = full_options(connection, dict(address.options))
            about = About(str(state["model"]), int(state["dimensions"]), options)
            tables.make(about, {"model_source": str(state["model_source"]), "settings": json.dumps(state["settings"])})
            _copy(connection, tables, state)
            tables.put({"converted": "1"})
        for name in connection.names():  # an alias cannot have the name of a collection: the old one goes first
            found = connection.columns(name)
            if (name == connection.name or name.startswith(f"{connection.name}_")) and (
                found or frozenset()
            ) >= VERSIONS:
                connection.drop(name)
        if serving_generation(connection) is None:
            switch(tables)
        states = [f"{connection.name}_g{number}_meta" for number in range(2, generation + 2)]
        for name in (*states, f"{connection.name}_meta"):
            if connection.columns(name) == STATES:
                connection.drop(name)
        return tables.count("items", "position == 0")


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


def _copy(connection: Connection, tables: Tables, state: dict[str, Any]) -> None:
    base = connection.name if state["generation"] == 1 else f"{connection.name}_g{state['generation']}"
    alive = f"born <= {state['batch']} and died > {state['batch']}"
    writer = Writer(tables, serving=False)
    with connection.using() as client:
        for table in (base, f"{base}_captions"):
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
        for row in query(f"{base}_captions", f"first in [{', '.join(map(str, firsts))}]"):
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

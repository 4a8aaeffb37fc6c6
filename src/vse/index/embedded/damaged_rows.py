"""Rows that are not what was written, and the files they belong to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from vse.index.embedded.changing import find_file
from vse.index.embedded.rows import STORED, Cell, checksum, to_text
from vse.index.embedded.schema import DAMAGE, FILE_COLUMNS
from vse.index.media_file import Place
from vse.inputs.printable import printable
from vse.progress import ProgressReporter, SilentProgress

BLOCK = 4096

_COLUMNS = {
    "meta": "key, value",
    "files": f"id, {FILE_COLUMNS}",
    "items": 'id, file, start, "end", vector',
    "captions": "id, file, text, vector",
}
_WITHOUT_ITEMS = "SELECT id FROM files WHERE NOT EXISTS (SELECT 1 FROM items WHERE items.file = files.id)"


def damaged_rows(
    connection: sqlite3.Connection, dimensions: int, progress: ProgressReporter | None = None
) -> Iterator[tuple[str, Place | None]]:
    """A line for each row that does not match its checksum or misses something, and the file, where that is known."""
    for table, columns in _COLUMNS.items():
        rows = connection.execute(f"SELECT checksum, {columns} FROM {table} NOT INDEXED")
        for row in _counted(rows, progress or SilentProgress()):
            if checksum(row[1:]) != row[0]:
                wrong = "does not match its checksum"
            elif (
                table in {"items", "captions"} and row[-1] is not None and len(row[-1]) != dimensions * STORED.itemsize
            ):
                wrong = f"holds a vector of {len(row[-1])} bytes"
            else:
                continue
            place = None if table == "meta" else _place(connection, row[1] if table == "files" else row[2])
            yield _told(table, row[1], place, wrong), place
    for (file,) in connection.execute(_WITHOUT_ITEMS):
        place = _place(connection, file)
        yield _told("files", file, place, "has no items"), place


def damaged_files(connection: sqlite3.Connection, dimensions: int) -> tuple[Place, ...]:
    """The files to which such rows belong, each once, as far as the tables can be read and the files be removed."""
    found: dict[Place, None] = {}
    with suppress(*DAMAGE):
        for _, place in damaged_rows(connection, dimensions):
            if place is not None and find_file(connection, place) is not None:  # not so when its name is damaged
                found[place] = None
    return tuple(found)


def _counted(rows: Iterable[tuple[Any, ...]], progress: ProgressReporter) -> Iterator[tuple[Any, ...]]:
    count = 0
    for count, row in enumerate(rows, 1):
        yield row
        if count % BLOCK == 0:
            progress.advance(BLOCK)
    progress.advance(count % BLOCK)


def _told(table: str, row: Cell, place: Place | None, wrong: str) -> str:
    name = "" if place is None else f" ({printable('/'.join(place))})"
    return f"row {row!r} of {table}{name} {wrong}"


def _place(connection: sqlite3.Connection, file: Cell) -> Place | None:
    found = connection.execute("SELECT root, path FROM files WHERE id = ?", (file,)).fetchone()
    return None if found is None or not all(isinstance(cell, bytes) for cell in found) else _texts(*found)


def _texts(root: bytes, path: bytes) -> Place:
    return to_text(root), to_text(path)

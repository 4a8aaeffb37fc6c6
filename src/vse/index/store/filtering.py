"""Filters as SQL conditions on the files of one generation."""

from __future__ import annotations

import sqlite3

import numpy as np

from vse.errors import InputError
from vse.index.filters import Filter
from vse.index.storage import to_bytes
from vse.index.store.database import Cell, Ids, has_table
from vse.index.words import phrase


def condition(where: Filter) -> tuple[str, list[Cell]]:
    """Return the SQL condition on the table ``files`` and its parameters; the bounds of a box are inclusive."""
    parts: list[str] = []
    cells: list[Cell] = []

    def add(part: str, *values: Cell) -> None:
        parts.append(part)
        cells.extend(values)

    if where.root is not None:
        add("root = ?", to_bytes(where.root))
    if where.folder is not None:
        folder = to_bytes(where.folder)
        add("(path >= ? AND path < ?)", folder + b"/", folder + b"0")  # "0" comes right after "/"
    if where.kind is not None:
        add("kind = ?", where.kind)
    if where.after is not None:
        add("taken >= ?", where.after)
    if where.before is not None:
        add("taken < ?", where.before)
    if where.within is not None:
        box = where.within
        add("latitude BETWEEN ? AND ?", box.south, box.north)
        joined = "AND" if box.west <= box.east else "OR"  # a box across the date line is two boxes
        add(f"(longitude >= ? {joined} longitude <= ?)", box.west, box.east)
    if where.needs_words:
        add("files.id IN (SELECT rowid FROM word_index WHERE word_index MATCH ?)", _expression(where))
    return " AND ".join(parts) or "1", cells


def _expression(where: Filter) -> str:
    """Return the FTS5 expression of the conditions on words."""
    fields = [(name, value) for name in ("name", "camera", "place") if (value := getattr(where, name)) is not None]
    return " AND ".join([*(f"{name} : {phrase(value)}" for name, value in fields), *map(phrase, where.words)])


def check_filter(connection: sqlite3.Connection, where: Filter | None) -> None:
    """Raise InputError for a condition on words if the collection has none."""
    if where is not None and where.needs_words and not has_table(connection, "word_index"):
        raise InputError(
            "the collection was written before words were indexed, so name, camera, place and exact words find "
            "nothing: run 'vse index' on its folder once"
        )


def allowed_items(connection: sqlite3.Connection, where: Filter) -> Ids:
    """Return the ids of the items whose files pass, ascending."""
    check_filter(connection, where)
    text, cells = condition(where)
    # CROSS JOIN fixes the join order: matching files, then the index of their items, never the vectors.
    rows = connection.execute(
        f"SELECT items.id FROM files CROSS JOIN items ON items.file = files.id WHERE {text}", cells
    )
    return np.sort(np.fromiter((row[0] for row in rows), np.int64))

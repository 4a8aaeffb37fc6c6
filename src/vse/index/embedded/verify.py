"""Reading everything a generation holds, and comparing it with its checksums."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import numpy as np

from vse.errors import first_line
from vse.index.embedded import approximate
from vse.index.embedded.cache import LaneCache
from vse.index.embedded.caches import Caches
from vse.index.embedded.changing import SEQUENCES, last_ids
from vse.index.embedded.database import captions_by_id, changes, counts, page_of_files, removed_after, vectors_after
from vse.index.embedded.rows import STORED, checksum, to_text
from vse.index.embedded.schema import DAMAGE, FILE_COLUMNS, LANES
from vse.index.embedded.verify_report import VerifyReport

MOST_LINES = 20
"""Problems of one kind that are listed; the others are counted."""
BLOCK = 4096
_COLUMNS = {
    "meta": "key, value",
    "files": f"id, {FILE_COLUMNS}",
    "items": 'id, file, start, "end", vector',
    "captions": "id, file, text, vector",
}


def verify_generation(where: str, connection: sqlite3.Connection, dimensions: int, caches: Caches) -> VerifyReport:
    """Everything about one generation."""
    problems = row_problems(connection, dimensions)
    try:
        files, items, captions = counts(connection)
        in_cache = [line for cache in caches.lanes.values() for line in cache_problems(connection, cache)]
    except DAMAGE:
        return VerifyReport(where, 0, 0, 0, problems or ("the database cannot be read",), ())
    return VerifyReport(where, files, items, captions, problems, tuple(in_cache))


def row_problems(connection: sqlite3.Connection, dimensions: int) -> tuple[str, ...]:
    """What is wrong with the database, a line each."""
    found: list[str] = []
    for check in (_structure, _rows, _ids, _reading):
        try:
            lines = check(connection, dimensions)
            found.extend(_shortened(lines))
        except DAMAGE as error:
            found.append(f"the database cannot be read to its end ({first_line(error)})")
    return tuple(found)


def cache_problems(connection: sqlite3.Connection, cache: LaneCache) -> tuple[str, ...]:
    """Where the cache, with what came after it, is not what the database holds; a cache that is absent is none."""
    if not (cache.folder / f"{cache.lane}.json").exists():
        return ()
    header = cache.header()
    ids = None if header is None else cache.ids(header)
    matrix = None if header is None else cache.matrix(header)
    if header is None or ids is None or matrix is None:
        return (f"the cache of {cache.lane} cannot be read",)
    if header.changes > changes(connection):
        return (f"the cache of {cache.lane} is newer than the database",)
    if header.approximate is not None:
        path = cache.path(header, header.approximate)
        if approximate.load(path, header.approximate_rows, cache.dimensions) is None:
            return (f"the approximate index {path.name} cannot be read",)
    alive = ids[~np.isin(ids, removed_after(connection, cache.lane, header.changes)) & (ids > 0)]
    try:
        return tuple(_shortened(_differences(connection, cache, np.abs(ids), alive, matrix)))
    except DAMAGE:
        return (f"the cache of {cache.lane} cannot be compared with the database",)


def _structure(connection: sqlite3.Connection, dimensions: int) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({MOST_LINES})"):
        if line != "ok":
            yield f"the database is malformed: {' '.join(line.split())}"
    for table, row, *_ in connection.execute("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} belongs to no file"


def _rows(connection: sqlite3.Connection, dimensions: int) -> Iterator[str]:
    for table, columns in _COLUMNS.items():
        for row in connection.execute(f"SELECT checksum, {columns} FROM {table} NOT INDEXED"):
            if checksum(row[1:]) != row[0]:
                name = f" ({to_text(row[3])!r})" if table == "files" and isinstance(row[3], bytes) else ""
                yield f"row {row[1]} of {table}{name} does not match its checksum"
            elif (
                table in {"items", "captions"} and row[-1] is not None and len(row[-1]) != dimensions * STORED.itemsize
            ):
                yield f"row {row[1]} of {table} holds a vector of {len(row[-1])} bytes"


def _ids(connection: sqlite3.Connection, dimensions: int) -> Iterator[str]:
    given = last_ids(connection)
    for table in SEQUENCES:
        (highest,) = connection.execute(f"SELECT max(id) FROM {table}").fetchone()
        if (highest or 0) > given[table]:
            yield f"{table} counts {given[table]} ids and holds {highest}"
    for table in LANES:
        yield from _unreachable(connection, f"{table}_by_file", table, "files CROSS JOIN {0} ON {1}.file = files.id")
    places = "files AS f NOT INDEXED CROSS JOIN {0} ON (files.root, files.path, files.id) = (f.root, f.path, f.id)"
    yield from _unreachable(connection, "sqlite_autoindex_files_1", "files", places)
    bare = "SELECT id FROM files WHERE NOT EXISTS (SELECT 1 FROM items WHERE items.file = files.id)"
    for (row,) in connection.execute(bare):
        yield f"row {row} of files has no items"


def _reading(connection: sqlite3.Connection, dimensions: int) -> Iterator[str]:
    """Read everything by the statements that serve; what stops them is told by the caller."""
    after = None
    while page := page_of_files(connection, None, after):
        after = page[-1].root, page[-1].path
    last = 0
    while ids := [row[0] for row in connection.execute("SELECT id FROM captions WHERE id > ? LIMIT 1000", (last,))]:
        if ids[-1] <= last:
            raise sqlite3.DatabaseError("the ids of captions are out of order")
        captions_by_id(connection, ids)
        last = ids[-1]
    yield from ()


def _unreachable(connection: sqlite3.Connection, index: str, table: str, by_index: str) -> Iterator[str]:
    """Whether every row is found by an index: SQLite's own check passes over damage that its searches stumble on."""
    joined = by_index.format(f"{table} INDEXED BY {index}", table)
    (reached,) = connection.execute(f"SELECT count(*) FROM {joined}").fetchone()
    (there,) = connection.execute(f"SELECT count(*) FROM {table} NOT INDEXED").fetchone()
    if reached != there:
        yield f"{index} leads to {reached} of {there} rows of {table}"


def _differences(
    connection: sqlite3.Connection, cache: LaneCache, ids: np.ndarray, alive: np.ndarray, matrix: np.ndarray
) -> Iterator[str]:
    last = int(ids[-1]) if len(ids) else 0
    seen = 0
    for some, vectors in vectors_after(connection, cache.lane, 0, cache.dimensions, BLOCK):
        inside = some <= last
        missing = inside & ~np.isin(some, alive)
        yield from (f"the cache of {cache.lane} lacks the vector of {each}" for each in some[missing])
        there = inside & ~missing
        seen += int(there.sum())
        rows = np.searchsorted(ids, some[there])
        differs = (matrix[rows].view(np.uint32) != vectors[there].view(np.uint32)).any(axis=1)
        yield from (f"the cache of {cache.lane} holds another vector for {each}" for each in some[there][differs])
    if seen < len(alive):
        yield f"the cache of {cache.lane} holds {len(alive) - seen} vectors that were removed"


def _shortened(lines: Iterator[str]) -> Iterator[str]:
    more = 0
    for number, line in enumerate(lines):
        if number < MOST_LINES:
            yield line
        else:
            more += 1
    if more:
        yield f"… and {more} more"

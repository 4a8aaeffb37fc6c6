"""Reading everything a generation holds, and comparing it with its checksums."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from vse.errors import first_line
from vse.index.embedded.caches import Caches
from vse.index.embedded.changing import SEQUENCES, last_ids
from vse.index.embedded.damaged_rows import damaged_files, damaged_rows
from vse.index.embedded.database import captions_by_id, counts, page_of_files
from vse.index.embedded.schema import DAMAGE
from vse.index.embedded.verify_cache import compare, look_at
from vse.index.embedded.verify_report import VerifyReport
from vse.index.lanes import LANES
from vse.progress import ProgressReporter, SilentProgress

MOST_LINES = 20
"""Problems of one kind that are listed; the others are counted."""


def verify_generation(
    where: str,
    connection: sqlite3.Connection,
    dimensions: int,
    caches: Caches,
    progress: ProgressReporter | None = None,
) -> VerifyReport:
    """Everything about one generation as it is at one moment, while a writer may go on."""
    report = progress or SilentProgress()
    found = {lane: look_at(cache) for lane, cache in caches.lanes.items()}  # then the database is at least as new
    with _one_state(connection):
        problems = row_problems(connection, dimensions, report)
        damaged = damaged_files(connection, dimensions) if problems else ()
        try:
            files, items, captions = counts(connection)
            report.start(items + captions, "comparing the cache")
            compared = [compare(connection, cache, found[lane], report) for lane, cache in caches.lanes.items()]
        except DAMAGE:
            return VerifyReport(where, 0, 0, 0, problems or ("the database cannot be read",), ())
        finally:
            report.finish()
    in_cache = [line for each in compared for line in _shortened(each.still_there(connection).told())]
    return VerifyReport(where, files, items, captions, problems, tuple(in_cache), damaged)


def row_problems(
    connection: sqlite3.Connection, dimensions: int, progress: ProgressReporter | None = None
) -> tuple[str, ...]:
    """What is wrong with the database, a line each."""
    report = progress or SilentProgress()
    found: list[str] = []
    report.start(_size(connection), "reading the database")
    try:
        for check in (_structure, _rows, _ids, _reading):
            try:
                found.extend(_shortened(check(connection, dimensions, report)))
            except DAMAGE as error:
                found.append(f"the database cannot be read to its end ({first_line(error)})")
    finally:
        report.finish()
    return tuple(found)


@contextmanager
def _one_state(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction of statements that may fail each."""
    connection.execute("BEGIN DEFERRED")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _size(connection: sqlite3.Connection) -> int:
    """The rows that are compared with their checksums, as far as they can be counted."""
    with suppress(*DAMAGE):
        (origin,) = connection.execute("SELECT count(*) FROM meta").fetchone()
        return int(origin) + sum(counts(connection))
    return 0


def _structure(connection: sqlite3.Connection, dimensions: int, report: ProgressReporter) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({MOST_LINES})"):
        if line != "ok":
            yield f"the database is malformed: {' '.join(line.split())}"
    for table, row, *_ in connection.execute("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} belongs to no file"


def _rows(connection: sqlite3.Connection, dimensions: int, report: ProgressReporter) -> Iterator[str]:
    for line, _ in damaged_rows(connection, dimensions, report):
        yield line


def _ids(connection: sqlite3.Connection, dimensions: int, report: ProgressReporter) -> Iterator[str]:
    given = last_ids(connection)
    for table in SEQUENCES:
        (highest,) = connection.execute(f"SELECT max(id) FROM {table}").fetchone()
        if (highest or 0) > given[table]:
            yield f"{table} counts {given[table]} ids and holds {highest}"
    for table in LANES:
        yield from _unreachable(connection, f"{table}_by_file", table, "files CROSS JOIN {0} ON {1}.file = files.id")
    places = "files AS f NOT INDEXED CROSS JOIN {0} ON (files.root, files.path, files.id) = (f.root, f.path, f.id)"
    yield from _unreachable(connection, "sqlite_autoindex_files_1", "files", places)


def _reading(connection: sqlite3.Connection, dimensions: int, report: ProgressReporter) -> Iterator[str]:
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


def _shortened(lines: Iterator[str]) -> Iterator[str]:
    more = 0
    for number, line in enumerate(lines):
        if number < MOST_LINES:
            yield line
        else:
            more += 1
    if more:
        yield f"… and {more} more"

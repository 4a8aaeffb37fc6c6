"""Reading everything in a generation and comparing it with its checksums."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from vse.errors import first_line
from vse.index.storage import VectorFormat
from vse.index.store import approximate
from vse.index.store.cache import Caches, OpenCache, VectorCache
from vse.index.store.changes import SEQUENCES, find_file, last_ids, lost_changes
from vse.index.store.checksums import DamagedCacheError, file_checksum
from vse.index.store.database import (
    DAMAGE,
    DETAIL_COLUMNS,
    FILE_COLUMNS,
    Cell,
    captions_by_id,
    changes,
    checksum,
    counts,
    has_table,
    known_ids,
    page_of_files,
    removed_after,
    to_text,
    trimmed,
    vectors_after,
)
from vse.index.store.words import differences
from vse.index.types import VECTOR_TABLES, Place, VectorTable
from vse.inputs.text import printable
from vse.progress import ProgressReporter, SilentProgress

BLOCK = 4096


@dataclass(frozen=True)
class CacheProblems:
    """Problems of the cache of one table; ``differing`` are ids for which it holds a different vector."""

    table: VectorTable
    lines: tuple[str, ...] = ()
    lacking: Sequence[int] = ()
    differing: Sequence[int] = ()

    def still_there(self, connection: sqlite3.Connection) -> CacheProblems:
        """Return the problems, except vectors removed (and purged from the cache) during the comparison."""
        known = known_ids(connection, self.table, self.differing)
        return replace(self, differing=[each for each in self.differing if each in known])

    def told(self) -> Iterator[str]:
        """Yield one line per problem."""
        yield from self.lines
        yield from (f"the cache of {self.table} is missing the vector of {each}" for each in self.lacking)
        yield from (f"the cache of {self.table} holds a different vector for {each}" for each in self.differing)


def look_at(cache: VectorCache) -> OpenCache | str | None:
    """Open the cache for a comparison in a later transaction; None when there is none, or a line why it is unusable.

    One of an earlier version, without checksums, counts as none: nobody uses it.

    Retries when a writer replaces it meanwhile.
    """
    while True:
        signature = cache.signature()
        if signature is None or cache.unsealed():
            return None
        opened = cache.opened()
        problem = _unreadable(cache, opened)
        if problem is None:
            return opened
        if cache.signature() == signature:
            return problem


def compare(
    connection: sqlite3.Connection, cache: VectorCache, found: OpenCache | str | None, progress: ProgressReporter
) -> CacheProblems:
    """Compare what :func:`look_at` found with the snapshot of this transaction."""
    table = cache.table
    if found is None or isinstance(found, str):
        return CacheProblems(table, () if found is None else (found,))
    if found.header.changes > changes(connection):
        return CacheProblems(table, (f"the cache of {table} is newer than the database",))
    if found.header.changes < trimmed(connection):
        return CacheProblems(table, (f"the cache of {table} is too stale to be brought up to date",))
    try:
        return _differences(connection, cache, found, progress)
    except DAMAGE:
        return CacheProblems(table, (f"the cache of {table} cannot be compared with the database",))


def _unreadable(cache: VectorCache, opened: OpenCache | None) -> str | None:
    if opened is None:
        return f"the cache of {cache.table} cannot be read"
    header = opened.header
    if header.approximate is not None:
        path = cache.path(header, header.approximate)
        try:
            intact = header.approximate_checksum == file_checksum(path)
        except OSError:
            intact = False
        if not intact or approximate.load(path, header.approximate_rows, cache.form.dimensions) is None:
            return f"the approximate index {path.name} cannot be read"
    return None


def _differences(
    connection: sqlite3.Connection, cache: VectorCache, opened: OpenCache, progress: ProgressReporter
) -> CacheProblems:
    with suppress(DamagedCacheError):  # damaged blocks are read as well, and differ below
        opened.vectors.verify()
    ids, removed = np.abs(opened.ids), removed_after(connection, cache.table, opened.header.changes)
    alive = opened.ids[~np.isin(opened.ids, removed) & (opened.ids > 0)]
    last = int(ids[-1]) if len(ids) else 0
    seen = 0
    lacking: list[int] = []
    differing: list[int] = []
    for some, vectors in vectors_after(connection, cache.table, 0, cache.form, BLOCK):
        inside = some <= last
        missing = inside & ~np.isin(some, alive)
        there = inside & ~missing
        seen += int(there.sum())
        rows = np.searchsorted(ids, some[there])
        differs = (opened.vectors.take(rows, verified=False).view(np.uint8) != vectors[there].view(np.uint8)).any(
            axis=1
        )
        lacking += some[missing].tolist()
        differing += some[there][differs].tolist()
        progress.advance(len(some))
    left = len(alive) - seen
    lines = (f"the cache of {cache.table} still holds {left} removed vectors",) if left else ()
    return CacheProblems(cache.table, lines, lacking, differing)


@dataclass(frozen=True)
class VerifyReport:
    """The result of reading everything.

    ``problems`` in the database call for a backup or indexing again, those in the cache or in the words, which follow
    from the rest, only for a rebuild.
    ``damaged_files`` are the (root, path) of files with corrupt rows. ``lost_changes`` are missing without a trace in
    the rows; they are one of the problems.
    """

    where: str
    files: int
    items: int
    captions: int
    problems: tuple[str, ...]
    cache_problems: tuple[str, ...]
    damaged_files: tuple[Place, ...] = ()
    lost_changes: int = 0

    @property
    def ok(self) -> bool:
        return not self.problems and not self.cache_problems

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        lists = {name: list(values[name]) for name in ("problems", "cache_problems")}
        return {**values, **lists, "damaged_files": ["/".join(place) for place in self.damaged_files], "ok": self.ok}


_COLUMNS = {
    "meta": "key, value",
    "files": f"id, {FILE_COLUMNS}",
    "items": 'id, file, start, "end", vector',
    "captions": "id, file, text, vector",
    "details": f"file, {DETAIL_COLUMNS}",
}
_WITHOUT_ITEMS = "SELECT id FROM files WHERE NOT EXISTS (SELECT 1 FROM items WHERE items.file = files.id)"


def damaged_rows(
    connection: sqlite3.Connection, form: VectorFormat, progress: ProgressReporter | None = None
) -> Iterator[tuple[str, Place | None]]:
    """Yield a line for each row that fails its checksum or is incomplete, and its file where that is known."""
    for table, columns in _COLUMNS.items():
        if table == "details" and not has_table(connection, table):
            continue  # written by the first version
        rows = connection.execute(f"SELECT checksum, {columns} FROM {table} NOT INDEXED")
        for row in _counted(rows, progress or SilentProgress()):
            if checksum(row[1:]) != row[0]:
                wrong = "does not match its checksum"
            elif table in {"items", "captions"} and row[-1] is not None and len(row[-1]) != form.row_bytes:
                wrong = f"holds a vector of {len(row[-1])} bytes"
            else:
                continue
            place = None if table == "meta" else _place(connection, row[1] if table in {"files", "details"} else row[2])
            yield _told(table, row[1], place, wrong), place
    for (file,) in connection.execute(_WITHOUT_ITEMS):
        place = _place(connection, file)
        yield _told("files", file, place, "has no items"), place


def damaged_files(connection: sqlite3.Connection, form: VectorFormat) -> tuple[Place, ...]:
    """Return the files with such rows, each once, as far as the tables can be read and the files be removed."""
    found: dict[Place, None] = {}
    with suppress(*DAMAGE):
        for _, place in damaged_rows(connection, form):
            if place is not None and find_file(connection, place) is not None:  # None when its name is corrupt
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


MAX_LINES = 20
"""Problems of one kind listed in full; the rest are counted."""


def verify_generation(
    where: str,
    connection: sqlite3.Connection,
    form: VectorFormat,
    caches: Caches,
    progress: ProgressReporter | None = None,
    *,
    committed: int = 0,
) -> VerifyReport:
    """Verify one generation within one snapshot, while a writer may continue.

    Args:
        where: The collection, for the report.
        connection: A separate connection, not in a transaction.
        form: Width and storage of the vectors.
        caches: The caches to compare.
        progress: Receives the rows read, then the vectors compared.
        committed: Changes that are known to have been committed.

    Returns:
        All problems found; a corrupt database is reported, not raised.
    """
    report = progress or SilentProgress()
    found = {table: look_at(cache) for table, cache in caches.by_table.items()}  # first: never newer than the database
    with _one_state(connection):
        lost = _lost(connection, committed)
        problems = (*_told_lost(lost), *row_problems(connection, form, report))
        damaged = damaged_files(connection, form) if problems else ()
        try:
            files, items, captions = counts(connection)
            report.start(items + captions, "comparing the cache")
            in_words = tuple(differences(connection))
            compared = [compare(connection, cache, found[table], report) for table, cache in caches.by_table.items()]
        except DAMAGE:
            return VerifyReport(where, 0, 0, 0, problems or ("the database cannot be read",), ())
        finally:
            report.finish()
    in_cache = [line for each in compared for line in _shortened(each.still_there(connection).told())]
    return VerifyReport(
        where=where,
        files=files,
        items=items,
        captions=captions,
        problems=problems,
        cache_problems=(*in_words, *in_cache),
        damaged_files=damaged,
        lost_changes=lost,
    )


def _lost(connection: sqlite3.Connection, committed: int) -> int:
    """Return how many committed changes are missing: SQLite drops what follows damage in its log in silence."""
    with suppress(*DAMAGE):
        return lost_changes(connection, committed)
    return 0


def _told_lost(lost: int) -> Iterator[str]:
    if lost:
        yield f"{lost} committed changes are missing, the write-ahead log was damaged"


def row_problems(
    connection: sqlite3.Connection, form: VectorFormat, progress: ProgressReporter | None = None
) -> tuple[str, ...]:
    """Return the problems of the database, one line each."""
    report = progress or SilentProgress()
    found: list[str] = []
    report.start(_size(connection), "reading the database")
    try:
        for check in (_structure, _rows, _ids, _reading):
            try:
                found.extend(_shortened(check(connection, form, report)))
            except DAMAGE as error:
                found.append(f"the database cannot be read completely ({first_line(error)})")
    finally:
        report.finish()
    return tuple(found)


@contextmanager
def _one_state(connection: sqlite3.Connection) -> Iterator[None]:
    """Run statements, each of which may fail, in one read transaction."""
    connection.execute("BEGIN DEFERRED")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _size(connection: sqlite3.Connection) -> int:
    """Return how many rows have checksums, as far as they can be counted."""
    with suppress(*DAMAGE):
        tables = [table for table in _COLUMNS if has_table(connection, table)]
        return sum(int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables)
    return 0


def _structure(connection: sqlite3.Connection, form: VectorFormat, report: ProgressReporter) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_LINES})"):
        if line != "ok":
            yield f"the database is malformed: {' '.join(line.split())}"
    for table, row, *_ in connection.execute("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} belongs to no file"


def _rows(connection: sqlite3.Connection, form: VectorFormat, report: ProgressReporter) -> Iterator[str]:
    for line, _ in damaged_rows(connection, form, report):
        yield line


def _ids(connection: sqlite3.Connection, form: VectorFormat, report: ProgressReporter) -> Iterator[str]:
    given = last_ids(connection)
    for table in SEQUENCES:
        (highest,) = connection.execute(f"SELECT max(id) FROM {table}").fetchone()
        if (highest or 0) > given[table]:
            yield f"{table} has id {highest}, above the last assigned id {given[table]}"
    for table in VECTOR_TABLES:
        yield from _unreachable(connection, f"{table}_by_file", table, "files CROSS JOIN {0} ON {1}.file = files.id")
    places = "files AS f NOT INDEXED CROSS JOIN {0} ON (files.root, files.path, files.id) = (f.root, f.path, f.id)"
    yield from _unreachable(connection, "sqlite_autoindex_files_1", "files", places)


def _reading(connection: sqlite3.Connection, form: VectorFormat, report: ProgressReporter) -> Iterator[str]:
    """Read everything with the queries that serve requests; the caller reports what fails."""
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
    """Check that an index reaches every row; SQLite's own check misses some corruption that its queries run into."""
    joined = by_index.format(f"{table} INDEXED BY {index}", table)
    (reached,) = connection.execute(f"SELECT count(*) FROM {joined}").fetchone()
    (there,) = connection.execute(f"SELECT count(*) FROM {table} NOT INDEXED").fetchone()
    if reached != there:
        yield f"{index} reaches {reached} of {there} rows of {table}"


def _shortened(lines: Iterator[str]) -> Iterator[str]:
    more = 0
    for number, line in enumerate(lines):
        if number < MAX_LINES:
            yield line
        else:
            more += 1
    if more:
        yield f"… and {more} more"

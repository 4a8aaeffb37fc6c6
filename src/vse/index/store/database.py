"""Table definitions, encodings and read queries of one generation."""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, VSEError, first_line
from vse.index.storage import DEFAULT_STORAGE, Rows, Storage, VectorFormat, check_storage, decode, to_bytes
from vse.index.types import VECTOR_TABLES, Item, MediaFile, Vectors, VectorTable

DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises for a corrupt file; a message that quotes its bytes may itself fail to decode."""
FILE_COLUMNS = (
    "root, path, kind, size, modified, digest, width, height, taken, latitude, longitude, duration"  # as in MediaFile
)

# Ids are never reused (AUTOINCREMENT). Text is stored as bytes: names need not be UTF-8, and bytes keep their order.
TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE files (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    root BLOB NOT NULL, path BLOB NOT NULL, kind TEXT NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
    digest TEXT NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL,
    taken REAL, latitude REAL, longitude REAL, duration REAL,
    checksum INTEGER NOT NULL,
    UNIQUE (root, path)
);
CREATE TABLE items (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file INTEGER NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    start REAL, "end" REAL, vector BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE INDEX items_by_file ON items (file);
CREATE TABLE captions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file INTEGER NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    text BLOB NOT NULL, vector BLOB,
    checksum INTEGER NOT NULL
);
CREATE INDEX captions_by_file ON captions (file);
CREATE TABLE removed (change INTEGER NOT NULL, lane TEXT NOT NULL, id INTEGER NOT NULL);
CREATE INDEX removed_by_change ON removed (change);
{
    "".join(
        f'''
CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN
    INSERT INTO removed SELECT value, '{table}', old.id FROM meta WHERE key = 'changes';
END;'''
        for table in VECTOR_TABLES
    )
}
"""

DETAIL_COLUMNS = "camera, place, title, description, keywords, ocr, metadata_version"  # as in MediaFile
# What the metadata says about a file. Collections of the first version lack this table until somebody writes to them.
DETAILS = """
CREATE TABLE details (
    file INTEGER PRIMARY KEY REFERENCES files (id) ON DELETE CASCADE,
    camera BLOB, place BLOB, title BLOB, description BLOB, keywords BLOB NOT NULL, ocr BLOB,
    metadata_version INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
"""


@contextmanager
def one_line(folder: Path, *, fix: str = "") -> Iterator[None]:
    """Convert SQLite and disk errors into one line about the collection in ``folder``."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:  # full or read-only disk, locked, no permission
        unchanged = fix or "nothing was changed, free disk space or allow writing and try again"
        raise VSEError(f"{folder} cannot be used ({first_line(error)}): {unchanged}") from error
    except DAMAGE as error:
        raise VSEError(
            f"{folder} is corrupt ({first_line(error)}): 'vse collection verify' reports details; restore it or index "
            "again"
        ) from error
    except OverflowError as error:
        raise InputError(f"{folder} cannot store an attribute of a file ({error}): expected at most 64 bits") from None


@contextmanager
def transaction(connection: sqlite3.Connection, kind: Literal["IMMEDIATE", "DEFERRED"]) -> Iterator[None]:
    """Run the statements inside as one transaction."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors, such as a full disk, have rolled back already
            connection.execute("ROLLBACK")
        raise


Cell = int | float | str | bytes | None


def checksum(cells: Iterable[Cell]) -> int:
    """Return the CRC-32 of ``cells``, which depends on their types, values and order."""
    parts: list[bytes] = []
    for cell in cells:  # one loop without calls: every row of an import comes here
        if cell is None:
            parts.append(b"n")
        elif isinstance(cell, bytes):
            parts += (_SIZED(b"b", len(cell)), cell)
        elif isinstance(cell, str):
            raw = cell.encode("utf-8", "surrogateescape")
            parts += (_SIZED(b"t", len(raw)), raw)
        elif isinstance(cell, int):
            parts.append(_SIZED(b"i", cell))
        else:
            parts.append(_REAL(b"f", cell))
    return zlib.crc32(b"".join(parts))


_SIZED, _REAL = struct.Struct("<cq").pack, struct.Struct("<cd").pack


def to_text(raw: Cell) -> str:
    """Decode what :func:`to_bytes` stored."""
    if not isinstance(raw, bytes):
        raise sqlite3.DatabaseError(f"text is stored as {type(raw).__name__}")
    return raw.decode("utf-8", "surrogateescape")


def file_cells(file: MediaFile) -> tuple[Cell, ...]:
    """Return the values of ``FILE_COLUMNS``."""
    return (
        to_bytes(file.root), to_bytes(file.path), file.kind, file.size, file.modified, file.digest,
        file.width, file.height, real(file.taken), real(file.latitude), real(file.longitude), real(file.duration),
    )  # fmt: skip


def detail_cells(file: MediaFile) -> tuple[Cell, ...]:
    """Return the values of ``DETAIL_COLUMNS``."""
    texts = (file.camera, file.place, file.title, file.description, json.dumps(file.keywords), file.ocr)
    return (*(None if text is None else to_bytes(text) for text in texts), file.metadata_version)


def file_of(cells: tuple[Cell, ...], captions: tuple[str, ...], details: tuple[Cell, ...] | None = None) -> MediaFile:
    """Return the file with these ``FILE_COLUMNS``, captions and ``DETAIL_COLUMNS``."""
    root, path, *others = cells
    values: list[Any] = [to_text(root), to_text(path), *others]
    file = MediaFile(*values)
    if details is None:
        return replace(file, captions=captions)
    camera, place, title, description, keywords, ocr = (
        None if cell is None else to_text(cell) for cell in details[:-1]
    )
    return replace(
        file,
        captions=captions,
        camera=camera,
        place=place,
        title=title,
        description=description,
        keywords=_strings(keywords),
        ocr=ocr,
        metadata_version=int(details[-1] or 0),
    )


def _strings(text: str | None) -> tuple[str, ...]:
    try:
        return tuple(json.loads(text or ""))
    except ValueError:
        raise sqlite3.DatabaseError("the keywords of a file are corrupt") from None


def vectors_of(blobs: list[bytes], form: VectorFormat) -> Rows:
    """Return vectors as stored, in a new array ``(n, D)``."""
    if any(not isinstance(blob, bytes) or len(blob) != form.row_bytes for blob in blobs):
        raise sqlite3.DatabaseError("a vector has the wrong length")
    return form.from_bytes(b"".join(blobs))


def real(value: float | None) -> float | None:
    """Return a number as SQLite stores it in a column of reals."""
    return None if value is None else float(value)


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether there is a table of this name; collections of the first version lack some."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


Ids = NDArray[np.int64]
AT_ONCE = 500
"""Values bound in one statement; SQLite's limit used to be 999."""
PAGE = 1024


@dataclass(frozen=True)
class Meta:
    """The model that the vectors belong to, and how they are stored."""

    model: str
    model_source: str
    dimensions: int
    storage: Storage = DEFAULT_STORAGE

    @property
    def form(self) -> VectorFormat:
        return VectorFormat(self.dimensions, self.storage)


def read_meta(connection: sqlite3.Connection) -> Meta:
    """Return the model recorded when the generation was created."""
    values = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    try:
        storage = check_storage(values.get("storage", DEFAULT_STORAGE))  # earlier versions recorded none
        return Meta(str(values["model"]), str(values["model_source"]), int(values["dimensions"]), storage)
    except (KeyError, ValueError, TypeError):
        raise sqlite3.DatabaseError("its model is not recorded") from None


def settings(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the recorded settings; none in a collection of an older version."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'settings'").fetchone()
    try:
        return {} if row is None else dict(json.loads(row[0]))
    except (ValueError, TypeError):
        raise sqlite3.DatabaseError("its settings are malformed") from None


def changes(connection: sqlite3.Connection) -> int:
    """Return the number of changes committed so far."""
    return _number(connection, "SELECT value FROM meta WHERE key = 'changes'")


def trimmed(connection: sqlite3.Connection) -> int:
    """Return the change up to which removals are no longer listed."""
    return _number(connection, "SELECT coalesce((SELECT value FROM meta WHERE key = 'trimmed'), 0)")


def counts(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Return the numbers of files, items and captions."""
    files, items, captions = (_number(connection, f"SELECT count(*) FROM {t}") for t in ("files", "items", "captions"))
    return files, items, captions


def files_by_root(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of files of each root, in order."""
    rows = connection.execute("SELECT root, count(*) FROM files GROUP BY root ORDER BY root")
    return {to_text(root): int(count) for root, count in rows}


def count_after(connection: sqlite3.Connection, table: VectorTable, last: int) -> int:
    """Return how many vectors have ids above ``last``."""
    return _number(connection, f"SELECT count(*) FROM {table} WHERE id > ? AND vector IS NOT NULL", last)


def vectors_after(
    connection: sqlite3.Connection, table: VectorTable, last: int, form: VectorFormat, block: int
) -> Iterator[tuple[Ids, Rows]]:
    """Iterate over all vectors, as stored, with ids above ``last``, ascending, one statement per block."""
    while True:
        rows = connection.execute(
            f"SELECT id, vector FROM {table} WHERE id > ? AND vector IS NOT NULL ORDER BY id LIMIT ?", (last, block)
        ).fetchall()
        if not rows:
            return
        ids = np.array([row[0] for row in rows], np.int64)
        if (np.diff(ids, prepend=last) <= 0).any():  # a corrupt table, which could loop forever
            raise sqlite3.DatabaseError(f"the ids of {table} are out of order")
        yield ids, vectors_of([row[1] for row in rows], form)
        last = rows[-1][0]


def removed_after(connection: sqlite3.Connection, table: VectorTable, change: int) -> Ids:
    """Return the ids removed by the changes after ``change``."""
    rows = connection.execute("SELECT id FROM removed WHERE change > ? AND lane = ?", (change, table))
    return np.fromiter((row[0] for row in rows), np.int64)


def items_of(connection: sqlite3.Connection, ids: Sequence[int]) -> list[Item]:
    """Return the items with these ids, in this order."""
    rows = _by_id(connection, 'SELECT id, file, start, "end" FROM items WHERE id IN', ids)
    files = files_of(connection, sorted({row[1] for row in rows.values()}))
    found = [_found(rows, each) for each in ids]
    if lost := [row[0] for row in found if row[1] not in files]:
        raise sqlite3.DatabaseError(f"item {lost[0]} belongs to no file")
    return [Item(row[0], files[row[1]], row[2], row[3]) for row in found]


def file_of_items(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, int]:
    """Return the id of the file of those of ``ids`` that exist, by id."""
    return {each: row[1] for each, row in _by_id(connection, "SELECT id, file FROM items WHERE id IN", ids).items()}


def vectors_by_id(connection: sqlite3.Connection, ids: Sequence[int], form: VectorFormat) -> Vectors:
    """Return the vectors ``(n, D)`` of these items, in this order."""
    rows = _by_id(connection, "SELECT id, vector FROM items WHERE id IN", ids)
    return decode(vectors_of([_found(rows, each)[1] for each in ids], form))


def vectors_known(connection: sqlite3.Connection, table: VectorTable, ids: Ids, form: VectorFormat) -> dict[int, Rows]:
    """Return the vectors, as stored, of those of ``ids`` that exist, by id."""
    rows = _by_id(connection, f"SELECT id, vector FROM {table} WHERE vector IS NOT NULL AND id IN", ids.tolist())
    return dict(zip(rows, vectors_of([row[1] for row in rows.values()], form), strict=True))


def captions_by_id(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, tuple[str, int]]:
    """Return, by id, the caption and the first item of its file."""
    rows = _by_id(
        connection,
        "SELECT id, text, (SELECT min(id) FROM items WHERE items.file = captions.file) FROM captions WHERE id IN",
        ids,
    )
    return {each: (to_text(row[1]), row[2]) for each, row in rows.items()}


def known_ids(connection: sqlite3.Connection, table: VectorTable, ids: Sequence[int]) -> set[int]:
    """Return those of ``ids`` that exist."""
    return set(_by_id(connection, f"SELECT id FROM {table} WHERE id IN", ids))


def page_of_files(connection: sqlite3.Connection, root: str | None, after: tuple[str, str] | None) -> list[MediaFile]:
    """Return the next page of files by root and path, after this root and path."""
    parts: list[str] = []
    cells: list[bytes] = []
    if root is not None:
        parts.append("root = ?")
        cells.append(to_bytes(root))
    if after is not None:
        parts.append("(root, path) > (?, ?)")
        cells.extend(map(to_bytes, after))
    found = connection.execute(
        f"SELECT id FROM files WHERE {' AND '.join(parts) or '1'} ORDER BY root, path LIMIT {PAGE}", cells
    )
    ids = [row[0] for row in found]
    files = files_of(connection, ids)
    page = [files[each] for each in ids if each in files]
    places = [(to_bytes(file.root), to_bytes(file.path)) for file in page]
    before = [] if after is None else [(to_bytes(after[0]), to_bytes(after[1]))]
    if len(page) < len(ids) or any(first >= second for first, second in pairwise([*before, *places])):
        raise sqlite3.DatabaseError("the files are out of order")  # a corrupt table, which could loop forever
    return page


def files_of(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, MediaFile]:
    """Return files by the ids of their rows, with their captions in order and their details."""
    rows = _by_id(connection, f"SELECT id, {FILE_COLUMNS} FROM files WHERE id IN", ids)
    captions: dict[int, list[str]] = {}
    for _, file, text in sorted(_by_id(connection, "SELECT id, file, text FROM captions WHERE file IN", ids).values()):
        captions.setdefault(file, []).append(to_text(text))
    details: dict[int, tuple[Any, ...]] = {}
    if has_table(connection, "details"):
        details = _by_id(connection, f"SELECT file, {DETAIL_COLUMNS} FROM details WHERE file IN", ids)
    return {
        each: file_of(row[1:], tuple(captions.get(each, ())), details[each][1:] if each in details else None)
        for each, row in rows.items()
    }


def _by_id(connection: sqlite3.Connection, statement: str, ids: Sequence[int]) -> dict[int, tuple[Any, ...]]:
    rows: dict[int, tuple[Any, ...]] = {}
    for start in range(0, len(ids), AT_ONCE):
        some = [int(each) for each in ids[start : start + AT_ONCE]]
        for row in connection.execute(f"{statement} ({','.join('?' * len(some))})", some):
            rows[row[0]] = row
    return rows


def _found(rows: dict[int, tuple[Any, ...]], each: int) -> tuple[Any, ...]:
    try:
        return rows[int(each)]
    except KeyError:
        raise InputError(f"no item has id {each}: it was removed or replaced, search again") from None


def _number(connection: sqlite3.Connection, statement: str, *cells: int) -> int:
    row = connection.execute(statement, cells).fetchone()
    if row is None or type(row[0]) is not int:
        raise sqlite3.DatabaseError("a count is missing")
    return row[0]

"""Statements that change the tables of one generation.

They run inside the caller's transaction; only :func:`reserve_ids` and :func:`align_ids` begin one of their own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from vse.errors import InputError
from vse.index.checks import check_distinct
from vse.index.storage import VectorFormat, to_bytes
from vse.index.store import words
from vse.index.store.database import (
    AT_ONCE,
    FILE_COLUMNS,
    TABLES,
    Cell,
    changes,
    checksum,
    file_cells,
    real,
    to_text,
    transaction,
)
from vse.index.types import Entry, MediaFile, Moment, Place, Vectors

SEQUENCES = ("files", "items", "captions")


def make_tables(connection: sqlite3.Connection, meta: dict[str, Cell], last_ids: dict[str, int]) -> None:
    """Create the tables of a new generation; ids start after ``last_ids``, so that none is reused."""
    for statement in _statements(TABLES):
        connection.execute(statement)
    words.make_tables(connection)
    for key, value in {**meta, "changes": 0}.items():
        set_meta(connection, key, value)
    connection.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", last_ids.items())


def last_ids(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the highest id ever assigned, by table."""
    found = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    return {name: int(found.get(name) or 0) for name in SEQUENCES}


def count_change(connection: sqlite3.Connection) -> int:
    """Increment ``changes`` and return it; call it first in a transaction, because removals are listed under it."""
    (value,) = connection.execute("SELECT value FROM meta WHERE key = 'changes'").fetchone()
    set_meta(connection, "changes", int(value) + 1)
    return int(value) + 1


def record_loss(connection: sqlite3.Connection, committed: int) -> int:
    """Record that changes up to number ``committed`` are missing, and return the number to count on from.

    Numbers are not given twice: what a cache holds as of a lost change must not pass for the state after a later one.
    """
    with transaction(connection, "IMMEDIATE"):
        lost, now = committed - changes(connection), committed + 1
        set_meta(connection, "lost_changes", recorded_loss(connection) + lost)
        set_meta(connection, "changes", now)
        trim_removed(connection, now)  # older caches and readers start over
    return now


def recorded_loss(connection: sqlite3.Connection) -> int:
    """Return how many changes are recorded as lost."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'lost_changes'").fetchone()
    return 0 if found is None else int(found[0])


def lost_changes(connection: sqlite3.Connection, committed: int) -> int:
    """Return how many changes are missing: those recorded, and those that ``committed`` tells of since."""
    return recorded_loss(connection) + max(0, committed - changes(connection))


def trim_removed(connection: sqlite3.Connection, last: int) -> None:
    """Delete the listed removals of changes up to ``last``."""
    connection.execute("DELETE FROM removed WHERE change <= ?", (last,))
    set_meta(connection, "trimmed", last)


def add_entry(
    connection: sqlite3.Connection, entry: Entry, form: VectorFormat, item_ids: Sequence[int] | None = None
) -> None:
    """Add a file, replacing the one at its place; ``item_ids`` are the ids of its items, by default the next ones."""
    remove_file(connection, (entry.file.root, entry.file.path))
    file = _insert_file(connection, entry.file)
    for position, moment in enumerate(entry.moments):
        _insert_item(connection, file, moment, form, None if item_ids is None else item_ids[position])
    vectors = [None] * len(entry.file.captions) if entry.caption_vectors is None else entry.caption_vectors
    for text, vector in zip(entry.file.captions, vectors, strict=True):
        _insert_caption(connection, file, to_bytes(text), None if vector is None else form.to_bytes(vector))
    words.put(connection, file, entry.file)


def add_entries(connection: sqlite3.Connection, entries: Sequence[Entry], form: VectorFormat) -> None:
    """Add files like :func:`add_entry`, with one statement per table; if a file occurs twice, the last one counts."""
    last = {(entry.file.root, entry.file.path): entry for entry in entries}
    for place in last:
        remove_file(connection, place)
    last_known = last_ids(connection)
    file_ids, item_ids, caption_ids = (count(last_known[table] + 1) for table in SEQUENCES)
    files, items, captions = list[tuple[Cell, ...]](), list[tuple[Cell, ...]](), list[tuple[Cell, ...]]()
    new: list[tuple[int, MediaFile]] = []
    for file, entry in zip(file_ids, last.values(), strict=False):
        new.append((file, entry.file))
        files.append((file, *file_cells(entry.file)))
        for moment in entry.moments:
            items.append((next(item_ids), file, real(moment.start), real(moment.end), form.to_bytes(moment.vector)))
        vectors = [None] * len(entry.file.captions) if entry.caption_vectors is None else entry.caption_vectors
        for text, vector in zip(entry.file.captions, vectors, strict=True):
            known = None if vector is None else form.to_bytes(vector)
            captions.append((next(caption_ids), file, to_bytes(text), known))
    for table, columns, rows in (
        ("files", f" (id, {FILE_COLUMNS}, checksum)", files),
        ("items", "", items),
        ("captions", "", captions),
    ):
        if rows:
            marks = ", ".join("?" * (len(rows[0]) + 1))
            connection.executemany(
                f"INSERT INTO {table}{columns} VALUES ({marks})", ((*cells, checksum(cells)) for cells in rows)
            )
    words.put_new(connection, new)


def purge_removed(connection: sqlite3.Connection) -> None:
    """Overwrite the words of the files that this change removed; call it last in a transaction."""
    if connection.execute(
        "SELECT 1 FROM removed WHERE change = (SELECT value FROM meta WHERE key = 'changes')"
    ).fetchone():
        words.purge(connection)


def remove_file(connection: sqlite3.Connection, place: Place) -> bool:
    """Remove a file with its items and captions; return False when there is none."""
    known = find_file(connection, place)
    if known is None:
        return False
    connection.execute("DELETE FROM files WHERE id = ?", (known,))
    return True


def move_files(
    connection: sqlite3.Connection,
    moves: Sequence[tuple[Place, MediaFile]],
    captions: Mapping[str, Vectors],
    form: VectorFormat,
) -> None:
    """Move all files at once, so that they can swap places; a file that was at a new place is removed.

    ``captions`` are the vectors of new captions, by text.
    """
    ids: list[int] = []
    vectors = {to_bytes(text): form.to_bytes(vector) for text, vector in captions.items()}
    for place, _ in moves:
        known = find_file(connection, place)
        if known is None:
            raise InputError(f"no file {place[0]}/{place[1]} to move: expected one of the collection, add it instead")
        ids.append(known)
    check_distinct("moved twice", [place for place, _ in moves])
    check_distinct("the new place of two files", [(file.root, file.path) for _, file in moves])
    for known in ids:  # out of the way first, to a place that no path has
        connection.execute("UPDATE files SET root = x'00', path = CAST(id AS TEXT) WHERE id = ?", (known,))
    for known, (_, file) in zip(ids, moves, strict=True):
        remove_file(connection, (file.root, file.path))
        cells = file_cells(file)
        names = ", ".join(f"{name} = ?" for name in FILE_COLUMNS.split(", "))
        connection.execute(
            f"UPDATE files SET {names}, checksum = ? WHERE id = ?", (*cells, checksum((known, *cells)), known)
        )
        _exchange_captions(connection, known, file.captions, vectors)
    replaced = [words.put(connection, known, file) for known, (_, file) in zip(ids, moves, strict=True)]
    if any(replaced):
        words.purge(connection)


def find_file(connection: sqlite3.Connection, place: Place) -> int | None:
    """Return the id of a file's row; None when there is none."""
    row = connection.execute(
        "SELECT id FROM files WHERE root = ? AND path = ?", (to_bytes(place[0]), to_bytes(place[1]))
    ).fetchone()
    return None if row is None else int(row[0])


def _insert_file(connection: sqlite3.Connection, file: MediaFile) -> int:
    known, cells = _next_id(connection, "files"), file_cells(file)
    marks = ", ".join("?" * (len(cells) + 2))
    connection.execute(
        f"INSERT INTO files (id, {FILE_COLUMNS}, checksum) VALUES ({marks})",
        (known, *cells, checksum((known, *cells))),
    )
    return known


def _insert_item(
    connection: sqlite3.Connection, file: int, moment: Moment, form: VectorFormat, known: int | None
) -> None:
    known = _next_id(connection, "items") if known is None else known
    cells = (known, file, real(moment.start), real(moment.end), form.to_bytes(moment.vector))
    connection.execute("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)", (*cells, checksum(cells)))


def _insert_caption(connection: sqlite3.Connection, file: int, text: bytes, vector: bytes | None) -> None:
    cells = (_next_id(connection, "captions"), file, text, vector)
    connection.execute("INSERT INTO captions VALUES (?, ?, ?, ?, ?)", (*cells, checksum(cells)))


def _exchange_captions(
    connection: sqlite3.Connection, file: int, captions: Iterable[str], new: Mapping[bytes, bytes]
) -> None:
    """Replace a file's captions; unchanged ones keep their vectors, others have those of ``new`` or none."""
    wanted = [to_bytes(text) for text in captions]
    rows = connection.execute("SELECT text, vector FROM captions WHERE file = ? ORDER BY id", (file,)).fetchall()
    if [row[0] for row in rows] == wanted:
        return
    known = dict(rows)
    connection.execute("DELETE FROM captions WHERE file = ?", (file,))
    for text in wanted:
        _insert_caption(connection, file, text, known.get(text) or new.get(text))


def _next_id(connection: sqlite3.Connection, table: str) -> int:
    # Inserting an explicit id advances the sequence too; with a single writer nobody takes it in between.
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return 1 if row is None else int(row[0]) + 1


def set_meta(connection: sqlite3.Connection, key: str, value: Cell) -> None:
    """Write one value of the table ``meta``."""
    connection.execute(
        "INSERT INTO meta VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value, "
        "checksum = excluded.checksum",
        (key, value, checksum((key, value))),
    )


def _statements(script: str) -> Iterable[str]:
    """Split a script into statements; ``executescript`` would end the transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


# Files of the new generation with an item whose id now belongs to another file of the old one, or has a different id
# there: the old generation may change between two attempts at an upgrade.
_OUTDATED = """
SELECT f.id FROM main.files AS f
JOIN main.items AS i ON i.file = f.id
LEFT JOIN old.files AS b ON (b.root, b.path) = (f.root, f.path)
LEFT JOIN old.items AS o ON o.id = i.id
WHERE (o.id IS NOT NULL AND o.file IS NOT b.id)
   OR (b.digest = f.digest AND EXISTS (
        SELECT 1 FROM old.items AS s
        WHERE s.file = b.id AND s.start IS i.start AND s."end" IS i."end" AND s.id != i.id))
"""


def ids_before(old: sqlite3.Connection, entry: Entry) -> list[int] | None:
    """Return the ids of a file's items in the old generation; None unless digest and moments are the same."""
    file = entry.file
    rows = old.execute(
        'SELECT items.id, start, "end" FROM items JOIN files ON files.id = items.file '
        "WHERE root = ? AND path = ? AND digest = ? ORDER BY items.id",
        (to_bytes(file.root), to_bytes(file.path), file.digest),
    ).fetchall()
    same = [row[1:] for row in rows] == [(moment.start, moment.end) for moment in entry.moments]
    return [row[0] for row in rows] if same else None


def held_elsewhere(new: sqlite3.Connection, ids: Sequence[int], places: Collection[Place]) -> bool:
    """Return whether a file of the new generation at none of ``places`` has one of these ids.

    That happens when files are moved in the old generation while the new one is being filled.
    """
    statement = "SELECT root, path FROM items JOIN files ON files.id = items.file WHERE items.id IN"
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        rows = new.execute(f"{statement} ({', '.join('?' * len(some))})", some)
        if any((to_text(root), to_text(path)) not in places for root, path in rows):
            return True
    return False


def reserve_ids(old: sqlite3.Connection, count: int) -> range:
    """Reserve ``count`` item ids of the old generation, which it will never assign itself."""
    if not count:
        return range(0)
    with transaction(old, "IMMEDIATE"):
        first = last_ids(old)["items"] + 1
        raise_last(old, {"items": first + count - 1})
    return range(first, first + count)


def align_ids(new: sqlite3.Connection, old: sqlite3.Connection, old_file: Path) -> None:
    """Align an unfinished generation with the current state of the old one, whose database is ``old_file``.

    Files whose items now have different ids are removed, and ids assigned since are not assigned again.
    """
    with _beside(new, old_file), transaction(new, "IMMEDIATE"):
        count_change(new)
        new.execute(f"DELETE FROM main.files WHERE id IN ({_OUTDATED})")
        purge_removed(new)
        raise_last(new, last_ids(old))


@contextmanager
def _beside(new: sqlite3.Connection, old_file: Path) -> Iterator[None]:
    new.execute("ATTACH ? AS old", (str(old_file),))
    try:
        yield
    finally:
        new.execute("DETACH old")


def raise_last(connection: sqlite3.Connection, lowest: dict[str, int]) -> None:
    """Advance the id sequence of each table to at least ``lowest``."""
    highest = {name: max(value, lowest.get(name, 0)) for name, value in last_ids(connection).items()}
    connection.executemany("DELETE FROM sqlite_sequence WHERE name = ?", [(name,) for name in SEQUENCES])
    connection.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", highest.items())

"""Reading the tables of one generation."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.collection import Item, Vectors
from vse.index.embedded.filtering import condition
from vse.index.embedded.rows import file_of, to_bytes, to_text, vectors_of
from vse.index.embedded.schema import FILE_COLUMNS
from vse.index.filters import Filter
from vse.index.lanes import Lane
from vse.index.media_file import MediaFile

Ids = NDArray[np.int64]
AT_ONCE = 500
"""How many values a statement names; SQLite's own limit was 999 for long."""
PAGE = 1024


@dataclass(frozen=True)
class Meta:
    """Whose vectors these are."""

    model: str
    model_source: str
    dimensions: int


def read_meta(connection: sqlite3.Connection) -> Meta:
    """The origin of the vectors, as it was written when the generation was made."""
    values = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    try:
        return Meta(str(values["model"]), str(values["model_source"]), int(values["dimensions"]))
    except (KeyError, ValueError, TypeError):
        raise sqlite3.DatabaseError("its origin is not recorded") from None


def changes(connection: sqlite3.Connection) -> int:
    """How often the generation was changed."""
    return _number(connection, "SELECT value FROM meta WHERE key = 'changes'")


def trimmed(connection: sqlite3.Connection) -> int:
    """The change up to which removals are no longer listed."""
    return _number(connection, "SELECT coalesce((SELECT value FROM meta WHERE key = 'trimmed'), 0)")


def counts(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Files, items, captions."""
    files, items, captions = (_number(connection, f"SELECT count(*) FROM {t}") for t in ("files", "items", "captions"))
    return files, items, captions


def files_by_root(connection: sqlite3.Connection) -> dict[str, int]:
    """The roots that files have, in order, and how many."""
    rows = connection.execute("SELECT root, count(*) FROM files GROUP BY root ORDER BY root")
    return {to_text(root): int(count) for root, count in rows}


def count_after(connection: sqlite3.Connection, lane: Lane, last: int) -> int:
    """How many vectors have ids above ``last``."""
    return _number(connection, f"SELECT count(*) FROM {lane} WHERE id > ? AND vector IS NOT NULL", last)


def vectors_after(
    connection: sqlite3.Connection, lane: Lane, last: int, dimensions: int, block: int
) -> Iterator[tuple[Ids, Vectors]]:
    """Every vector with an id above ``last``, ascending, in blocks; each block is a statement of its own."""
    while True:
        rows = connection.execute(
            f"SELECT id, vector FROM {lane} WHERE id > ? AND vector IS NOT NULL ORDER BY id LIMIT ?", (last, block)
        ).fetchall()
        if not rows:
            return
        ids = np.array([row[0] for row in rows], np.int64)
        if (np.diff(ids, prepend=last) <= 0).any():  # in a damaged table, where this would go on for ever
            raise sqlite3.DatabaseError(f"the ids of {lane} are out of order")
        yield ids, vectors_of([row[1] for row in rows], dimensions)
        last = rows[-1][0]


def removed_after(connection: sqlite3.Connection, lane: Lane, change: int) -> Ids:
    """The ids that left with the changes after ``change``."""
    rows = connection.execute("SELECT id FROM removed WHERE change > ? AND lane = ?", (change, lane))
    return np.fromiter((row[0] for row in rows), np.int64)


def allowed_items(connection: sqlite3.Connection, where: Filter) -> Ids:
    """The ids of the items whose files pass, ascending."""
    text, cells = condition(where)
    # CROSS JOIN fixes the order: the files that pass, then the index of their items, and never the vectors.
    rows = connection.execute(
        f"SELECT items.id FROM files CROSS JOIN items ON items.file = files.id WHERE {text}", cells
    )
    return np.sort(np.fromiter((row[0] for row in rows), np.int64))


def items_of(connection: sqlite3.Connection, ids: Sequence[int]) -> list[Item]:
    """The items with these ids, in this order."""
    rows = _by_id(connection, 'SELECT id, file, start, "end" FROM items WHERE id IN', ids)
    files = files_of(connection, sorted({row[1] for row in rows.values()}))
    return [Item(row[0], files[row[1]], row[2], row[3]) for row in (_found(rows, each) for each in ids)]


def vectors_by_id(connection: sqlite3.Connection, ids: Sequence[int], dimensions: int) -> Vectors:
    """The vectors of these items (n, D), in this order."""
    rows = _by_id(connection, "SELECT id, vector FROM items WHERE id IN", ids)
    return vectors_of([_found(rows, each)[1] for each in ids], dimensions)


def captions_by_id(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, tuple[str, int]]:
    """By id: the sentence, and the first item of its file."""
    rows = _by_id(
        connection,
        "SELECT id, text, (SELECT min(id) FROM items WHERE items.file = captions.file) FROM captions WHERE id IN",
        ids,
    )
    return {each: (to_text(row[1]), row[2]) for each, row in rows.items()}


def known_ids(connection: sqlite3.Connection, lane: Lane, ids: Sequence[int]) -> set[int]:
    """Those of ``ids`` that are there."""
    return set(_by_id(connection, f"SELECT id FROM {lane} WHERE id IN", ids))


def page_of_files(connection: sqlite3.Connection, root: str | None, after: tuple[str, str] | None) -> list[MediaFile]:
    """The next files by root and path, after this root and path."""
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
        raise sqlite3.DatabaseError("the files are out of order")  # in a damaged table, and would never end
    return page


def files_of(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, MediaFile]:
    """Files by the ids of their rows, with their captions in order."""
    rows = _by_id(connection, f"SELECT id, {FILE_COLUMNS} FROM files WHERE id IN", ids)
    captions: dict[int, list[str]] = {}
    for _, file, text in sorted(_by_id(connection, "SELECT id, file, text FROM captions WHERE file IN", ids).values()):
        captions.setdefault(file, []).append(to_text(text))
    return {each: file_of(row[1:], tuple(captions.get(each, ()))) for each, row in rows.items()}


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

"""Browse a collection and say what it holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from vse.index.checks import check_page
from vse.index.filters import Filter
from vse.index.store import changes as changing
from vse.index.store import database
from vse.index.store.database import DAMAGE, Meta, condition, to_text, transaction
from vse.index.store.layout import DATABASE, connect_to_read, generation_folder
from vse.index.store.session import Session
from vse.index.types import CollectionInfo, Facets, Item, MediaFile, folder_counts

LARGEST = 2**63 - 1
"""Of SQLite's numbers."""


def every_file(session: Session, root: str | None) -> Iterator[MediaFile]:
    """By root and path, in pages; changes made meanwhile are seen or not."""
    after: tuple[str, str] | None = None
    while True:
        with session.reading() as connection:
            page = database.page_of_files(connection, root, after)
        if not page:
            return
        after = page[-1].root, page[-1].path
        yield from page


def recent(session: Session, k: int, offset: int, where: Filter | None) -> list[Item]:
    """The first items of the files that pass, by :func:`vse.index.types.recency` descending and then by id."""
    check_page(k, offset)
    text, cells = condition(where or Filter())
    with session.apart() as connection, transaction(connection, "DEFERRED"):
        rows = connection.execute(  # the order of the join is that of database.allowed_items, for the same reason
            f"SELECT min(items.id) AS item FROM files CROSS JOIN items ON items.file = files.id WHERE {text} "
            "GROUP BY files.id ORDER BY coalesce(taken, modified / 1e9) DESC, item LIMIT ? OFFSET ?",
            [*cells, min(int(k), LARGEST), min(int(offset), LARGEST)],
        ).fetchall()
        return database.items_of(connection, [row[0] for row in rows])


def facets(session: Session, folders: int) -> Facets:
    """Counts over all files, in one state."""
    with session.apart() as connection, transaction(connection, "DEFERRED"):
        largest = folder_counts((to_text(row[0]) for row in connection.execute("SELECT path FROM files")), folders)
        images, videos, first, last = connection.execute(
            "SELECT count(*) FILTER (WHERE kind = 'image'), count(*) FILTER (WHERE kind = 'video'), "
            "min(taken), max(taken) FROM files"
        ).fetchone()
    return Facets(images, videos, first, last, largest)


UNREADABLE = "that cannot be read"


def info_of(folder: Path, generation: int, connection: sqlite3.Connection, meta: Meta) -> CollectionInfo:
    """Counts and origin, within one transaction of the caller."""
    files, items, captions = database.counts(connection)
    roots = database.files_by_root(connection)
    given = changing.last_ids(connection)["items"]
    return CollectionInfo(
        str(folder), "embedded", meta.model, meta.model_source, meta.dimensions, generation,
        files, items, captions, tuple(roots), given + (given - items), tuple(roots.values()),
    )  # fmt: skip


def unfinished_info(folder: Path, generation: int) -> CollectionInfo | None:
    """The same for a generation that an upgrade is making or has left; None when there is none.

    One that was damaged, or whose tables were not made yet, is empty and of a model :data:`UNREADABLE`.
    """
    file = generation_folder(folder, generation) / DATABASE
    if not file.is_file():
        return None
    try:
        connection = connect_to_read(file)
        try:
            with transaction(connection, "DEFERRED"):
                return info_of(folder, generation, connection, database.read_meta(connection))
        finally:
            connection.close()
    except DAMAGE:
        return CollectionInfo(str(folder), "embedded", UNREADABLE, "", 0, generation, 0, 0, 0, (), 0, ())

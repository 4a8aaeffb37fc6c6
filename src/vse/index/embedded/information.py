"""What a generation holds, told as for every collection."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from vse.index.collection import CollectionInfo
from vse.index.embedded import changing, database
from vse.index.embedded.connecting import connect_to_read
from vse.index.embedded.database import Meta
from vse.index.embedded.layout import DATABASE, generation_folder
from vse.index.embedded.schema import DAMAGE, transaction

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

"""What an upgrade that was cut short has left."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from vse.index.embedded.changing import set_meta
from vse.index.embedded.connecting import connect_to_write
from vse.index.embedded.database import Meta, read_meta
from vse.index.embedded.layout import DATABASE, generation_folder
from vse.index.embedded.schema import transaction
from vse.index.embedded.session import Session
from vse.progress import ProgressReporter


def unfinished_session(folder: Path, generation: int, meta: Meta, progress: ProgressReporter | None) -> Session | None:
    """The generation as far as it was filled with the vectors of this model; its ``model_source`` is the new one.

    None when there is none, when it is of another model, or when it does not match its checksums: it is read as a whole
    before hours of work are built on it.
    """
    file = generation_folder(folder, generation) / DATABASE
    if not file.is_file():
        return None
    try:
        connection = _opened(file, meta, progress)
    except sqlite3.OperationalError:
        raise  # no room or no permission says nothing about what is there
    except sqlite3.DatabaseError:
        return None
    return None if connection is None else Session(folder, generation, connection, None, writable=True)


def _opened(file: Path, meta: Meta, progress: ProgressReporter | None) -> sqlite3.Connection | None:
    connection = connect_to_write(file)
    usable = False
    try:
        usable = _is_usable(connection, meta, progress)
        if usable:
            with transaction(connection, "IMMEDIATE"):
                set_meta(connection, "model_source", meta.model_source)
    finally:
        if not usable:
            connection.close()
    return connection if usable else None


def _is_usable(connection: sqlite3.Connection, meta: Meta, progress: ProgressReporter | None) -> bool:
    from vse.index.embedded.verify import row_problems

    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return False  # killed before the tables were made, which is one step
    known = read_meta(connection)
    if (known.model, known.dimensions) != (meta.model, meta.dimensions):
        return False
    return not row_problems(connection, meta.dimensions, progress)

"""The tables of a generation, transactions on them, and how their errors are told."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from vse.errors import InputError, VSEError, first_line
from vse.index.lanes import LANES

DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises when a file is not what it wrote; messages that quote its bytes may be no text themselves."""
FILE_COLUMNS = (
    "root, path, kind, size, modified, digest, width, height, taken, latitude, longitude, duration"  # as in MediaFile
)

# Ids are never used twice (AUTOINCREMENT). Texts are bytes: file names need not be UTF-8, and bytes keep their order.
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
CREATE TRIGGER {lane}_removed AFTER DELETE ON {lane} BEGIN
    INSERT INTO removed SELECT value, '{lane}', old.id FROM meta WHERE key = 'changes';
END;'''
        for lane in LANES
    )
}
"""


@contextmanager
def one_line(folder: Path, *, fix: str = "") -> Iterator[None]:
    """Turn the errors of SQLite and of the disk into one line about the collection in ``folder``."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:  # full or read-only disk, locked, no permission
        unchanged = fix or "nothing was changed, free space or allow writing and try again"
        raise VSEError(f"{folder} cannot be used ({first_line(error)}): {unchanged}") from error
    except DAMAGE as error:
        raise VSEError(
            f"{folder} is damaged ({first_line(error)}): 'vse collection verify' says more; restore it or index again"
        ) from error
    except OverflowError as error:
        raise InputError(f"{folder} cannot hold a number of a file ({error}): expected 64 bits at most") from None


@contextmanager
def transaction(connection: sqlite3.Connection, kind: Literal["IMMEDIATE", "DEFERRED"]) -> Iterator[None]:
    """All statements inside, or none."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors, a full disk among them, have rolled back already
            connection.execute("ROLLBACK")
        raise

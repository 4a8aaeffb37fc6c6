"""Connections to the database of a generation."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TypeVar

Kind = TypeVar("Kind", bound=sqlite3.Connection)
BUSY_SECONDS = 10.0
PAGE_BYTES = 16384
"""Four times the usual: vectors have a kilobyte or more, and the end of a page that holds no whole one is unused."""


class FrozenConnection(sqlite3.Connection):
    """To a database that is read as a file that nobody changes; it stays with what it saw first."""

    path: Path
    seen: tuple[int, ...]

    @property
    def outdated(self) -> bool:
        """Whether the file has changed after all, or somebody writes to its log."""
        try:
            return _state(self.path) != self.seen
        except OSError:  # removed after an upgrade: what is open stays
            return False


def connect_to_write(path: Path) -> sqlite3.Connection:
    """A connection that commits durably; the file is made when it is not there."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a file that is made; others keep theirs
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing.

    The log of SQLite needs a folder that may be written. Where it may not, a database whose log is empty is read by a
    :class:`FrozenConnection`, to be replaced when it is outdated.
    """
    try:
        return _probed(path, "mode=ro", sqlite3.Connection)
    except sqlite3.OperationalError:
        if _size(_log(path)):
            raise
        seen = _state(path)  # before it is opened: what changes in between makes it outdated
        connection = _probed(path, "mode=ro&immutable=1", FrozenConnection)
        connection.path, connection.seen = path, seen
        return connection


def _probed(path: Path, options: str, kind: type[Kind]) -> Kind:
    address = f"{path.absolute().as_uri()}?{options}"
    connection = sqlite3.connect(
        address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=kind
    )
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _state(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, _size(_log(path))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")

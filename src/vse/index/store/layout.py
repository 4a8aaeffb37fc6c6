"""The folder of a collection: ``collection.json``, which names the serving generation, and the generations."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from vse._util.atomic import write_json
from vse._util.locks import NAME as LOCK
from vse.errors import InputError, VSEError
from vse.index.storage import DEFAULT_STORAGE, Storage
from vse.index.types import VECTOR_TABLES

HEADER, DATABASE, CACHE = "collection.json", "items.sqlite", "cache"
COMMITTED = f"{DATABASE}-committed"
FORMAT = 1
PACKED_FORMAT = 2
"""Of a collection whose vectors are not float32: earlier versions would take its database for corrupt."""
_GENERATION = re.compile(r"generation-(\d{4,})")


def generation_folder(folder: Path, generation: int) -> Path:
    """Return the folder of a generation."""
    return folder / f"generation-{generation:04d}"


def is_collection(folder: Path) -> bool:
    """Return whether a collection was completely created here."""
    return (folder / HEADER).is_file()


def read_generation(folder: Path) -> int:
    """Return the number of the serving generation.

    Raises:
        InputError: ``folder`` is not a collection, or its header is unreadable, corrupt or of another format.
    """
    path = folder / HEADER
    try:
        header = json.loads(path.read_bytes())
        found, generation = header["format"], header["generation"]
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder} is not a collection, it has no {HEADER}: 'vse index' creates one") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check its permissions") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError(f"{path} is corrupt, expected a format and a generation: restore it or index again") from None
    if found not in (FORMAT, PACKED_FORMAT):
        known = f"{FORMAT} or {PACKED_FORMAT}"
        raise InputError(f"{path} has format {found!r}, expected {known}: use the version of vse that wrote it")
    if type(generation) is not int or generation < 1:
        raise InputError(f"{path} names generation {generation!r}, expected a number from 1: restore it or index again")
    return generation


def write_generation(folder: Path, generation: int, storage: Storage = DEFAULT_STORAGE) -> None:
    """Make ``generation`` serve, whose vectors are stored so: atomic, and durable on return.

    Raises:
        VSEError: The header could not be written; the old generation still serves.
    """
    try:
        number = FORMAT if storage == DEFAULT_STORAGE else PACKED_FORMAT
        write_json(folder / HEADER, {"format": number, "generation": generation})
    except OSError as error:
        raise VSEError(f"{folder / HEADER} cannot be written ({error.strerror}): the collection is unchanged") from None


def remove_generations(folder: Path, before: int | None) -> None:
    """Delete the generations before ``before``, or all, as far as the system allows; the next call retries the rest.

    The generation after the serving one is kept: an upgrade is building it, or will resume it. Temporary headers of
    killed writers are deleted too.
    """
    for path in folder.iterdir():
        if path.name.startswith(f".{HEADER}.") and path.is_file():
            with suppress(OSError):
                path.unlink()
        match = _GENERATION.fullmatch(path.name)
        if match and (before is None or int(match[1]) < before):
            remove_generation(path)


def remove_generation(path: Path) -> None:
    """Delete one generation as far as the system allows, unless it holds files that no collection wrote."""
    with suppress(OSError):
        if is_generation(path):
            shutil.rmtree(path, ignore_errors=True)


def is_generation(path: Path) -> bool:
    """Return whether a folder is named like a generation and holds only what belongs to one."""
    return bool(_GENERATION.fullmatch(path.name)) and _holds_only(path, _belongs_to_generation)


def stranger(folder: Path) -> str | None:
    """Return the name of something in ``folder`` that no collection wrote, not even an unfinished one; None if none."""
    for path in sorted(folder.iterdir()):
        if path.name != LOCK and not path.name.startswith(f".{HEADER}.") and not is_generation(path):
            return path.name
    return None


def _belongs_to_generation(path: Path) -> bool:
    if path.name == CACHE:
        return _holds_only(path, _belongs_to_cache)
    return path.name.startswith(DATABASE) and not path.is_dir()


def _belongs_to_cache(path: Path) -> bool:
    return path.name.lstrip(".").startswith(VECTOR_TABLES) and not path.is_dir()


def _holds_only(folder: Path, belongs: Callable[[Path], bool]) -> bool:
    return folder.is_dir() and not folder.is_symlink() and all(map(belongs, folder.iterdir()))


_RECORD = struct.Struct("<qI")


def write_committed(place: Path, changes: int) -> None:
    """Record in the generation's folder ``place`` that ``changes`` changes were committed.

    A damaged write-ahead log silently loses the commits after the damage; this record is outside the log. It is
    overwritten in place and not synced: after a power failure it may name fewer changes, never more.
    """
    number = struct.pack("<q", changes)
    with suppress(OSError):  # everything is committed already
        descriptor = os.open(place / COMMITTED, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
        try:
            os.write(descriptor, _RECORD.pack(changes, zlib.crc32(number)))
        finally:
            os.close(descriptor)


def read_committed(place: Path) -> int:
    """Return how many changes were committed as far as is known; 0 without a valid record."""
    try:
        changes, checksum = _RECORD.unpack((place / COMMITTED).read_bytes()[: _RECORD.size])
    except (OSError, struct.error):
        return 0
    return changes if checksum == zlib.crc32(struct.pack("<q", changes)) and changes > 0 else 0


Kind = TypeVar("Kind", bound=sqlite3.Connection)
BUSY_SECONDS = 10.0
PAGE_BYTES = 16384
"""Four times the default: vectors take a kilobyte or more, and the rest of a page that fits no other is wasted."""


class FrozenConnection(sqlite3.Connection):
    """A connection to a database opened as immutable; it keeps the state it saw first."""

    path: Path
    seen: tuple[int, ...]

    @property
    def outdated(self) -> bool:
        """Whether the file has changed after all, or its write-ahead log is in use."""
        try:
            return _state(self.path) != self.seen
        except OSError:  # removed after an upgrade: the open file stays readable
            return False


def connect_to_write(path: Path) -> sqlite3.Connection:
    """Return a connection that commits durably; creates the file if necessary."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a new file; an existing one keeps its own
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Return a read-only connection.

    SQLite's write-ahead log needs a writable folder. Without one, a database whose log is empty is opened as a
    :class:`FrozenConnection`, to be replaced once it is outdated.
    """
    try:
        return _probed(path, "mode=ro", sqlite3.Connection)
    except sqlite3.OperationalError:
        if _size(_log(path)):
            raise
        seen = _state(path)  # before opening: a change in between makes it outdated
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

"""The connection to one generation: how it is opened and shared between threads, and queries without a vector."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vse._util.atomic import sync_folder
from vse._util.locks import FolderLock
from vse.errors import InputError, VSEError
from vse.index.checks import check_page
from vse.index.filters import Filter
from vse.index.storage import DEFAULT_STORAGE
from vse.index.store import changes as changing
from vse.index.store import database, words
from vse.index.store.database import DAMAGE, Meta, one_line, read_meta, to_text, transaction
from vse.index.store.layout import (
    COMMITTED,
    DATABASE,
    FrozenConnection,
    connect_to_read,
    connect_to_write,
    generation_folder,
    is_collection,
    read_committed,
    read_generation,
    remove_generations,
    stranger,
    write_committed,
    write_generation,
)
from vse.index.store.words import check_filter, condition
from vse.index.types import CollectionInfo, Facets, Item, MediaFile, folder_counts

if TYPE_CHECKING:
    from vse.index.store.cache import Caches

LARGEST = 2**63 - 1
"""SQLite's largest integer."""
UNREADABLE = "that cannot be read"
CACHE_FIX = "every file is stored, only the cache is stale; free disk space, 'vse collection rebuild' writes it"
OPEN_FIX = "check the folder's permissions; if it was not closed cleanly, open it once with write permission"


class Session:
    """A connection and, for the writer, the lock of the folder; one thread uses it at a time."""

    def __init__(
        self, folder: Path, generation: int, connection: sqlite3.Connection, lock: FolderLock | None, writable: bool
    ) -> None:
        self.folder, self.generation, self.writable = folder, generation, writable
        self.meta: Meta = read_meta(connection)
        self._connection: sqlite3.Connection | None = connection
        self._database = generation_folder(folder, generation) / DATABASE
        self._file = _identity(self._database)
        self._lock = lock
        self._guard = threading.RLock()

    @property
    def replaced(self) -> bool:
        """Whether the database was replaced by another file: the collection was created again.

        An inode is not reused while its file is open, so the same inode means the same file.
        """
        return _identity(self._database) not in (self._file, None)

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, for this thread alone."""
        with self._guard, one_line(self.folder):
            if self._connection is None:
                raise VSEError(f"{self.folder} is closed: open it again")
            if isinstance(self._connection, FrozenConnection) and self._connection.outdated:
                fresh = connect_to_read(self._database)
                self._connection.close()
                self._connection = fresh
            yield self._connection

    @contextmanager
    def apart(self, *, committed: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield a separate connection for long reads, which do not block users of the shared one.

        ``committed`` is for writing the cache: a full disk is then no reason to say that nothing was changed.
        """
        with one_line(self.folder, fix=CACHE_FIX if committed else ""):
            with self.using():
                connection = connect_to_read(self._database)
            try:
                yield connection
            finally:
                connection.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection inside a read transaction."""
        with self.using() as connection, transaction(connection, "DEFERRED"):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection if the session may write."""
        with self.using() as connection:
            if not self.writable:
                raise VSEError(f"{self.folder} is open for reading only: open it with write=True")
            yield connection

    def end(self) -> sqlite3.Connection | None:
        """Take the connection away from all other users, to close it; None when that was done already."""
        with self._guard:
            connection, self._connection = self._connection, None
            return connection

    def abandon(self) -> None:
        """Take the connection and release it."""
        connection = self.end()
        if connection is not None:
            self.release(connection)

    def release(self, connection: sqlite3.Connection) -> None:
        """Close the connection and release the writer's lock."""
        connection.close()
        if self._lock is not None:
            self._lock.release()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_session(folder: Path, *, write: bool) -> Session:
    """Open the serving generation; a writer takes the lock and removes older generations."""
    while True:
        generation = read_generation(folder)  # first: a folder that is not a collection gets no lock file
        try:
            return _open(folder, write)
        except VSEError:
            if read_generation(folder) == generation:
                raise  # otherwise an upgrade removed the generation while it was being opened: retry


def _open(folder: Path, write: bool) -> Session:
    with one_line(folder, fix=OPEN_FIX):
        lock = FolderLock(folder) if write else None
        try:
            generation = read_generation(folder)  # cannot change while the lock is held
            file = generation_folder(folder, generation) / DATABASE
            if not file.is_file():
                raise InputError(f"{file} is missing: restore the collection from a backup, or index again")
            if write:
                remove_generations(folder, before=generation)
            connection = connect_to_write(file) if write else connect_to_read(file)
            try:
                if write:
                    _settle_log(connection, generation_folder(folder, generation))
                    words.catch_up(connection)
                return Session(folder, generation, connection, lock, writable=write)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            if lock is not None:
                lock.release()
            raise


def _settle_log(connection: sqlite3.Connection, place: Path) -> None:
    """Take over what was recovered from the log, which must not depend on it any longer, and record what was lost."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    committed = read_committed(place)
    if committed > database.changes(connection):
        now = changing.record_loss(connection, committed)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        write_committed(place, now)


def create_session(folder: Path, meta: Meta) -> Session:
    """Create the first generation of a new collection, which serves on return."""
    _check_free(folder)  # before the folder gets a lock file
    with one_line(folder, fix="choose a writable folder"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        try:
            _check_free(folder)  # another process may have created one meanwhile
            remove_generations(folder, before=None)
            session = make_session(folder, 1, meta, {}, lock)
        except BaseException:
            lock.release()
            raise
        try:
            write_generation(folder, 1, meta.storage)
        except BaseException:
            session.abandon()
            raise
        return session


def _check_free(folder: Path) -> None:
    if is_collection(folder):
        raise InputError(f"{folder} is already a collection: open it, or choose another folder")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, expected a new or empty folder for a collection: choose another name")
    with one_line(folder, fix="choose a writable folder"):
        found = stranger(folder) if folder.is_dir() else None
    if found is not None:
        raise InputError(f"{folder} holds {found!r}: expected an empty or new folder for a collection")


def make_session(
    folder: Path, generation: int, meta: Meta, last_ids: dict[str, int], lock: FolderLock | None
) -> Session:
    """Create a generation with empty tables; it does not serve yet."""
    place = generation_folder(folder, generation)
    place.mkdir()
    connection = connect_to_write(place / DATABASE)
    try:
        with transaction(connection, "IMMEDIATE"):
            named: dict[str, database.Cell] = {
                "model": meta.model,
                "model_source": meta.model_source,
                "dimensions": meta.dimensions,
            }
            if meta.storage != DEFAULT_STORAGE:  # what earlier versions store is not named
                named["storage"] = meta.storage
            changing.make_tables(connection, named, last_ids)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # damage in the log cannot take the tables
        sync_folder(place)
        sync_folder(folder)
        return Session(folder, generation, connection, lock, writable=True)
    except BaseException:
        connection.close()
        raise


def every_file(session: Session, root: str | None) -> Iterator[MediaFile]:
    """Iterate over files by root and path, in pages; concurrent changes may or may not be seen."""
    after: tuple[str, str] | None = None
    while True:
        with session.reading() as connection:
            page = database.page_of_files(connection, root, after)
        if not page:
            return
        after = page[-1].root, page[-1].path
        yield from page


def recent(session: Session, k: int, offset: int, where: Filter | None) -> list[Item]:
    """Return the first items of the files that pass, by :func:`vse.index.types.recency` descending, then by id."""
    check_page(k, offset)
    text, cells = condition(where or Filter())
    with session.apart() as connection, transaction(connection, "DEFERRED"):
        check_filter(connection, where)
        rows = connection.execute(  # CROSS JOIN as in database.allowed_items, for the same reason
            f"SELECT min(items.id) AS item FROM files CROSS JOIN items ON items.file = files.id WHERE {text} "
            "GROUP BY files.id ORDER BY coalesce(taken, modified / 1e9) DESC, item LIMIT ? OFFSET ?",
            [*cells, min(int(k), LARGEST), min(int(offset), LARGEST)],
        ).fetchall()
        return database.items_of(connection, [row[0] for row in rows])


def facets(session: Session, folders: int) -> Facets:
    """Return counts over all files, from one snapshot."""
    with session.apart() as connection, transaction(connection, "DEFERRED"):
        largest = folder_counts((to_text(row[0]) for row in connection.execute("SELECT path FROM files")), folders)
        images, videos, first, last = connection.execute(
            "SELECT count(*) FILTER (WHERE kind = 'image'), count(*) FILTER (WHERE kind = 'video'), "
            "min(taken), max(taken) FROM files"
        ).fetchone()
        places, cameras = (words.name_counts(connection, column) for column in ("place", "camera"))
    return Facets(images, videos, first, last, largest, places, cameras)


def info_of(
    folder: Path, generation: int, connection: sqlite3.Connection, meta: Meta, committed: int
) -> CollectionInfo:
    """Return counts and model, inside the caller's transaction.

    ``committed`` is the record of commits from before the transaction: read later, it may name newer ones, which would
    pass for lost.
    """
    files, items, captions = database.counts(connection)
    roots = database.files_by_root(connection)
    given = changing.last_ids(connection)["items"]
    return CollectionInfo(
        where=str(folder),
        backend="embedded",
        model=meta.model,
        model_source=meta.model_source,
        dimensions=meta.dimensions,
        generation=generation,
        files=files,
        items=items,
        captions=captions,
        roots=tuple(roots),
        changes=given + (given - items),
        root_files=tuple(roots.values()),
        lost_changes=changing.lost_changes(connection, committed),
        storage=meta.storage,
    )


def unfinished_info(folder: Path, generation: int) -> CollectionInfo | None:
    """Return the same for a generation that an upgrade is building or left unfinished; None when there is none.

    A corrupt one, or one without tables yet, is reported as empty with the model :data:`UNREADABLE`.
    """
    file = generation_folder(folder, generation) / DATABASE
    if not file.is_file():
        return None
    try:
        committed = read_committed(file.parent)
        connection = connect_to_read(file)
        try:
            with transaction(connection, "DEFERRED"):
                return info_of(folder, generation, connection, database.read_meta(connection), committed)
        finally:
            connection.close()
    except DAMAGE:
        return CollectionInfo(
            where=str(folder),
            backend="embedded",
            model=UNREADABLE,
            model_source="",
            dimensions=0,
            generation=generation,
            files=0,
            items=0,
            captions=0,
            roots=(),
            changes=0,
            root_files=(),
        )


def last_change(folder: Path, generation: int) -> float | None:
    """Return when a generation was last changed, in seconds since 1970; None if that cannot be read."""
    place = generation_folder(folder, generation)
    for name in (COMMITTED, DATABASE):  # collections of the first version lack the former
        with suppress(OSError):
            return (place / name).stat().st_mtime
    return None


def changes_behind(session: Session, caches: Caches) -> int:
    """Return how many committed changes the cache of items lacks."""
    header = caches.by_table["items"].header()
    with session.reading() as connection:
        return max(0, database.changes(connection) - (0 if header is None else header.changes))

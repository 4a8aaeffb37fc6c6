"""The connection to one generation: opened, shared between threads, and read without a query."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vse._util.atomic import sync_folder
from vse._util.locks import FolderLock
from vse.errors import InputError, VSEError
from vse.index.checks import check_page
from vse.index.filters import Filter
from vse.index.store import changes as changing
from vse.index.store import database
from vse.index.store.database import DAMAGE, Meta, condition, one_line, read_meta, to_text, transaction
from vse.index.store.layout import (
    DATABASE,
    FrozenConnection,
    connect_to_read,
    connect_to_write,
    generation_folder,
    is_collection,
    read_generation,
    remove_generations,
    stranger,
    write_generation,
)
from vse.index.types import CollectionInfo, Facets, Item, MediaFile, folder_counts

LARGEST = 2**63 - 1
"""The largest integer of SQLite."""
UNREADABLE = "that cannot be read"
OPEN_FIX = "check the permissions of the folder; one that was not closed has to be opened once where it may be written"


class Session:
    """A connection and, for the one writer, the lock of the folder. One thread uses it at a time."""

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
        """Whether another database lies in the place of the one that is open: the collection was made again.

        The number of a file cannot be used again as long as the file is open, so that equal numbers are the same file.
        """
        return _identity(self._database) not in (self._file, None)

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone."""
        with self._guard, one_line(self.folder):
            if self._connection is None:
                raise VSEError(f"{self.folder} is closed: open it again")
            if isinstance(self._connection, FrozenConnection) and self._connection.outdated:
                fresh = connect_to_read(self._database)
                self._connection.close()
                self._connection = fresh
            yield self._connection

    @contextmanager
    def apart(self) -> Iterator[sqlite3.Connection]:
        """Another connection, for reading at length: whoever uses the first one does not wait."""
        with one_line(self.folder):
            with self.using():
                connection = connect_to_read(self._database)
            try:
                yield connection
            finally:
                connection.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection within one state of the collection."""
        with self.using() as connection, transaction(connection, "DEFERRED"):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection, when it may change something."""
        with self.using() as connection:
            if not self.writable:
                raise VSEError(f"{self.folder} is open for reading only: open it with write=True")
            yield connection

    def end(self) -> sqlite3.Connection | None:
        """Take the connection from everybody else, to finish with it; None when that was done already."""
        with self._guard:
            connection, self._connection = self._connection, None
            return connection

    def abandon(self) -> None:
        """End and release."""
        connection = self.end()
        if connection is not None:
            self.release(connection)

    def release(self, connection: sqlite3.Connection) -> None:
        """Close, and let the next writer in."""
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
    """The generation that serves; a writer gets the lock, and removes the generations that served before."""
    while True:
        generation = read_generation(folder)  # first of all: a folder that is not a collection gets no lock file
        try:
            return _open(folder, write)
        except VSEError:
            if read_generation(folder) == generation:
                raise  # otherwise the generation was removed after an upgrade, while it was being opened


def _open(folder: Path, write: bool) -> Session:
    with one_line(folder, fix=OPEN_FIX):
        lock = FolderLock(folder) if write else None
        try:
            generation = read_generation(folder)  # under the lock it no longer changes
            file = generation_folder(folder, generation) / DATABASE
            if not file.is_file():
                raise InputError(f"{file} is missing: restore the collection from a backup, or index again")
            if write:
                remove_generations(folder, before=generation)
            connection = connect_to_write(file) if write else connect_to_read(file)
            try:
                return Session(folder, generation, connection, lock, writable=write)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            if lock is not None:
                lock.release()
            raise


def create_session(folder: Path, meta: Meta) -> Session:
    """The first generation of a new collection, which serves when this returns."""
    _check_free(folder)  # before the folder gets a lock file
    with one_line(folder, fix="choose a folder that may be written"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        try:
            _check_free(folder)  # another process may have made one since
            remove_generations(folder, before=None)
            session = make_session(folder, 1, meta, {}, lock)
        except BaseException:
            lock.release()
            raise
        try:
            write_generation(folder, 1)
        except BaseException:
            session.abandon()
            raise
        return session


def _check_free(folder: Path) -> None:
    if is_collection(folder):
        raise InputError(f"{folder} is a collection already: open it, or choose another folder")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, expected a new or empty folder for a collection: choose another name")
    with one_line(folder, fix="choose a folder that may be written"):
        found = stranger(folder) if folder.is_dir() else None
    if found is not None:
        raise InputError(f"{folder} holds {found!r}: expected an empty or new folder for a collection")


def make_session(
    folder: Path, generation: int, meta: Meta, last_ids: dict[str, int], lock: FolderLock | None
) -> Session:
    """A new generation with empty tables; nothing leads to it yet."""
    place = generation_folder(folder, generation)
    place.mkdir()
    connection = connect_to_write(place / DATABASE)
    try:
        with transaction(connection, "IMMEDIATE"):
            changing.make_tables(
                connection,
                {"model": meta.model, "model_source": meta.model_source, "dimensions": meta.dimensions},
                last_ids,
            )
        sync_folder(place)
        sync_folder(folder)
        return Session(folder, generation, connection, lock, writable=True)
    except BaseException:
        connection.close()
        raise


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


def info_of(folder: Path, generation: int, connection: sqlite3.Connection, meta: Meta) -> CollectionInfo:
    """Counts and origin, within one transaction of the caller."""
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
    )


def unfinished_info(folder: Path, generation: int) -> CollectionInfo | None:
    """The same for a generation that an upgrade is making or has left; None when there is none.

    One that was corrupt, or whose tables were not made yet, is empty and of a model :data:`UNREADABLE`.
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

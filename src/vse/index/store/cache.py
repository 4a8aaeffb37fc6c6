"""The vectors of one table as a memory-mapped matrix on disk; rebuilt from the database whenever it is missing.

::

    cache/items.json         the header, which names the other files
    cache/items-….vectors    float32, little endian (rows, D); the row of a purged vector is zero
    cache/items-….ids        int64, little endian (rows,), ascending; negative where the vector was purged
    cache/items-….hnsw       an approximate index over the first rows, see :mod:`vse.index.store.approximate`

A file that a reader may have mapped never shrinks. Rows are appended beyond the header's count, and flushed before the
header counts them. Larger changes write new files and point the header to them.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, get_args

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import write_json
from vse.index.filters import Filter
from vse.index.store import approximate
from vse.index.store.approximate import Kind
from vse.index.store.changes import trim_removed
from vse.index.store.database import (
    STORED,
    Ids,
    changes,
    count_after,
    removed_after,
    transaction,
    trimmed,
    vectors_after,
)
from vse.index.types import VECTOR_TABLES, Vectors, VectorTable
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from cachetools import LRUCache

Signature = tuple[int, int]
"""Inode and modification time of a header; differs whenever the header is replaced."""
ID = np.dtype("<i8")
BLOCK = 8192
MAX_DEAD = 0.25
"""Rewrite the matrix when more than this fraction of its rows is purged."""
FOLLOW_AFTER = 8192
"""Vectors added or removed before the caches are updated; until then every reader loads them from the database."""
KEPT_CHANGES = 1000
"""How many changes before the caches' own the removals stay listed, for readers that lag behind."""
MAX_FILTER_BYTES = 64 * 2**20


@dataclass(frozen=True)
class CacheHeader:
    """The cache as of ``changes``: ``rows`` in files named ``stem``; an approximate index covers the first rows."""

    changes: int
    rows: int
    dimensions: int
    stem: str
    approximate: Kind | None = None
    approximate_rows: int = 0


@dataclass(frozen=True)
class OpenCache:
    """A header with its ``ids (rows,)``, negative where purged, and the memory-mapped ``matrix (rows, D)``."""

    signature: Signature | None
    header: CacheHeader
    ids: Ids
    matrix: Vectors


class VectorCache:
    """The cache of one table of one generation; callers of the writing methods hold the lock."""

    def __init__(self, folder: Path, table: VectorTable, dimensions: int) -> None:
        self.folder, self.table, self.dimensions = folder, table, dimensions

    def header(self) -> CacheHeader | None:
        """Return the header; None when it is missing or invalid."""
        try:
            header = CacheHeader(**json.loads((self.folder / f"{self.table}.json").read_bytes()))
            numbers = header.changes, header.rows, header.approximate_rows
            sound = (
                all(type(number) is int and number >= 0 for number in numbers)
                and header.dimensions == self.dimensions
                and header.approximate in (None, *get_args(Kind))
                and header.approximate_rows <= header.rows
                and Path(header.stem).name == header.stem
            )
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        return header if sound else None

    def signature(self) -> Signature | None:
        """Return a value that changes whenever the header is replaced; None when there is no header."""
        try:
            status = (self.folder / f"{self.table}.json").stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def opened(self) -> OpenCache | None:
        """Open the files that the header names; None when there are none, or they are unusable.

        Retries when a writer replaced the header and its files in between.
        """
        while True:
            signature = self.signature()
            header = self.header()
            if header is not None:
                ids, matrix = self.ids(header), self.matrix(header)
                if ids is not None and matrix is not None:
                    return OpenCache(signature, header, ids, matrix)
            if self.signature() == signature:
                return None

    def ids(self, header: CacheHeader) -> Ids | None:
        """Return the column of ids, negative where purged; None when the file does not match the header."""
        try:
            ids = np.fromfile(self.path(header, "ids"), ID, header.rows).astype(np.int64)
        except OSError:
            return None
        return ids if len(ids) == header.rows and (np.diff(np.abs(ids), prepend=0) > 0).all() else None

    def matrix(self, header: CacheHeader) -> Vectors | None:
        """Return the memory-mapped vectors ``(rows, D)``; None when the file is missing or truncated."""
        if header.rows == 0:
            return np.empty((0, self.dimensions), np.float32)
        path, shape = self.path(header, "vectors"), (header.rows, self.dimensions)
        try:
            if path.stat().st_size < header.rows * self.dimensions * STORED.itemsize:
                return None
            return np.asarray(np.memmap(path, STORED, "r", shape=shape))
        except (OSError, ValueError):
            return None

    def path(self, header: CacheHeader, ending: str) -> Path:
        """Return the path of one of the files that the header names."""
        return self.folder / f"{header.stem}.{ending}"

    def follow(self, connection: sqlite3.Connection, progress: ProgressReporter) -> CacheHeader:
        """Bring the cache up to date with the database: append and purge rows where that suffices, else rewrite."""
        opened, now = self.opened(), changes(connection)
        if opened is None or not trimmed(connection) <= opened.header.changes <= now:
            return self.rewrite(connection, progress)
        header, ids = opened.header, opened.ids
        if header.changes == now:
            return header
        gone = np.isin(ids, removed_after(connection, self.table, header.changes))
        if ((ids < 0) | gone).sum() > MAX_DEAD * len(ids):
            return self.rewrite(connection, progress)
        return self._extend(connection, header, ids, np.flatnonzero(gone), now, progress)

    def rewrite(self, connection: sqlite3.Connection, progress: ProgressReporter) -> CacheHeader:
        """Write new files from the database; an approximate index has to be rebuilt afterwards."""
        self.folder.mkdir(exist_ok=True)
        stem = f"{self.table}-{os.urandom(8).hex()}"
        new = CacheHeader(changes(connection), 0, self.dimensions, stem)
        try:
            with self.path(new, "vectors").open("wb") as vectors, self.path(new, "ids").open("wb") as ids:
                rows = self._append(connection, 0, vectors, ids, progress)
            return self.commit(replace(new, rows=rows))
        except BaseException:
            for ending in ("vectors", "ids"):
                with suppress(OSError):
                    self.path(new, ending).unlink(missing_ok=True)
            raise

    def commit(self, header: CacheHeader) -> CacheHeader:
        """Replace the header atomically, then remove the files that it does not name."""
        write_json(self.folder / f"{self.table}.json", asdict(header))
        endings = {"vectors", "ids", header.approximate}
        for path in self.folder.glob(f"{self.table}-*"):
            if path.stem != header.stem or path.suffix[1:] not in endings:  # includes partial files of a killed process
                with suppress(OSError):  # some systems refuse while a reader has the file open
                    path.unlink()
        return header

    def _extend(
        self,
        connection: sqlite3.Connection,
        header: CacheHeader,
        ids: Ids,
        gone: NDArray[np.int64],
        now: int,
        progress: ProgressReporter,
    ) -> CacheHeader:
        with self.path(header, "vectors").open("r+b") as vectors, self.path(header, "ids").open("r+b") as column:
            vectors.seek(header.rows * self.dimensions * STORED.itemsize)
            column.seek(header.rows * ID.itemsize)
            added = self._append(connection, int(abs(ids[-1])) if len(ids) else 0, vectors, column, progress)
            for row in gone.tolist():
                vectors.seek(row * self.dimensions * STORED.itemsize)
                vectors.write(bytes(self.dimensions * STORED.itemsize))
                column.seek(row * ID.itemsize)
                column.write((-ids[row]).astype(ID).tobytes())
            _flush(vectors)
            _flush(column)
        return self.commit(replace(header, changes=now, rows=header.rows + added))

    def _append(
        self,
        connection: sqlite3.Connection,
        last: int,
        vectors: BinaryIO,
        column: BinaryIO,
        progress: ProgressReporter,
    ) -> int:
        added = 0
        progress.start(count_after(connection, self.table, last), f"writing the cache of {self.table}")
        try:
            for some, block in vectors_after(connection, self.table, last, self.dimensions, BLOCK):
                vectors.write(block.astype(STORED, copy=False).data)
                column.write(some.astype(ID, copy=False).data)
                added += len(some)
                progress.advance(len(some))
        finally:
            progress.finish()
        _flush(vectors)
        _flush(column)
        return added


class Caches:
    """Both caches of one generation; the methods are for the writer, in a thread that holds ``guard``."""

    def __init__(self, folder: Path, dimensions: int) -> None:
        self.by_table = {table: VectorCache(folder, table, dimensions) for table in VECTOR_TABLES}
        self.guard = threading.Lock()
        self.resting = False  # True while ids are not added in ascending order
        self._gave_up = False
        self._behind = 0

    def changed(self, connection: sqlite3.Connection, size: int) -> None:
        """Count ``size`` more changed vectors, and update the caches after many; a failure only leaves them stale.

        Takes the guard itself, without waiting: another thread may hold it for as long as an index build takes.
        """
        self._behind += size
        if self._behind < FOLLOW_AFTER or self.resting or not self.guard.acquire(blocking=False):
            return
        try:
            with suppress(sqlite3.Error, OSError):
                self._follow_and_trim(connection)
        finally:
            self.guard.release()

    def finish(self, connection: sqlite3.Connection, *, whole: bool) -> None:
        """Update the caches before the writer closes; ``whole`` includes indexes, unless building them failed."""
        with suppress(sqlite3.Error, OSError):  # everything is committed; the cache can be rebuilt at any time
            self._follow_and_trim(connection)
            if whole and not self._gave_up:
                self.index()

    def follow(self, connection: sqlite3.Connection, progress: ProgressReporter | None = None) -> int:
        """Bring both caches up to date, without indexes, and return the change number that they represent."""
        self._behind = 0
        report = progress or SilentProgress()
        with transaction(connection, "DEFERRED"):  # a fixed snapshot: following a busy writer would never end
            return min([cache.follow(connection, report).changes for cache in self.by_table.values()])

    def rewrite(self, connection: sqlite3.Connection, progress: ProgressReporter | None = None) -> int:
        """Rebuild both caches, without indexes, and return the change number that they represent."""
        report = progress or SilentProgress()
        with transaction(connection, "DEFERRED"):
            return min([cache.rewrite(connection, report).changes for cache in self.by_table.values()])

    def index(self, progress: ProgressReporter | None = None) -> None:
        """Build the approximate indexes that are due, which takes long.

        When interrupted, everything else is up to date, and searches stay exact until the next build.
        """
        self._gave_up = True
        for cache in self.by_table.values():
            header = cache.header()
            if header is not None:
                _index(cache, header, progress)
        self._gave_up = False

    def _follow_and_trim(self, connection: sqlite3.Connection) -> None:
        """Bring the caches up to date, and trim removals that both applied long ago."""
        last = self.follow(connection) - KEPT_CHANGES
        if last > trimmed(connection):
            with transaction(connection, "IMMEDIATE"):
                trim_removed(connection, last)


def _index(cache: VectorCache, header: CacheHeader, progress: ProgressReporter | None) -> None:
    """Build the approximate index for this size, unless the existing one covers enough rows."""
    kind = approximate.kind_for(header.rows)
    enough = header.approximate_rows >= (1 - approximate.TAIL) * header.rows
    if kind is None or (kind == header.approximate and enough):
        return
    matrix = cache.matrix(header)
    if matrix is not None:
        approximate.build(kind, matrix, cache.path(header, kind), progress)
        cache.commit(replace(header, approximate=kind, approximate_rows=header.rows))


class FilterCache:
    """An LRU cache of the ids that pass a filter, valid until the next change.

    It holds 64 MB, or the largest single result if that is larger.
    """

    def __init__(self) -> None:
        self._changes = -1
        self._known: LRUCache[Filter, Ids] | None = None

    def ids(self, where: Filter, changes: int, ask: Callable[[], Ids]) -> Ids:
        """Return the ids that pass ``where`` as of ``changes``, calling ``ask()`` on a miss.

        The same array is returned until something changes.
        """
        from cachetools import LRUCache  # only searches with a filter need it

        known = None if changes != self._changes else self._known
        found = None if known is None else known.get(where)
        if found is None:
            found = ask()
            if known is None or found.nbytes > known.maxsize:
                known = LRUCache(max(MAX_FILTER_BYTES, found.nbytes), getsizeof=lambda ids: ids.nbytes)
            known[where] = found
            self._known, self._changes = known, changes
        return found

    @property
    def bytes(self) -> int:
        """Memory used by all cached results."""
        return 0 if self._known is None else int(self._known.currsize)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())

"""The vectors of one table as a matrix on disk; rebuilt from the database whenever it is missing.

::

    cache/items.json         the header, which names the other files
    cache/items-….vectors    as :mod:`vse.index.storage` stores them (rows, D); the row of a purged vector is zero
    cache/items-….ids        int64, little endian (rows,), ascending; negative where the vector was purged
    cache/items-….sums7      checksums of the vectors as of change 7, see :mod:`vse.index.store.checksums`
    cache/items-….hnsw       an approximate index over the first rows, see :mod:`vse.index.store.approximate`

A file that a reader may have open never shrinks. Rows are appended beyond the header's count, and flushed before the
header counts them. Larger changes write new files and point the header to them. The header holds checksums of itself,
of the ids and of the approximate index. A cache of an earlier version, which has none, is not used: readers take the
vectors from the database until the next writer rewrites it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, get_args

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import write_json
from vse.index.storage import VectorFormat
from vse.index.store import approximate
from vse.index.store.approximate import Kind
from vse.index.store.changes import trim_removed
from vse.index.store.checksums import (
    ID,
    SUM,
    DamagedCacheError,
    Sums,
    VectorFile,
    block_count,
    extended,
    file_checksum,
    ids_checksum,
    sums_of,
)
from vse.index.store.database import (
    Ids,
    changes,
    count_after,
    removed_after,
    transaction,
    trimmed,
    vectors_after,
)
from vse.index.types import VECTOR_TABLES, VectorTable
from vse.progress import ProgressReporter, SilentProgress

Signature = tuple[int, int]
"""Inode and modification time of a header; differs whenever the header is replaced."""
BLOCK = 8192
MAX_DEAD = 0.25
"""Rewrite the matrix when more than this fraction of its rows is purged."""
FOLLOW_AFTER = 8192
"""Vectors added or removed before the caches are updated; until then every reader loads them from the database."""
KEPT_CHANGES = 1000
"""How many changes before the caches' own the removals stay listed, for readers that lag behind."""


@dataclass(frozen=True)
class CacheHeader:
    """The cache as of ``changes``: ``rows`` in files named ``stem``; an approximate index covers the first rows."""

    changes: int
    rows: int
    dimensions: int
    stem: str
    approximate: Kind | None = None
    approximate_rows: int = 0
    approximate_checksum: int | None = None
    ids_checksum: int | None = None
    purged: int = 0
    checksum: int | None = None

    def sealed(self) -> CacheHeader:
        """Return the header with its own checksum."""
        return replace(self, checksum=zlib.crc32(json.dumps({**asdict(self), "checksum": None}).encode()))


@dataclass(frozen=True)
class OpenCache:
    """A header with its ``ids (rows,)``, negative where purged, and its vectors."""

    signature: Signature | None
    header: CacheHeader
    ids: Ids
    vectors: VectorFile


class VectorCache:
    """The cache of one table of one generation; callers of the writing methods hold the lock."""

    def __init__(self, folder: Path, table: VectorTable, form: VectorFormat) -> None:
        self.folder, self.table, self.form = folder, table, form
        self._checked_stem: str | None = None  # of the files that this writer has verified or written

    def header(self) -> CacheHeader | None:
        """Return the header; None when it is missing or invalid."""
        try:
            header = CacheHeader(**json.loads((self.folder / f"{self.table}.json").read_bytes()))
            numbers = header.changes, header.rows, header.approximate_rows
            sound = (
                all(type(number) is int and number >= 0 for number in numbers)
                and header.dimensions == self.form.dimensions
                and header.approximate in (None, *get_args(Kind))
                and header.approximate_rows <= header.rows
                and Path(header.stem).name == header.stem
                and header.checksum == header.sealed().checksum
            )
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        return header if sound else None

    def unsealed(self) -> bool:
        """Return whether the header is one of an earlier version, without checksums."""
        try:
            header = json.loads((self.folder / f"{self.table}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(header, dict) and "stem" in header and header.get("checksum") is None

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
                ids, vectors = self.ids(header), self.vectors(header)
                if ids is not None and vectors is not None:
                    return OpenCache(signature, header, ids, vectors)
            if self.signature() == signature:
                return None

    def ids(self, header: CacheHeader) -> Ids | None:
        """Return the column of ids, negative where purged; None when the file does not match the header."""
        try:
            ids = np.fromfile(self.path(header, "ids"), ID, header.rows).astype(np.int64)
        except OSError:
            return None
        if len(ids) != header.rows or not (np.diff(np.abs(ids), prepend=0) > 0).all():
            return None
        # A writer may be purging rows for the next header, which can only add to the negative ones.
        return ids if ids_checksum(ids) == header.ids_checksum and (ids < 0).sum() >= header.purged else None

    def vectors(self, header: CacheHeader) -> VectorFile | None:
        """Return the vectors, not read yet; None when a file is missing or truncated."""
        try:
            return VectorFile(self.path(header, "vectors"), header.rows, self.form, self.sums(header))
        except (OSError, ValueError):
            return None

    def sums(self, header: CacheHeader) -> Sums:
        """Return the checksums of the vectors.

        Raises:
            ValueError: They do not match the header.
        """
        sums = np.fromfile(self.path(header, _sums_ending(header)), SUM).astype(np.uint64)
        if len(sums) != block_count(header.rows, self.form.dimensions, self.form.dtype.itemsize):
            raise ValueError(f"{len(sums)} checksums")
        return sums

    def path(self, header: CacheHeader, ending: str) -> Path:
        """Return the path of one of the files that the header names."""
        return self.folder / f"{header.stem}.{ending}"

    def follow(self, connection: sqlite3.Connection, progress: ProgressReporter) -> CacheHeader:
        """Bring the cache up to date with the database: append and purge rows where that suffices, else rewrite."""
        opened, now = self.opened(), changes(connection)
        if opened is None or not trimmed(connection) <= opened.header.changes <= now or not self._trusted(opened):
            return self.rewrite(connection, progress)
        header, ids = opened.header, opened.ids
        if header.changes == now:
            return header
        gone = np.isin(ids, removed_after(connection, self.table, header.changes))
        if ((ids < 0) | gone).sum() > MAX_DEAD * len(ids):
            return self.rewrite(connection, progress)
        return self._extend(connection, opened, np.flatnonzero(gone), now, progress)

    def _trusted(self, opened: OpenCache) -> bool:
        """Return whether everything matches its checksum; looked at once for each set of files."""
        header = opened.header
        if header.stem == self._checked_stem:
            return True
        try:
            opened.vectors.verify()
            path = None if header.approximate is None else self.path(header, header.approximate)
            intact = path is None or file_checksum(path) == header.approximate_checksum
        except (DamagedCacheError, OSError):
            return False
        if intact:
            self._checked_stem = header.stem
        return self._checked_stem == header.stem

    def rewrite(self, connection: sqlite3.Connection, progress: ProgressReporter) -> CacheHeader:
        """Write new files from the database; an approximate index has to be rebuilt afterwards."""
        self.folder.mkdir(exist_ok=True)
        stem = f"{self.table}-{os.urandom(8).hex()}"
        new = CacheHeader(changes(connection), 0, self.form.dimensions, stem)
        try:
            with self.path(new, "vectors").open("wb") as vectors, self.path(new, "ids").open("wb") as ids:
                rows, known, sums = self._append(connection, 0, 0, np.empty(0, np.uint64), vectors, ids, progress)
            header = self.commit(replace(new, rows=rows, ids_checksum=known), sums)
        except BaseException:
            for ending in ("vectors", "ids", _sums_ending(new)):
                with suppress(OSError):
                    self.path(new, ending).unlink(missing_ok=True)
            raise
        self._checked_stem = stem
        return header

    def commit(self, header: CacheHeader, sums: Sums | None = None) -> CacheHeader:
        """Replace the header atomically, with ``sums`` if they changed, and remove the files that it does not name."""
        if sums is not None:
            with self.path(header, _sums_ending(header)).open("wb") as file:
                file.write(sums.astype(SUM).data)
                _flush(file)
        header = header.sealed()
        write_json(self.folder / f"{self.table}.json", asdict(header))
        for leftover in self.folder.glob(f".{self.table}.json.*"):  # of killed writers
            with suppress(OSError):
                leftover.unlink()
        endings = {"vectors", "ids", _sums_ending(header), header.approximate}
        for path in self.folder.glob(f"{self.table}-*"):
            if path.stem != header.stem or path.suffix[1:] not in endings:  # includes partial files of a killed process
                with suppress(OSError):  # some systems refuse while a reader has the file open
                    path.unlink()
        return header

    def _extend(
        self,
        connection: sqlite3.Connection,
        opened: OpenCache,
        gone: NDArray[np.int64],
        now: int,
        progress: ProgressReporter,
    ) -> CacheHeader:
        header, ids, row_bytes = opened.header, opened.ids, self.form.row_bytes
        self._checked_stem = None  # until the header is replaced, rows and checksums may not match
        sums = self.sums(header)
        for row in gone.tolist():  # before they are overwritten; a row that is zero already changes nothing
            block = row // opened.vectors.block_rows
            sums[block : block + 1] -= sums_of(opened.vectors.row(row), row)
        with self.path(header, "vectors").open("r+b") as vectors, self.path(header, "ids").open("r+b") as column:
            vectors.seek(header.rows * row_bytes)
            column.seek(header.rows * ID.itemsize)
            last, checksum = int(abs(ids[-1])) if len(ids) else 0, header.ids_checksum or 0
            added, checksum, sums = self._append(connection, last, checksum, sums, vectors, column, progress)
            for row in gone.tolist():
                vectors.seek(row * row_bytes)
                vectors.write(bytes(row_bytes))
                column.seek(row * ID.itemsize)
                column.write((-ids[row]).astype(ID).tobytes())
            _flush(vectors)
            _flush(column)
        purged = int((ids < 0).sum()) + len(gone)
        changed = replace(header, changes=now, rows=header.rows + added, ids_checksum=checksum, purged=purged)
        header = self.commit(changed, sums)
        self._checked_stem = header.stem
        return header

    def _append(
        self,
        connection: sqlite3.Connection,
        last: int,
        checksum: int,
        sums: Sums,
        vectors: BinaryIO,
        column: BinaryIO,
        progress: ProgressReporter,
    ) -> tuple[int, int, Sums]:
        """Append all vectors with ids above ``last``; return their number and both checksums with them included."""
        count = 0
        first = vectors.tell() // self.form.row_bytes
        progress.start(count_after(connection, self.table, last), f"writing the cache of {self.table}")
        try:
            for some, block in vectors_after(connection, self.table, last, self.form, BLOCK):
                vectors.write(block.data)
                column.write(some.astype(ID, copy=False).data)
                checksum, sums = ids_checksum(some, checksum), extended(sums, block, first + count)
                count += len(some)
                progress.advance(len(some))
        finally:
            progress.finish()
        _flush(vectors)
        _flush(column)
        return count, checksum, sums


def _sums_ending(header: CacheHeader) -> str:
    """Return the suffix of the checksums: a file for each change, since readers use the older one meanwhile."""
    return f"sums{header.changes}"


class Caches:
    """Both caches of one generation; the methods are for the writer, in a thread that holds ``guard``."""

    def __init__(self, folder: Path, form: VectorFormat) -> None:
        self.by_table = {table: VectorCache(folder, table, form) for table in VECTOR_TABLES}
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
            with suppress(sqlite3.Error, OSError, DamagedCacheError):
                self._follow_and_trim(connection)
        finally:
            self.guard.release()

    def finish(self, connection: sqlite3.Connection, *, whole: bool) -> None:
        """Update the caches before the writer closes; ``whole`` includes indexes, unless building them failed."""
        with suppress(sqlite3.Error, OSError, DamagedCacheError):  # everything is committed, the cache can be rebuilt
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
    vectors = cache.vectors(header)
    if vectors is not None:
        path = cache.path(header, kind)
        approximate.build(kind, vectors, path, progress)
        found = file_checksum(path)
        rows = header.rows
        cache.commit(replace(header, approximate=kind, approximate_rows=rows, approximate_checksum=found))


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())

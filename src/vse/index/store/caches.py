"""The caches of both tables, and when they follow the database."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vse.index.store import approximate
from vse.index.store.cache import CacheHeader, VectorCache
from vse.index.store.changes import trim_removed
from vse.index.store.database import transaction, trimmed
from vse.index.types import VECTOR_TABLES
from vse.progress import ProgressReporter, SilentProgress

FOLLOW_AFTER = 8192
"""So many vectors may be in the database alone, from where every reader loads them, before the caches follow."""
KEPT_CHANGES = 1000
"""Changes behind the caches whose removals stay listed, for readers that have not looked for a while."""


class Caches:
    """Both caches of one generation; the methods are for the writer, in a thread that holds ``guard``."""

    def __init__(self, folder: Path, dimensions: int) -> None:
        self.by_table = {table: VectorCache(folder, table, dimensions) for table in VECTOR_TABLES}
        self.guard = threading.Lock()
        self.resting = False  # while ids do not come in ascending order
        self._gave_up = False
        self._behind = 0

    def changed(self, connection: sqlite3.Connection, size: int) -> None:
        """So many vectors came or went: follow when they are many. A failure leaves the cache behind, no more.

        The guard is taken here, and not waited for: an index that another thread builds would take too long.
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
        """Everything before the writer closes; ``whole`` with indexes, unless building them was tried in vain."""
        with suppress(sqlite3.Error, OSError):  # everything is committed; the cache can be made at any time
            self._follow_and_trim(connection)
            if whole and not self._gave_up:
                self.index()

    def follow(self, connection: sqlite3.Connection, progress: ProgressReporter | None = None) -> int:
        """Bring both to the state of the database, and return the number of its changes; indexes stay as they are."""
        self._behind = 0
        report = progress or SilentProgress()
        with transaction(connection, "DEFERRED"):  # what comes meanwhile would be run after for ever
            return min([cache.follow(connection, report).changes for cache in self.by_table.values()])

    def rewrite(self, connection: sqlite3.Connection, progress: ProgressReporter | None = None) -> int:
        """Make both anew, without indexes, and return the number of changes that they stand for."""
        report = progress or SilentProgress()
        with transaction(connection, "DEFERRED"):
            return min([cache.rewrite(connection, report).changes for cache in self.by_table.values()])

    def index(self, progress: ProgressReporter | None = None) -> None:
        """Build the approximate indexes that are due, which takes long.

        Interrupted, everything else is up to date, and searches stay exact until the next time.
        """
        self._gave_up = True
        for cache in self.by_table.values():
            header = cache.header()
            if header is not None:
                _index(cache, header, progress)
        self._gave_up = False

    def _follow_and_trim(self, connection: sqlite3.Connection) -> None:
        """Follow, and forget the removals that both have taken in long ago."""
        last = self.follow(connection) - KEPT_CHANGES
        if last > trimmed(connection):
            with transaction(connection, "IMMEDIATE"):
                trim_removed(connection, last)


def _index(cache: VectorCache, header: CacheHeader, progress: ProgressReporter | None) -> None:
    """Build the approximate index that this size asks for, unless there is one that covers enough."""
    kind = approximate.kind_for(header.rows)
    enough = header.approximate_rows >= (1 - approximate.TAIL) * header.rows
    if kind is None or (kind == header.approximate and enough):
        return
    matrix = cache.matrix(header)
    if matrix is not None:
        approximate.build(kind, matrix, cache.path(header, kind), progress)
        cache.commit(replace(header, approximate=kind, approximate_rows=header.rows))

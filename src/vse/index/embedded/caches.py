"""The caches of both lanes, and when they follow the database."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vse.index.embedded import approximate
from vse.index.embedded.cache import CacheHeader, LaneCache
from vse.index.embedded.schema import LANES

FOLLOW_AFTER = 8192
"""So many vectors may be in the database alone, from where every reader loads them, before the caches follow."""


class Caches:
    """Both caches of one generation; the methods are for the writer."""

    def __init__(self, folder: Path, dimensions: int) -> None:
        self.lanes = {lane: LaneCache(folder, lane, dimensions) for lane in LANES}
        self.resting = False  # while ids do not come in ascending order
        self._behind = 0

    def changed(self, connection: sqlite3.Connection, size: int) -> None:
        """So many vectors came or went: follow when they are many. A failure leaves the cache behind, no more."""
        self._behind += size
        if self._behind >= FOLLOW_AFTER and not self.resting:
            with suppress(sqlite3.Error, OSError):
                self.follow(connection, whole=False)
                self._behind = 0

    def follow(self, connection: sqlite3.Connection, *, whole: bool) -> None:
        """Bring both to the state of the database; ``whole`` with approximate indexes, which takes long."""
        for cache in self.lanes.values():
            header = cache.follow(connection)
            if whole:
                _index(cache, header)

    def rebuild(self, connection: sqlite3.Connection) -> None:
        """Make everything anew."""
        for cache in self.lanes.values():
            _index(cache, cache.rewrite(connection))


def _index(cache: LaneCache, header: CacheHeader) -> None:
    """Build the approximate index that this size asks for, unless there is one that covers enough."""
    kind = approximate.kind_for(header.rows)
    enough = header.approximate_rows >= (1 - approximate.TAIL) * header.rows
    if kind is None or (kind == header.approximate and enough):
        return
    matrix = cache.matrix(header)
    if matrix is not None:
        approximate.build(kind, matrix, cache.path(header, kind))
        cache.commit(replace(header, approximate=kind, approximate_rows=header.rows))

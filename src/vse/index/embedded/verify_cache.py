"""Comparing a cache, with what came after it, with the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vse.index.embedded import approximate
from vse.index.embedded.cache import LaneCache, OpenCache
from vse.index.embedded.database import changes, known_ids, removed_after, trimmed, vectors_after
from vse.index.embedded.schema import DAMAGE
from vse.index.lanes import Lane
from vse.progress import ProgressReporter

BLOCK = 4096


@dataclass(frozen=True)
class CacheProblems:
    """What is wrong with the cache of one lane; ``differing`` are ids for which it holds another vector."""

    lane: Lane
    lines: tuple[str, ...] = ()
    lacking: Sequence[int] = ()
    differing: Sequence[int] = ()

    def still_there(self, connection: sqlite3.Connection) -> CacheProblems:
        """Without the vectors that were removed while all was compared, and purged from the cache by that."""
        known = known_ids(connection, self.lane, self.differing)
        return replace(self, differing=[each for each in self.differing if each in known])

    def told(self) -> Iterator[str]:
        """A line each."""
        yield from self.lines
        yield from (f"the cache of {self.lane} lacks the vector of {each}" for each in self.lacking)
        yield from (f"the cache of {self.lane} holds another vector for {each}" for each in self.differing)


def look_at(cache: LaneCache) -> OpenCache | str | None:
    """The cache, to be compared in a transaction that begins later; None when it is absent, or why it is of no use.

    A writer may replace it at this moment: then it is looked at again.
    """
    while True:
        signature = cache.signature()
        if signature is None:
            return None
        opened = cache.opened()
        problem = _unreadable(cache, opened)
        if problem is None:
            return opened
        if cache.signature() == signature:
            return problem


def compare(
    connection: sqlite3.Connection, cache: LaneCache, found: OpenCache | str | None, progress: ProgressReporter
) -> CacheProblems:
    """What :func:`look_at` found beside the state of this transaction."""
    lane = cache.lane
    if found is None or isinstance(found, str):
        return CacheProblems(lane, () if found is None else (found,))
    if found.header.changes > changes(connection):
        return CacheProblems(lane, (f"the cache of {lane} is newer than the database",))
    if found.header.changes < trimmed(connection):
        return CacheProblems(lane, (f"the cache of {lane} is too old to be brought up to date",))
    try:
        return _differences(connection, cache, found, progress)
    except DAMAGE:
        return CacheProblems(lane, (f"the cache of {lane} cannot be compared with the database",))


def _unreadable(cache: LaneCache, opened: OpenCache | None) -> str | None:
    if opened is None:
        return f"the cache of {cache.lane} cannot be read"
    header = opened.header
    if header.approximate is not None:
        path = cache.path(header, header.approximate)
        if approximate.load(path, header.approximate_rows, cache.dimensions) is None:
            return f"the approximate index {path.name} cannot be read"
    return None


def _differences(
    connection: sqlite3.Connection, cache: LaneCache, opened: OpenCache, progress: ProgressReporter
) -> CacheProblems:
    ids, removed = np.abs(opened.ids), removed_after(connection, cache.lane, opened.header.changes)
    alive = opened.ids[~np.isin(opened.ids, removed) & (opened.ids > 0)]
    last = int(ids[-1]) if len(ids) else 0
    seen = 0
    lacking: list[int] = []
    differing: list[int] = []
    for some, vectors in vectors_after(connection, cache.lane, 0, cache.dimensions, BLOCK):
        inside = some <= last
        missing = inside & ~np.isin(some, alive)
        there = inside & ~missing
        seen += int(there.sum())
        rows = np.searchsorted(ids, some[there])
        differs = (opened.matrix[rows].view(np.uint32) != vectors[there].view(np.uint32)).any(axis=1)
        lacking += some[missing].tolist()
        differing += some[there][differs].tolist()
        progress.advance(len(some))
    left = len(alive) - seen
    lines = (f"the cache of {cache.lane} holds {left} vectors that were removed",) if left else ()
    return CacheProblems(cache.lane, lines, lacking, differing)

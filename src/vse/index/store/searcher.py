"""Searching one table: the cache, the rows newer than it, and an approximate index if there is one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.index.filters import Filter
from vse.index.scoring import BLOCK, exact_scores, smallest
from vse.index.storage import Rows, decode
from vse.index.store import approximate
from vse.index.store.cache import CacheHeader, OpenCache, Signature, VectorCache
from vse.index.store.checksums import (
    LARGEST_COSINE,
    DamagedCacheError,
    IntactFile,
    StoredRows,
    VectorFile,
    file_checksum,
)
from vse.index.store.database import (
    Ids,
    changes,
    count_after,
    removed_after,
    transaction,
    trimmed,
    vectors_after,
    vectors_known,
)
from vse.index.store.scan import propose
from vse.index.types import Hits, Vectors

if TYPE_CHECKING:
    from cachetools import LRUCache

SEARCH_BLOCK = 1024
"""Vectors read from the database at a time; three copies exist while they are copied."""


@dataclass(frozen=True)
class Part:
    """Rows of ``matrix (n, D)``, as stored, with ascending ``ids (n,)``; ``alive (n,)`` masks removed ones.

    ``alive`` is None if none are. ``file`` is the file that the matrix is read from, whose blocks are verified before
    they are used.
    """

    ids: Ids
    matrix: Rows | StoredRows
    alive: NDArray[np.bool_] | None = None
    file: VectorFile | None = None
    _masks: list[tuple[Ids, NDArray[np.bool_]]] = field(init=False, default_factory=list, repr=False, compare=False)

    def without(self, removed: Ids) -> Part:
        """Return the same vectors with these ids marked as removed."""
        gone = np.isin(self.ids, removed)
        if not gone.any():
            return self
        return replace(self, alive=~gone if self.alive is None else self.alive & ~gone)

    def allowed(self, only: Ids | None) -> NDArray[np.bool_] | None:
        """Return the mask of rows that a search limited to the ascending ids ``only`` may return; None allows all."""
        if only is None:
            return self.alive
        for known, mask in self._masks:  # the same array: the next page or query often has the same filter
            if known is only:
                return mask
        mask = np.zeros(len(self.ids), np.bool_)
        rows = np.searchsorted(self.ids, only)
        inside = rows < len(self.ids)
        rows = rows[inside]
        mask[rows[self.ids[rows] == only[inside]]] = True
        if self.alive is not None:
            mask &= self.alive
        self._masks[:] = [(only, mask)]
        return mask

    def verify(self, rows: NDArray[np.int64] | None) -> None:
        """Raise :class:`DamagedCacheError` if one of these rows, all by default, is in a damaged block."""
        if self.file is not None:
            self.file.verify(rows)

    def scores(self, rows: NDArray[np.int64], query: Vectors) -> NDArray[np.float32]:
        """Return the exact scores of rows; NaN where a vector was purged."""
        self.verify(rows)
        if isinstance(self.matrix, StoredRows):
            parts = (self.matrix[rows[start : start + BLOCK]] for start in range(0, len(rows), BLOCK))
            some = [exact_scores(part, np.arange(len(part)), query) for part in parts]
            scores = np.concatenate([np.empty(0, np.float32), *some])
        else:
            scores = exact_scores(self.matrix, rows, query)
        if (np.abs(scores) > LARGEST_COSINE).any():  # False for NaN
            if self.file is not None:
                raise DamagedCacheError(self.file.path, np.empty(0, np.int64), "a vector is not of unit length")
            raise sqlite3.DatabaseError("a vector is not of unit length")
        return scores

    def best(self, query: Vectors, k: int, allowed: NDArray[np.bool_] | None, start: int = 0) -> NDArray[np.int64]:
        """Return rows from ``start`` on that include the best ``k`` of the allowed ones."""
        if start == len(self.ids):
            return np.empty(0, np.int64)
        tail = None if allowed is None else allowed[start:]
        if isinstance(self.matrix, StoredRows):  # verified while it is read
            return start + propose(self.matrix.after(start), query, k, tail)
        whole = (start == 0 and tail is None) or self.file is None or self.file.complete
        rows = None if whole else start + (np.arange(len(self.ids) - start) if tail is None else np.flatnonzero(tail))
        self.verify(rows)
        return start + propose(self.matrix[start:], query, k, tail)


@dataclass(frozen=True)
class Snapshot:
    """The state as of ``changes``: ``base`` from the cache, ``fresh`` from the database."""

    changes: int
    base: Part
    fresh: Part
    index: Any = None
    index_rows: int = 0
    index_file: IntactFile | None = None

    @property
    def last(self) -> int:
        """The highest known id."""
        return max((int(part.ids[-1]) for part in (self.base, self.fresh) if len(part.ids)), default=0)

    def search(self, query: Vectors, k: int, only: Ids | None, exact: bool) -> Hits:
        """Return the best ``k`` of the ids in ``only``; None allows all."""
        allowed = self.base.allowed(only)
        if not exact and self.index is not None and k <= approximate.MAX_RESULTS:
            if self.index_file is not None:
                self.index_file.check()
            rows = approximate.propose(self.index, query, None if allowed is None else allowed[: self.index_rows])
            if rows is not None:
                rest = self.base.best(query, k, allowed, self.index_rows)
                hits = self._ordered(query, k, np.concatenate([rows, rest]), only, exact=False)
                if len(hits.ids) == k:
                    return hits
        return self._ordered(query, k, self.base.best(query, k, allowed), only, exact=True)

    def sample(self, count: int) -> Vectors:
        """Return the vectors of at most ``count`` ids, ascending: those with the smallest hashes."""
        base, fresh = self.base, self.fresh
        here, there = (
            np.arange(len(part.ids)) if part.alive is None else np.flatnonzero(part.alive) for part in (base, fresh)
        )
        chosen = smallest(np.concatenate([base.ids[here], fresh.ids[there]]), count)
        first, second = chosen[chosen < len(here)], chosen[chosen >= len(here)] - len(here)
        base.verify(here[first])
        vectors = decode(np.concatenate([base.matrix[here[first]], fresh.matrix[there[second]]]))
        return vectors[vectors.any(axis=1)]  # the writer may be purging a row of the cache

    def _ordered(self, query: Vectors, k: int, base_rows: NDArray[np.int64], only: Ids | None, exact: bool) -> Hits:
        fresh_rows = self.fresh.best(query, k, self.fresh.allowed(only))
        found = [(self.base, base_rows), (self.fresh, fresh_rows)]
        ids = np.concatenate([part.ids[rows] for part, rows in found])
        scores = np.concatenate([part.scores(rows, query) for part, rows in found])
        there = ~np.isnan(scores)  # the writer may be purging a row of the cache
        ids, scores = ids[there], scores[there]
        order = np.lexsort((ids, -scores))[:k]
        return Hits(ids[order], scores[order], exact)


class Searcher:
    """Keeps a :class:`Snapshot` of one table up to date; the caller holds the connection."""

    def __init__(self, cache: VectorCache) -> None:
        self._cache = cache
        self._snapshot: Snapshot | None = None
        self._signature: Signature | None = None
        self._distrusted: Signature | None = None

    def handle_damage(self, connection: sqlite3.Connection, damage: DamagedCacheError) -> None:
        """Compare damaged blocks with the database; if they differ, read the database until the cache is rewritten.

        A writer that purges rows changes blocks before it replaces their checksums: such blocks are accepted.
        """
        known = self._snapshot
        if known is None:
            return
        file = known.base.file
        if file is not None and len(damage.blocks):
            rows = file.rows_of(damage.blocks)
            with transaction(connection, "DEFERRED"):
                stored = vectors_known(connection, self._cache.table, known.base.ids[rows], self._cache.form)
            cached = file.take(rows, verified=False)
            there = np.array([int(each) in stored for each in known.base.ids[rows]], bool)
            truth = np.array([stored[int(each)] for each in known.base.ids[rows][there]], cached.dtype)
            if cached[there].tobytes() == truth.tobytes():
                file.accept(damage.blocks)
                return
        self._distrusted, self._snapshot = self._signature, None

    def forget(self) -> None:
        """Start over from the cache at the next search."""
        self._snapshot = None

    def current(self, connection: sqlite3.Connection) -> Snapshot:
        """Return a snapshot of the last committed state."""
        known, signature = self._snapshot, self._cache.signature()
        if known is not None and known.changes == changes(connection) and signature == self._signature:
            return known
        opened = None
        if known is None or signature != self._signature:
            # Before the transaction begins, so that the database is at least as new as the cache.
            opened = None if signature is not None and signature == self._distrusted else self._cache.opened()
            signature = signature if opened is None else opened.signature
        with transaction(connection, "DEFERRED"):
            self._snapshot = self._with_changes(connection, self._base(connection, opened, known))
        self._signature = signature
        return self._snapshot

    def _base(self, connection: sqlite3.Connection, opened: OpenCache | None, known: Snapshot | None) -> Snapshot:
        """Return the state to apply changes to: the opened cache, else what is known, else an empty one.

        A state is unusable when removals since then are no longer listed.
        """
        nothing = Part(np.empty(0, np.int64), np.empty((0, self._cache.form.dimensions), self._cache.form.dtype))
        if opened is not None and trimmed(connection) <= opened.header.changes <= changes(connection):
            alive = opened.ids > 0 if (opened.ids < 0).any() else None
            base = Part(np.abs(opened.ids), opened.vectors.matrix, alive, opened.vectors)
            return Snapshot(opened.header.changes, base, nothing, *self._index(opened.header))
        if known is not None and known.changes >= trimmed(connection):
            return known
        return Snapshot(-1, nothing, nothing)

    def _index(self, header: CacheHeader) -> tuple[Any, int, IntactFile | None]:
        """Load the approximate index; one that does not match its checksum could crash the process."""
        if header.approximate is None:
            return None, 0, None
        path = self._cache.path(header, header.approximate)
        try:
            file = IntactFile(path, path.stat().st_size)
            if header.approximate_checksum != file_checksum(path):
                return None, 0, None
        except OSError:
            return None, 0, None
        index = approximate.load(path, header.approximate_rows, self._cache.form.dimensions)
        return (None, 0, None) if index is None else (index, header.approximate_rows, file)

    def _with_changes(self, connection: sqlite3.Connection, known: Snapshot) -> Snapshot:
        table, last = self._cache.table, known.last
        base, fresh = known.base, known.fresh
        if known.changes >= 0:
            removed = removed_after(connection, table, known.changes)
            base, fresh = base.without(removed), fresh.without(removed)
        added = count_after(connection, table, last)
        if added:
            # Allocate for all at once: growing block by block would hold the vectors twice.
            form = self._cache.form
            ids, matrix = np.empty(added, np.int64), np.empty((added, form.dimensions), form.dtype)
            row = 0
            for some, block in vectors_after(connection, table, last, form, SEARCH_BLOCK):
                ids[row : row + len(some)], matrix[row : row + len(some)] = some, block
                row += len(some)
            fresh = _joined(fresh, Part(ids, matrix))
        return replace(known, changes=changes(connection), base=base, fresh=fresh)


def _joined(first: Part, second: Part) -> Part:
    if not len(first.ids):
        return second
    alive = None
    if first.alive is not None:
        alive = np.concatenate([first.alive, np.ones(len(second.ids), np.bool_)])
    return Part(np.concatenate([first.ids, second.ids]), np.concatenate([first.matrix, second.matrix]), alive)


MAX_FILTER_BYTES = 64 * 2**20


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

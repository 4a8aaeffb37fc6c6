"""Reading an open collection: searches on its last committed state, by embedding and by words."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.checks import check_vectors
from vse.index.filters import Filter
from vse.index.scoring import best_by_share, best_of_files
from vse.index.store import words as indexed_words
from vse.index.store.checksums import DamagedCacheError
from vse.index.store.database import Ids, Meta, one_line
from vse.index.store.searcher import FilterCache, Searcher, Snapshot
from vse.index.store.session import Session
from vse.index.store.words import allowed_items
from vse.index.types import Hits, Vectors, VectorTable, WordHits

Found = TypeVar("Found")


class SnapshotReader:
    """A session, and what searches it: see :class:`~vse.index.types.Collection` for the public methods."""

    def __init__(self, session: Session, searchers: dict[VectorTable, Searcher]) -> None:
        self.session, self.folder, self.generation = session, session.folder, session.generation
        self.meta: Meta = session.meta
        self._searchers = searchers
        self._filters = FilterCache()

    def word_counts(self, words: Sequence[str]) -> dict[str, int]:
        """Return in how many files each word occurs, as split by :func:`vse.index.words.fold`."""
        with self.session.reading() as connection:
            return indexed_words.counts(connection, words)

    def search_words(
        self, words: Mapping[str, float], vector: Vectors, k: int, *, where: Filter | None = None
    ) -> WordHits:
        """Return the ``k`` files whose words weigh most, each as its best item for ``vector``.

        Embeddings of at most ``k`` files are compared, and of those that share the last place.

        Args:
            words: Weights of words as split by :func:`vse.index.words.fold`.
            vector: The query ``(D,)``, a unit vector, which orders files with equal shares.
            k: How many files.
            where: Only files that pass this filter.

        Returns:
            Up to ``k`` hits by descending share, then score, then by id.
        """
        self._check_query(vector, k)
        query = np.ascontiguousarray(vector)
        with self.session.reading() as connection:
            files, shares = indexed_words.shares(connection, words)
        return best_by_share(files, shares, k, lambda some, count: self._best_of_files(some, query, count, where))

    def items_with_words(self, ids: Sequence[int], texts: Sequence[str]) -> set[int]:
        """Return those of ``ids`` whose file holds one of ``texts``, word by word, in a field that names content."""
        with self.session.reading() as connection:
            return indexed_words.items_with(connection, ids, texts)

    def _best_of_files(
        self, files: Ids, query: Vectors, count: int, where: Filter | None
    ) -> tuple[Hits, NDArray[np.int64]]:
        """Return the best item of each of the best ``count`` files, and the rows of ``files`` they belong to."""
        with self.session.reading() as connection:
            items, owners = indexed_words.items_of_files(connection, files)

        def nearest(count: int) -> Hits:
            return self._on_snapshot(
                "items", where, lambda snapshot, only: snapshot.search(query, count, _both(items, only), exact=True)
            )

        return best_of_files(files, items, owners, count, nearest)

    def _check_query(self, vector: Vectors, k: int) -> None:
        check_vectors(vector, (self.meta.dimensions,), "query")
        if k < 1:
            raise InputError(f"k {k}: expected at least 1 result")

    def _on_snapshot(
        self, table: VectorTable, where: Filter | None, use: Callable[[Snapshot, Ids | None], Found]
    ) -> Found:
        """Return ``use(snapshot, ids that pass)``; a damaged cache is replaced by what the database holds."""
        while True:
            with self.session.using() as connection:
                snapshot = self._searchers[table].current(connection)
                only = self._passing(connection, where, snapshot.changes)
            try:
                with one_line(self.folder):
                    return use(snapshot, only)
            except DamagedCacheError as damage:
                with self.session.using() as connection:
                    self._searchers[table].handle_damage(connection, damage)

    def _passing(self, connection: sqlite3.Connection, where: Filter | None, changes: int) -> Ids | None:
        """Return the ids of the items that pass a filter as of ``changes``; None if all do."""
        if where is None or where.empty:
            return None
        return self._filters.ids(where, changes, lambda: allowed_items(connection, where))


def _both(items: Ids, only: Ids | None) -> Ids:
    return items if only is None else np.intersect1d(items, only, assume_unique=True)

"""The collection in a folder: see the package for the layout and what holds when a process dies."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, VSEError
from vse.index.checks import check_dimensions, check_entry, check_vectors, model_mismatch_error
from vse.index.filters import Filter
from vse.index.store import changes as changing
from vse.index.store import database
from vse.index.store.cache import Caches, FilterCache
from vse.index.store.database import Ids, Meta, transaction
from vse.index.store.layout import CACHE, generation_folder, read_generation
from vse.index.store.searcher import Searcher, Snapshot
from vse.index.store.session import (
    Session,
    create_session,
    every_file,
    facets,
    info_of,
    open_session,
    recent,
    unfinished_info,
)
from vse.index.types import VECTOR_TABLES, CollectionInfo, Entry, Facets, Hits, Item, MediaFile, Vectors, VectorTable
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.index.store.generations import NewGeneration
    from vse.index.store.verify import VerifyReport


class EmbeddedCollection:
    """A :class:`~vse.index.types.Collection` in one folder, made by :meth:`create` and :meth:`open`.

    May be used from several threads. Queries are unit vectors, as those that are added. A filter that is asked for
    again is answered from memory until something changes.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.folder, self.generation = session, session.folder, session.generation
        self.meta: Meta = session.meta
        self.caches = Caches(generation_folder(self.folder, self.generation) / CACHE, self.meta.dimensions)
        self._searchers = {table: Searcher(self.caches.by_table[table]) for table in VECTOR_TABLES}
        self._filters = FilterCache()
        self._counted: tuple[int, CollectionInfo] | None = None

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], *, model: str, model_source: str, dimensions: int
    ) -> EmbeddedCollection:
        """A new, empty collection, open for writing. ``path`` may be an empty folder."""
        meta = Meta(model, model_source, check_dimensions(dimensions))
        return EmbeddedCollection(create_session(Path(path), meta))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write: bool = False, model: str | None = None) -> EmbeddedCollection:
        """The collection in ``path``; ``model`` is the fingerprint that its vectors have to have."""
        collection = EmbeddedCollection(open_session(Path(path), write=write))
        try:
            collection.expect_model(model)
        except BaseException:
            collection.close()
            raise
        return collection

    def expect_model(self, model: str | None) -> None:
        """Raise when the vectors are those of another model; None accepts any."""
        if model is not None and model != self.meta.model:
            raise model_mismatch_error(str(self.folder), self.meta.model, self.meta.model_source, model)

    @property
    def superseded(self) -> bool:
        """Whether an upgrade has switched to a newer generation, or the collection was deleted and made again.

        Open it again to use what is there.
        """
        return read_generation(self.folder) != self.generation or self.session.replaced

    def info(self) -> CollectionInfo:
        """Counts and origin, as of now; counted again only when something has changed."""
        with self.session.reading() as connection:
            changes = database.changes(connection)
            if self._counted is None or self._counted[0] != changes:
                self._counted = changes, info_of(self.folder, self.generation, connection, self.meta)
            return self._counted[1]

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files, all of them or none; of a file that is named twice the last counts."""
        entries = tuple(entries)
        for entry in entries:
            check_entry(entry, self.meta.dimensions)

        def change(connection: sqlite3.Connection) -> None:
            for entry in entries:
                changing.add_entry(connection, entry)

        self._change(change, sum(len(entry.moments) + len(entry.file.captions) for entry in entries))

    def remove(self, files: Iterable[tuple[str, str]]) -> int:
        """Forget files by (root, path), purge their vectors, and return how many there were."""
        places = tuple(files)
        count = 0

        def change(connection: sqlite3.Connection) -> None:
            nonlocal count
            count = sum(changing.remove_file(connection, place) for place in places)

        self._change(change, len(places))
        return count

    def move(self, moves: Sequence[tuple[tuple[str, str], MediaFile]]) -> None:
        """Move files, all of them or none and at once, so that they may change places.

        A file that was at a new place is forgotten. Captions that stay the same keep their vectors, others have none.
        """
        self._change(lambda connection: changing.move_files(connection, tuple(moves)), len(moves))

    def search(self, vector: Vectors, k: int, *, where: Filter | None = None, exact: bool | None = None) -> Hits:
        """The ``k`` best items; the results of an approximate index are scored exactly as well.

        The best 5 are the first 5 of the best 15: always when the search is exact, and among all ``k`` up to
        ``approximate.MAX_RESULTS`` when it is not.
        """
        snapshot, only = self._prepared("items", vector, k, where)
        return snapshot.search(np.ascontiguousarray(vector), k, only, exact=bool(exact))

    def search_captions(self, vector: Vectors, k: int) -> list[tuple[str, int, float]]:
        """The best captions as (caption, id of its file's first item, score); those without vectors are not found."""
        snapshot, _ = self._prepared("captions", vector, k, None)
        hits = snapshot.search(np.ascontiguousarray(vector), k, None, exact=False)
        with self.session.reading() as connection:
            known = database.captions_by_id(connection, hits.ids.tolist())
        found = zip(hits.ids.tolist(), hits.scores.tolist(), strict=True)
        return [(*known[each], score) for each, score in found if each in known]

    def items(self, ids: Sequence[int]) -> list[Item]:
        """The items with these ids, in this order; one that is gone is an error."""
        with self.session.reading() as connection:
            return database.items_of(connection, ids)

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """Their vectors ``(n, D)``, in this order; one that is gone is an error."""
        with self.session.reading() as connection:
            return database.vectors_by_id(connection, ids, self.meta.dimensions)

    def all_vectors(self, block: int = 8192) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Every id with its vector, ascending, in blocks; changes made meanwhile are seen or not."""
        if block < 1:
            raise InputError(f"block {block}: expected 1 vector at least")
        last = 0
        while True:
            with self.session.reading() as connection:
                page = next(database.vectors_after(connection, "items", last, self.meta.dimensions, block), None)
            if page is None:
                return
            last = int(page[0][-1])
            yield page

    def sample(self, count: int) -> Vectors:
        """Vectors of at most ``count`` items, by id: those whose ids have the smallest hashes."""
        with self.session.using() as connection:
            snapshot = self._searchers["items"].current(connection)
        return snapshot.sample(count)

    def files(self, root: str | None = None) -> Iterator[MediaFile]:
        """Every file, by root and path; changes made meanwhile are seen or not."""
        return every_file(self.session, root)

    def recent(self, k: int, *, offset: int = 0, where: Filter | None = None) -> list[Item]:
        """The files that pass, the newest first, as the first item of each: ``k`` of them after ``offset``."""
        return recent(self.session, k, offset, where)

    def facets(self, folders: int = 200) -> Facets:
        """What the files are and where they lie, as of now; of the folders the ``folders`` with the most files."""
        return facets(self.session, folders)

    def verify(self, *, progress: ProgressReporter | None = None) -> VerifyReport:
        """Read everything and compare it with its checksums; problems are listed, not raised.

        It is the state of one moment that is read, whatever is added or removed meanwhile.
        """
        from vse.index.store.verify import verify_generation

        with self.session.apart() as connection:
            return verify_generation(str(self.folder), connection, self.meta.dimensions, self.caches, progress)

    def settle(self, *, progress: ProgressReporter | None = None) -> None:
        """Bring the cache up to date, with an approximate index where the size asks for one.

        When that fails or is interrupted, closing does not try to build the index again.
        """
        with self._writing_cache() as connection:
            self.caches.follow(connection, progress)
            self.caches.index(progress)

    def rebuild(self, *, progress: ProgressReporter | None = None) -> None:
        """Make the cache anew, with an approximate index where the size asks for one."""
        with self._writing_cache() as connection:
            self.caches.rewrite(connection, progress)
            self.caches.index(progress)

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> NewGeneration:
        """The next generation, to be filled beside this one: see :class:`NewGeneration`."""
        from vse.index.store.generations import NewGeneration

        meta = Meta(model, model_source, check_dimensions(dimensions))
        with self._changing():
            pass
        return NewGeneration(self, meta, progress)

    def unfinished(self) -> CollectionInfo | None:
        """What an upgrade that goes on or was not finished has made so far; None when there is none."""
        return unfinished_info(self.folder, self.generation + 1)

    def set_model_source(self, model_source: str) -> None:
        """Record that the model of these vectors is found elsewhere now."""
        with self._changing() as connection:
            with transaction(connection, "IMMEDIATE"):
                changing.set_meta(connection, "model_source", model_source)
            self.meta = replace(self.meta, model_source=model_source)
            self._counted = None

    def close(self) -> None:
        """Release what is held; a writer does what :meth:`settle` does first. Harmless when closed already."""
        self._close(whole=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(whole=kind is None)  # whoever is interrupted does not want to wait for an index

    def _close(self, *, whole: bool) -> None:
        connection = self.session.end()
        if connection is None:
            return
        try:
            if self.session.writable:
                self._finish(connection, whole=whole)
        finally:
            self.session.release(connection)

    def _finish(self, connection: sqlite3.Connection, *, whole: bool) -> None:
        with self.caches.guard:  # another thread may be at it
            self.caches.finish(connection, whole=whole)
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _writing_cache(self) -> Iterator[sqlite3.Connection]:
        """A connection to write the cache from, beside the one that is searched with: searches and changes go on."""
        with self.caches.guard:  # first of all: closing waits for it, so that the folder stays locked
            with self._changing():
                pass
            with self.session.apart() as connection:
                yield connection

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self.session.writing() as connection:
            if self.superseded:
                raise VSEError(f"{self.folder} was switched to a newer generation: open it again")
            yield connection

    def _change(self, change: Callable[[sqlite3.Connection], None], size: int) -> None:
        """One transaction; afterwards the cache may follow, whose failure undoes nothing."""
        with self._changing() as connection:
            with transaction(connection, "IMMEDIATE"):
                changing.count_change(connection)
                change(connection)
            self.caches.changed(connection, size)

    def _prepared(
        self, table: VectorTable, vector: Vectors, k: int, where: Filter | None
    ) -> tuple[Snapshot, Ids | None]:
        check_vectors(vector, (self.meta.dimensions,), "query")
        if k < 1:
            raise InputError(f"k {k}: expected 1 result at least")
        with self.session.using() as connection:
            snapshot = self._searchers[table].current(connection)
            if where is None or where.empty:
                return snapshot, None
            return snapshot, self._filters.ids(
                where, snapshot.changes, lambda: database.allowed_items(connection, where)
            )

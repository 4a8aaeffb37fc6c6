"""The embedded collection; the package docstring describes its layout and commit protocol."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, VSEError
from vse.index.checks import check_captions, check_dimensions, check_entry, model_mismatch_error
from vse.index.filters import Filter
from vse.index.storage import DEFAULT_STORAGE, check_storage, decode
from vse.index.store import changes as changing
from vse.index.store import database
from vse.index.store import words as indexed_words
from vse.index.store.cache import Caches
from vse.index.store.database import Meta, transaction
from vse.index.store.layout import CACHE, generation_folder, read_committed, read_generation, write_committed
from vse.index.store.reading import SnapshotReader
from vse.index.store.searcher import Searcher
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
from vse.index.types import VECTOR_TABLES, CollectionInfo, Entry, Facets, Hits, Item, MediaFile, Vectors
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.index.store.generations import NewGeneration
    from vse.index.store.verify import VerifyReport

Found = TypeVar("Found")


class EmbeddedCollection(SnapshotReader):
    """A :class:`~vse.index.types.Collection` in one folder; see :meth:`create` and :meth:`open`.

    Thread-safe. Queries, like stored vectors, are unit vectors. Filter results are cached until something changes.
    """

    def __init__(self, session: Session) -> None:
        self.caches = Caches(generation_folder(session.folder, session.generation) / CACHE, session.meta.form)
        super().__init__(session, {table: Searcher(self.caches.by_table[table]) for table in VECTOR_TABLES})
        self._counted: tuple[int, CollectionInfo] | None = None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str,
        model_source: str,
        dimensions: int,
        storage: str = DEFAULT_STORAGE,
    ) -> EmbeddedCollection:
        """Create an empty collection and open it for writing.

        Args:
            path: A new or empty folder.
            model: Fingerprint of the model.
            model_source: Where the model was loaded from.
            dimensions: Length of its vectors.
            storage: How they are stored: ``"float32"``, ``"float16"`` or ``"int8"``.

        Returns:
            The collection, which holds the writer's lock.

        Raises:
            InputError: ``path`` is already a collection, a file, or holds other files.
            VSEError: The folder cannot be written, or another process has locked it.
        """
        meta = Meta(model, model_source, check_dimensions(dimensions), check_storage(storage))
        return EmbeddedCollection(create_session(Path(path), meta))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write: bool = False, model: str | None = None) -> EmbeddedCollection:
        """Open the serving generation of the collection in ``path``.

        Args:
            path: The folder.
            write: Whether to open for writing, which takes the lock and removes older generations.
            model: Fingerprint that the collection's model must have; None accepts any.

        Raises:
            InputError: ``path`` is not a collection, or its model is another one.
            VSEError: The collection is locked, corrupt or cannot be read.
        """
        collection = EmbeddedCollection(open_session(Path(path), write=write))
        try:
            collection.expect_model(model)
        except BaseException:
            collection.close()
            raise
        return collection

    def expect_model(self, model: str | None) -> None:
        """Raise InputError when the vectors belong to another model; None accepts any."""
        if model is not None and model != self.meta.model:
            raise model_mismatch_error(str(self.folder), self.meta.model, self.meta.model_source, model)

    @property
    def superseded(self) -> bool:
        """Whether an upgrade switched to a newer generation, or the collection was deleted and created again.

        Open the collection again to use it.
        """
        return read_generation(self.folder) != self.generation or self.session.replaced

    def info(self) -> CollectionInfo:
        """Return current counts and model; recounted only when something has changed."""
        committed = read_committed(generation_folder(self.folder, self.generation))  # before the snapshot
        with self.session.reading() as connection:
            changes = database.changes(connection)
            if self._counted is None or self._counted[0] != changes:
                self._counted = changes, info_of(self.folder, self.generation, connection, self.meta, committed)
            return self._counted[1]

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files in one transaction, replacing those at the same (root, path).

        Args:
            entries: The files with their vectors; of duplicates the last one wins.

        Raises:
            InputError: An entry is invalid; nothing is added.
            VSEError: The collection is not open for writing, was superseded, or the disk is full.
        """
        entries = tuple(entries)
        for entry in entries:
            check_entry(entry, self.meta.dimensions)

        def change(connection: sqlite3.Connection) -> None:
            changing.add_entries(connection, entries, self.meta.form)

        self._change(change, sum(len(entry.moments) + len(entry.file.captions) for entry in entries))

    def remove(self, files: Iterable[tuple[str, str]]) -> int:
        """Remove files and purge their vectors in one transaction.

        Args:
            files: (root, path) of each file; unknown ones are skipped.

        Returns:
            How many files were removed.
        """
        places = tuple(files)
        count = 0

        def change(connection: sqlite3.Connection) -> None:
            nonlocal count
            count = sum(changing.remove_file(connection, place) for place in places)

        self._change(change, len(places))
        return count

    def move(
        self, moves: Sequence[tuple[tuple[str, str], MediaFile]], *, captions: Mapping[str, Vectors] | None = None
    ) -> None:
        """Move or update files in one transaction, all at once, so that they can swap places.

        Args:
            moves: The old (root, path) of each file, and the file as it is now; a file at a new place is removed.
            captions: Vectors of new captions, by text; unchanged captions keep theirs, others have none.

        Raises:
            InputError: A file is unknown, moved twice, or two files share a new place; nothing is moved.
        """
        known = check_captions(captions, self.meta.dimensions)
        form = self.meta.form
        self._change(lambda connection: changing.move_files(connection, tuple(moves), known, form), len(moves))

    def search(self, vector: Vectors, k: int, *, where: Filter | None = None, exact: bool | None = None) -> Hits:
        """Return the best items, scored exactly even where an approximate index proposed them.

        Args:
            vector: The query ``(D,)``, a unit vector.
            k: How many items.
            where: Only search items of files that pass this filter.
            exact: True compares with every vector; None and False use an approximate index if there is one.

        Returns:
            Up to ``k`` hits by descending score, then by id. The best 5 are the first 5 of the best 15: always when the
            search is exact, otherwise for ``k`` up to ``approximate.MAX_RESULTS``.
        """
        self._check_query(vector, k)
        return self._on_snapshot(
            "items", where, lambda snapshot, only: snapshot.search(np.ascontiguousarray(vector), k, only, bool(exact))
        )

    def search_captions(self, vector: Vectors, k: int) -> list[tuple[str, int, float]]:
        """Return the ``k`` best captions that have vectors.

        Returns:
            (caption, id of its file's first item, score) of each, by descending score.
        """
        self._check_query(vector, k)
        query = np.ascontiguousarray(vector)
        hits = self._on_snapshot("captions", None, lambda snapshot, _: snapshot.search(query, k, None, exact=False))
        with self.session.reading() as connection:
            known = database.captions_by_id(connection, hits.ids.tolist())
        found = zip(hits.ids.tolist(), hits.scores.tolist(), strict=True)
        return [(*known[each], score) for each, score in found if each in known]

    def items(self, ids: Sequence[int]) -> list[Item]:
        """Return the items with these ids, in this order; a missing id raises InputError."""
        with self.session.reading() as connection:
            return database.items_of(connection, ids)

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """Return the vectors ``(n, D)`` of these items, in this order; a missing id raises InputError."""
        with self.session.reading() as connection:
            return database.vectors_by_id(connection, ids, self.meta.form)

    def all_vectors(self, block: int = 8192) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Iterate over all ids with their vectors, ascending, in blocks; concurrent changes may or may not be seen."""
        if block < 1:
            raise InputError(f"block {block}: expected at least 1 vector")
        last = 0
        while True:
            with self.session.reading() as connection:
                page = next(database.vectors_after(connection, "items", last, self.meta.form, block), None)
            if page is None:
                return
            last = int(page[0][-1])
            yield page[0], decode(page[1])

    def sample(self, count: int) -> Vectors:
        """Return the vectors of at most ``count`` items, by id: those whose ids have the smallest hashes."""
        return self._on_snapshot("items", None, lambda snapshot, _: snapshot.sample(count))

    def files(self, root: str | None = None) -> Iterator[MediaFile]:
        """Iterate over all files by root and path; concurrent changes may or may not be seen."""
        return every_file(self.session, root)

    def recent(self, k: int, *, offset: int = 0, where: Filter | None = None) -> list[Item]:
        """Return ``k`` files that pass, newest first, after skipping ``offset``; each as its first item."""
        return recent(self.session, k, offset, where)

    def facets(self, folders: int = 200) -> Facets:
        """Return current counts by kind, time and folder, for the ``folders`` folders with the most files."""
        return facets(self.session, folders)

    def verify(self, *, progress: ProgressReporter | None = None) -> VerifyReport:
        """Read everything within one snapshot and compare it with its checksums.

        Returns:
            The problems found; they are not raised.
        """
        from vse.index.store.verify import verify_generation

        committed = read_committed(generation_folder(self.folder, self.generation))  # before the snapshot
        with self.session.apart() as connection:
            place, form = str(self.folder), self.meta.form
            return verify_generation(place, connection, form, self.caches, progress, committed=committed)

    def settle(self, *, progress: ProgressReporter | None = None) -> None:
        """Bring the cache up to date, with an approximate index if the collection is large enough.

        If this fails or is interrupted, closing does not retry the index build.
        """
        with self._writing_cache() as connection:
            self.caches.follow(connection, progress)
            self.caches.index(progress)

    def rebuild(self, *, progress: ProgressReporter | None = None) -> None:
        """Rebuild the cache, with an approximate index if the collection is large enough, and the words."""
        with self._changing() as connection, transaction(connection, "IMMEDIATE"):
            indexed_words.rebuild(connection)
        with self._writing_cache() as connection:
            self.caches.rewrite(connection, progress)
            self.caches.index(progress)

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> NewGeneration:
        """Return the next generation, to be filled while this one serves: see :class:`NewGeneration`."""
        from vse.index.store.generations import NewGeneration

        meta = Meta(model, model_source, check_dimensions(dimensions), self.meta.storage)
        with self._changing():
            pass
        return NewGeneration(self, meta, progress)

    def unfinished(self) -> CollectionInfo | None:
        """Return the counts of an upgrade that is running or was interrupted; None when there is none."""
        return unfinished_info(self.folder, self.generation + 1)

    def set_model_source(self, model_source: str) -> None:
        """Record a new location of the model."""
        with self._changing() as connection:
            with transaction(connection, "IMMEDIATE"):
                changing.set_meta(connection, "model_source", model_source)
            self.meta = replace(self.meta, model_source=model_source)
            self._counted = None

    def settings(self) -> dict[str, Any]:
        """Return what :meth:`set_settings` recorded."""
        with self.session.reading() as connection:
            return database.settings(connection)

    def set_settings(self, settings: Mapping[str, Any]) -> None:
        """Record settings as a JSON object; the next generation keeps them."""
        with self._changing() as connection, transaction(connection, "IMMEDIATE"):
            changing.set_meta(connection, "settings", json.dumps(settings))

    def accept_loss(self) -> int:
        """Forget that changes were lost with a damaged log, and return how many; see ``CollectionInfo.lost_changes``.

        Call it when all folders were indexed again, and imports repeated: nothing else tells what the changes held.
        """
        with self._changing() as connection:
            lost = changing.recorded_loss(connection)
            with transaction(connection, "IMMEDIATE"):
                changing.set_meta(connection, "lost_changes", 0)
            self._counted = None
        return lost

    def close(self) -> None:
        """Close the collection; a writer first does what :meth:`settle` does. Idempotent."""
        self._close(whole=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(whole=kind is None)  # after an interrupt nobody wants to wait for an index

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
        with self.caches.guard:  # another thread may be writing the cache
            self.caches.finish(connection, whole=whole)
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _writing_cache(self) -> Iterator[sqlite3.Connection]:
        """Yield a separate connection to write the cache from, so that searches and changes continue."""
        with self.caches.guard:  # taken first: closing waits for it, so the folder stays locked
            with self._changing():
                pass
            with self.session.apart(committed=True) as connection:
                yield connection

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self.session.writing() as connection:
            if self.superseded:
                raise VSEError(f"{self.folder} was switched to a newer generation: open it again")
            yield connection

    def _change(self, change: Callable[[sqlite3.Connection], None], size: int) -> None:
        """Run one transaction; the cache update that may follow cannot undo it."""
        with self._changing() as connection:
            with transaction(connection, "IMMEDIATE"):
                number = changing.count_change(connection)
                change(connection)
                changing.purge_removed(connection)
            write_committed(generation_folder(self.folder, self.generation), number)
            self.caches.changed(connection, size)

"""The collection in Milvus; the package docstring describes what is stored and the commit protocol."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from vse._util.locks import FolderLock
from vse.errors import InputError, VSEError
from vse.index.checks import check_captions, check_dimensions, check_entry, check_vectors, model_mismatch_error
from vse.index.filters import Filter
from vse.index.milvus import browsing
from vse.index.milvus import commits as changing
from vse.index.milvus import connection as lite
from vse.index.milvus import search as sampled
from vse.index.milvus.commits import Writer
from vse.index.milvus.connection import Connection, MilvusAddress, parse_address
from vse.index.milvus.schema import (
    ITEM_COLUMNS,
    Index,
    Row,
    State,
    file_of,
    from_stored,
    item_of,
    literal,
    place_key,
    vectors_of,
)
from vse.index.milvus.search import Found, Reading, Search, best, condition
from vse.index.milvus.tables import Tables, drop_all, drop_older, serving_tables, unfinished_state
from vse.index.types import CollectionInfo, Entry, Facets, Hits, Item, MediaFile, Vectors
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.index.milvus.next_generation import MilvusNextGeneration


def opened(
    address: MilvusAddress, prepare: Callable[[Connection], Tables], *, new: bool, write: bool
) -> tuple[Tables, FolderLock | None]:
    """Run ``prepare`` on a new connection; return its tables and, for writing to a folder, the lock."""
    lock = None
    if address.folder is not None:
        lite.check_folder(address.folder, new=new)
        lock = _locked(address.folder) if write else None
    try:
        connection = Connection(address)
        try:
            return prepare(connection), lock
        except BaseException:
            connection.close()
            raise
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def _locked(folder: Path) -> FolderLock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FolderLock(folder)
    except OSError as error:
        raise VSEError(f"{folder} cannot be used ({error.strerror}): choose a writable folder") from error


PAGE = 512


class MilvusCollection(browsing.NoWords):
    """A :class:`~vse.index.types.Collection` in Milvus; see :meth:`create` and :meth:`open`.

    Thread-safe. Queries, like stored vectors, are unit vectors.
    """

    def __init__(self, tables: Tables, lock: FolderLock | None, *, write: bool) -> None:
        self.tables, self.where = tables, tables.connection.where
        self.reading = Reading(tables)
        self._lock = lock
        try:
            self._writer = Writer(tables) if write else None
            self.dimensions = tables.ledger.state().dimensions
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str,
        model_source: str,
        dimensions: int,
        index: Index | None = None,
    ) -> MilvusCollection:
        """Create an empty collection and open it for writing.

        Args:
            path: The address, see :func:`parse_address`.
            model: Fingerprint of the model.
            model_source: Where the model was loaded from.
            dimensions: Length of its vectors.
            index: ``"flat"`` compares with every vector, ``"hnsw"`` is approximate; None means flat for Milvus Lite and
                hnsw for a server.

        Returns:
            The collection.

        Raises:
            InputError: The address is invalid, or already taken.
            VSEError: Milvus cannot be reached, or another process has locked the folder.
        """
        address = parse_address(os.fspath(path))
        check_dimensions(dimensions)
        index = index or ("hnsw" if address.folder is None else "flat")

        def make(connection: Connection) -> Tables:
            if serving_tables(connection) is not None:
                raise InputError(f"{address} is already a collection: open it, or choose another name")
            drop_all(connection)
            tables = Tables(connection, 1)
            tables.make(State(model, model_source, dimensions, index))
            return tables

        return cls(*opened(address, make, new=True, write=True), write=True)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write: bool = False, model: str | None = None) -> MilvusCollection:
        """Open the collection at ``path``.

        Args:
            path: The address, see :func:`parse_address`.
            write: Whether to open for writing, which takes over from the previous writer and drops older generations.
            model: Fingerprint that the collection's model must have; None accepts any.

        Returns:
            The serving generation.

        Raises:
            InputError: There is no collection at ``path``, or its model is another one.
            VSEError: Milvus cannot be reached, the folder is locked, or the collection is corrupt.
        """
        address = parse_address(os.fspath(path))

        def expect(connection: Connection) -> Tables:
            tables = serving_tables(connection)
            if tables is None:
                raise InputError(f"{address} is not a collection: 'vse index' creates one")
            state = tables.ledger.state()
            if model is not None and model != state.model:
                raise model_mismatch_error(str(address), state.model, state.model_source, model)
            return tables

        collection = cls(*opened(address, expect, new=False, write=write), write=write)
        try:
            if write:
                drop_older(collection.tables)
        except BaseException:
            collection.close()
            raise
        return collection

    @classmethod
    def exists(cls, path: str | os.PathLike[str]) -> bool:
        """Return whether a collection was completely created at ``path``, even one that this version cannot open."""
        address = parse_address(os.fspath(path))
        if address.folder is not None:
            lite.check_folder(address.folder, new=True)
            if not lite.is_used(address.folder):
                return False
        with closing(Connection(address)) as connection:
            return serving_tables(connection) is not None

    @property
    def superseded(self) -> bool:
        """Whether an upgrade switched to a newer generation: open the collection again to use it."""
        return self.tables.ledger.serving().generation != self.tables.generation

    def info(self) -> CollectionInfo:
        """Return current counts and model."""
        return self.tables.ledger.state().info(self.where)

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files atomically, replacing those at the same (root, path).

        Args:
            entries: The files with their vectors; of duplicates the last one wins.

        Raises:
            InputError: An entry is invalid, or Milvus cannot store one of its values; nothing is added.
            VSEError: The collection is not open for writing, another writer took over, or Milvus failed.
        """
        last = self._by_place(entries)
        self._writing().change(lambda now: changing.adding(self.tables, now, last))

    def remove(self, files: Iterable[tuple[str, str]]) -> int:
        """Remove files and purge their vectors atomically.

        Args:
            files: (root, path) of each file; unknown ones are skipped.

        Returns:
            How many files were removed.
        """
        keys = [place_key(place) for place in files]
        count = 0

        def planned(now: State) -> changing.Change:
            nonlocal count
            change, count = changing.removing(self.tables, now, keys)
            return change

        self._writing().change(planned)
        return count

    def move(
        self, moves: Sequence[tuple[tuple[str, str], MediaFile]], *, captions: Mapping[str, Vectors] | None = None
    ) -> None:
        """Move files atomically, all at once, so that they can swap places.

        Args:
            moves: The old (root, path) of each file, and the file as it is now; a file at a new place is removed.
            captions: Vectors of new captions, by text; unchanged captions keep theirs, others have none.

        Raises:
            InputError: A file is unknown, moved twice, or two files share a new place; nothing is moved.
        """
        known = check_captions(captions, self.info().dimensions)
        self._writing().change(lambda now: changing.moving(self.tables, now, tuple(moves), known))

    def search(self, vector: Vectors, k: int, *, where: Filter | None = None, exact: bool | None = None) -> Hits:
        """Return the best items, scored exactly even where an approximate index proposed them.

        Args:
            vector: The query ``(D,)``, a unit vector.
            k: How many items.
            where: Only search items of files that pass this filter.
            exact: True compares with every vector; None and False use an approximate index if there is one.

        Returns:
            Up to ``k`` hits by descending score, then by id. The best 5 are the first 5 of the best 15: always when the
            search is exact, otherwise for ``k`` up to 256.
        """
        search = Search("items", self._checked(vector, k), k, condition(where))
        (rows, scores), compared = self._best(search, exact=bool(exact))
        return Hits(np.array([row["item"] for row in rows], np.int64), scores, compared)

    def search_captions(self, vector: Vectors, k: int) -> list[tuple[str, int, float]]:
        """Return the ``k`` best captions that have vectors.

        Returns:
            (caption, id of its file's first item, score) of each, by descending score.
        """
        search = Search("captions", self._checked(vector, k), k, None, ("text", "first"))
        (rows, scores), _ = self._best(search, exact=False)
        return [
            (from_stored(row["text"]), int(row["first"]), score)
            for row, score in zip(rows, scores.tolist(), strict=True)
        ]

    def items(self, ids: Sequence[int]) -> list[Item]:
        """Return the items with these ids, in this order; a missing id raises InputError."""
        return [item_of(row) for row in self.reading.rows(ids, ITEM_COLUMNS)]

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """Return the vectors ``(n, D)`` of these items, in this order; a missing id raises InputError."""
        return vectors_of(self.reading.rows(ids, ("item", "vector")), self.dimensions)

    def all_vectors(self, block: int = 8192) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Iterate over all ids with their vectors, ascending, in blocks; concurrent changes may or may not be seen."""
        if block < 1:
            raise InputError(f"block {block}: expected at least 1 vector")
        waiting: list[Row] = []
        for rows in self.reading.windows(None, ("item", "vector")):
            waiting += rows
            while len(waiting) > block:
                some, waiting = waiting[:block], waiting[block:]
                yield self._block(some)
        if waiting:
            yield self._block(waiting)

    def files(self, root: str | None = None) -> Iterator[MediaFile]:
        """Iterate over all files by root and path; concurrent changes may or may not be seen.

        Milvus does not sort: the names of all files are held in memory.
        """
        first = "position == 0" if root is None else f"position == 0 and root == {literal(root)}"
        places: list[tuple[str, str, int]] = []
        for rows in self.reading.windows(first, ("item", "root", "path")):
            places += [(from_stored(row["root"]), from_stored(row["path"]), int(row["item"])) for row in rows]
        places.sort()
        for start in range(0, len(places), PAGE):
            page = places[start : start + PAGE]
            known = self.reading.known([item for _, _, item in page], ITEM_COLUMNS)
            for at_root, path, item in page:
                if item in known:
                    file = file_of(known[item])
                    if (file.root, file.path) == (at_root, path):  # otherwise it was moved meanwhile
                        yield file

    def recent(self, k: int, *, offset: int = 0, where: Filter | None = None) -> list[Item]:
        """Return ``k`` files that pass, newest first, after skipping ``offset``; each as its first item."""
        return browsing.recent(self.reading, self.tables.ledger.state(), k, offset, where)

    def facets(self, folders: int = 200) -> Facets:
        """Return current counts by kind, time and folder, for the ``folders`` folders with the most files."""
        return browsing.facets(self.reading, folders)

    def sample(self, count: int) -> Vectors:
        """Return the vectors of at most ``count`` items, by id: those whose ids have the smallest hashes."""
        state = self.tables.ledger.state()
        if sampled.few_to_try(state, count):
            return vectors_of(sampled.tried(self.reading, state, count), self.dimensions)
        return sampled.chosen(self.all_vectors(), count, self.dimensions)

    def settle(self, *, progress: ProgressReporter | None = None) -> None:
        """Do nothing, except check that the collection is open for writing: Milvus maintains its indexes itself."""
        self._writing()

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> MilvusNextGeneration:
        """Return the next generation, to be filled while this one serves: see :class:`MilvusNextGeneration`."""
        from vse.index.milvus.next_generation import next_generation

        return next_generation(self, self._writing(), model, model_source, check_dimensions(dimensions))

    def unfinished(self) -> CollectionInfo | None:
        """Return the counts of an upgrade that is running or was interrupted; None when there is none."""
        state = unfinished_state(self.tables.connection, self.tables.generation + 1)
        return None if state is None else state.info(self.where)

    def set_model_source(self, model_source: str) -> None:
        """Record a new location of the model."""
        self._writing().amend(lambda now: replace(now, model_source=model_source))

    def settings(self) -> dict[str, Any]:
        """Return what :meth:`set_settings` recorded."""
        return dict(self.tables.ledger.state().settings)

    def set_settings(self, settings: Mapping[str, Any]) -> None:
        """Record settings as a JSON object; the next generation keeps them."""
        self._writing().amend(lambda now: replace(now, settings=dict(settings)))

    def close(self) -> None:
        """Close the connection and release the lock. Idempotent."""
        self.tables.connection.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _writing(self) -> Writer:
        if self._writer is None:
            raise VSEError(f"{self.where} is open for reading only: open it with write=True")
        return self._writer

    def _by_place(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        entries = tuple(entries)
        for entry in entries:
            check_entry(entry, self.dimensions)
        return changing.by_place(entries)

    def _checked(self, vector: Vectors, k: int) -> Vectors:
        check_vectors(vector, (self.dimensions,), "query")
        if k < 1:
            raise InputError(f"k {k}: expected at least 1 result")
        return np.ascontiguousarray(vector)

    def _best(self, search: Search, *, exact: bool) -> tuple[Found, bool]:
        return self.reading.steady(lambda state: best(self.tables, state, search, exact=exact))

    def _block(self, rows: list[Row]) -> tuple[NDArray[np.int64], Vectors]:
        return np.array([row["item"] for row in rows], np.int64), vectors_of(rows, self.dimensions)

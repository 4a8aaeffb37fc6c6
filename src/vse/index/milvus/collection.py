"""The collection in Milvus, and the generation that an upgrade fills; the package docstring describes both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from vse._util.locks import FolderLock
from vse.errors import InputError, VSEError
from vse.index.checks import check_captions, check_dimensions, check_entry, check_vectors, model_mismatch_error
from vse.index.filters import Filter
from vse.index.milvus import connection as lite
from vse.index.milvus import previous, reading
from vse.index.milvus.connection import Connection, MilvusAddress, parse_address, read_options
from vse.index.milvus.reading import Search, best, condition, rows_of
from vse.index.milvus.schema import (
    ITEM_COLUMNS,
    Row,
    file_of,
    from_stored,
    item_of,
    literal,
    vectors_of,
)
from vse.index.milvus.tables import (
    About,
    Tables,
    create_tables,
    drop_leftovers,
    expect_ours,
    full_options,
    serving_generation,
    serving_tables,
)
from vse.index.milvus.writing import CHANGES, ROOT, Writer, by_place, read_settings, setting_rows
from vse.index.storage import place_key
from vse.index.types import CollectionInfo, Entry, Facets, Hits, Item, MediaFile, Vectors
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.index.milvus.next_generation import MilvusNextGeneration

PAGE = 512
SOURCE = "model_source"


def opened(
    address: MilvusAddress, prepare: Callable[[Connection], Tables], *, new: bool, write: bool
) -> tuple[Tables, FolderLock | None]:
    """Run ``prepare`` on a new connection; return its tables and, for writing to a folder, the lock."""
    lock = None
    if address.folder is not None:
        lite.check_folder(address.folder, new=new)
        lock = locked(address.folder) if write else None
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


def locked(folder: Path) -> FolderLock:
    """Lock a folder of Milvus Lite for writing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FolderLock(folder)
    except OSError as error:
        raise VSEError(f"{folder} cannot be used ({error.strerror}): choose a writable folder") from error


def convert_collection(path: str | os.PathLike[str]) -> int | None:
    """Convert a collection that an earlier version wrote; return the number of its files, None if it needs none.

    Items keep their ids. The next call resumes an interrupted conversion.
    """
    address = parse_address(os.fspath(path))
    if address.folder is None:
        return previous.convert(address)
    if not lite.is_used(address.folder):
        return None
    lock = locked(address.folder)
    try:
        return previous.convert(address)
    finally:
        lock.release()


class MilvusCollection(reading.NoWords):
    """A :class:`~vse.index.types.Collection` in Milvus; see :meth:`create` and :meth:`open`.

    Thread-safe. Queries, like stored vectors, are unit vectors.
    """

    def __init__(self, tables: Tables, lock: FolderLock | None, *, write: bool, old: Tables | None = None) -> None:
        self.tables, self.about, self.where = tables, tables.about, tables.connection.where
        self.dimensions = tables.about.dimensions
        self._lock = lock
        self._writer = Writer(tables, old) if write else None
        self._settings: dict[str, Any] | None = None
        self._counted: tuple[dict[str, str], CollectionInfo] | None = None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str,
        model_source: str,
        dimensions: int,
        options: Mapping[str, str] | None = None,
    ) -> MilvusCollection:
        """Create an empty collection and open it for writing; of several processes at once all open the same one.

        Args:
            path: The address, see :func:`parse_address`.
            model: Fingerprint of the model.
            model_source: Where the model was loaded from.
            dimensions: Length of its vectors.
            options: Of Milvus, see :func:`~vse.index.milvus.connection.read_options`; default: those of the address.

        Raises:
            InputError: The address is invalid, or already taken.
            VSEError: Milvus cannot be reached, or another process has locked the folder.
        """
        address = parse_address(os.fspath(path))
        check_dimensions(dimensions)
        given = read_options({**dict(address.options), **(options or {})})

        def make(connection: Connection) -> Tables:
            if serving_generation(connection) is not None or previous.exists(connection):
                raise InputError(f"{address} is already a collection: open it, or choose another name")
            names = [name for name in connection.names() if name.startswith(f"{connection.name}_g1")]
            expect_ours(connection, [address.name, *names], fix="choose another name")
            if address.folder is not None:  # which is locked; on a server they may be of another creator
                drop_leftovers(connection)
            about = About(model, dimensions, full_options(connection, given))
            tables = create_tables(connection, about, {SOURCE: model_source})
            if (tables.about.model, tables.about.dimensions) != (model, dimensions):
                raise model_mismatch_error(str(address), tables.about.model, tables.values().get(SOURCE, ""), model)
            return tables

        return cls(*opened(address, make, new=True, write=True), write=True)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write: bool = False, model: str | None = None) -> MilvusCollection:
        """Open the collection at ``path``.

        Args:
            path: The address, see :func:`parse_address`.
            write: Open for writing, which drops older generations. Milvus Lite has one writer, a server any number.
            model: Fingerprint that the collection's model must have; None accepts any.

        Raises:
            InputError: There is no collection at ``path``, its model is another one, or an earlier version wrote it.
            VSEError: Milvus cannot be reached, or the folder is locked.
        """
        address = parse_address(os.fspath(path))

        def expect(connection: Connection) -> Tables:
            tables = serving_tables(connection)
            if tables is None:
                previous.refuse(connection)
                raise InputError(f"{address} is not a collection: 'vse index' creates one")
            if model is not None and model != tables.about.model:
                source = tables.values().get(SOURCE, "")
                raise model_mismatch_error(str(address), tables.about.model, source, model)
            return tables

        collection = cls(*opened(address, expect, new=False, write=write), write=write)
        try:
            if write:
                with suppress(VSEError):  # the next writer retries
                    drop_leftovers(collection.tables.connection, collection.tables)
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
            return serving_generation(connection) is not None or previous.exists(connection)

    @property
    def superseded(self) -> bool:
        """Whether an upgrade switched to a newer generation: open the collection again to use it."""
        return not self.tables.serves()

    def info(self) -> CollectionInfo:
        """Return current counts and model; they are counted again whenever a writer recorded a change."""
        values = self.tables.values()
        if self._counted is None or self._counted[0] != values:
            roots = {from_stored(value) for key, value in values.items() if key.startswith(ROOT)}
            files = {root: self.tables.count("items", f"position == 0 and root == {literal(root)}") for root in roots}
            files = {root: files[root] for root in sorted(roots) if files[root]}
            info = CollectionInfo(
                where=self.where,
                backend="milvus",
                model=self.about.model,
                model_source=values.get(SOURCE, ""),
                dimensions=self.dimensions,
                generation=self.tables.generation,
                files=sum(files.values()),
                items=self.tables.count("items"),
                captions=self.tables.count("captions"),
                roots=tuple(files),
                changes=sum(int(value.split()[0]) for key, value in values.items() if key.startswith(CHANGES)),
                root_files=tuple(files.values()),
            )
            self._counted = values, info
        return self._counted[1]

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files, replacing those at the same place. If Milvus fails, some may have been added: call it again."""
        writer = self._writing()
        entries = tuple(entries)
        for entry in entries:
            check_entry(entry, self.dimensions)
        if entries:
            writer.add(by_place(entries))

    def remove(self, files: Iterable[tuple[str, str]]) -> int:
        """Remove files and purge their vectors; return how many there were."""
        return self._writing().remove([place_key(place) for place in files])

    def move(
        self, moves: Sequence[tuple[tuple[str, str], MediaFile]], *, captions: Mapping[str, Vectors] | None = None
    ) -> None:
        """Move files, all at once, so that they can swap places; a file at a new place is removed."""
        known = check_captions(captions, self.dimensions)
        self._writing().move(tuple(moves), known)

    def search(self, vector: Vectors, k: int, *, where: Filter | None = None, exact: bool | None = None) -> Hits:
        """Return the best items, scored exactly even where an approximate index proposed them.

        The best 5 are the first 5 of the best 15: always when the search is exact, otherwise for ``k`` up to 256.
        """
        search = Search("items", self._checked(vector, k), k, condition(where))
        (rows, scores), compared = best(self.tables, search, exact=bool(exact))
        return Hits(np.array([row["item"] for row in rows], np.int64), scores, compared)

    def search_captions(self, vector: Vectors, k: int) -> list[tuple[str, int, float]]:
        """Return the ``k`` best captions that have vectors, as (caption, id of its first item, score)."""
        return reading.best_captions(self.tables, self._checked(vector, k), k)

    def items(self, ids: Sequence[int]) -> list[Item]:
        """Return the items with these ids, in this order; a missing id raises InputError."""
        return [item_of(row) for row in rows_of(self.tables, ids, ITEM_COLUMNS)]

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """Return the vectors ``(n, D)`` of these items, in this order; a missing id raises InputError."""
        return vectors_of(rows_of(self.tables, ids, ("vector",)), self.dimensions)

    def all_vectors(self, block: int = 8192) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Iterate over all ids with their vectors, ascending, in blocks; concurrent changes may or may not be seen."""
        if block < 1:
            raise InputError(f"block {block}: expected at least 1 vector")
        waiting: list[Row] = []
        for rows in self.tables.windows("items", None, ("vector",)):
            waiting += rows
            while len(waiting) > block:
                some, waiting = waiting[:block], waiting[block:]
                yield self._block(some)
        if waiting:
            yield self._block(waiting)

    def files(self, root: str | None = None) -> Iterator[MediaFile]:
        """Iterate over all files by root and path; concurrent changes may or may not be seen.

        Milvus does not sort: the names of all files are held in memory. Where a killed or concurrent writer left two
        versions of a file the later one counts, and a writer deletes the other.
        """
        first = "position == 0" if root is None else f"position == 0 and root == {literal(root)}"
        latest: dict[tuple[str, str], tuple[int, int]] = {}
        twice: set[str] = set()
        for rows in self.tables.windows("items", first, ("root", "path", "written")):
            for row in rows:
                place = from_stored(row["root"]), from_stored(row["path"])
                if place in latest:
                    twice.add(place_key(place))
                latest[place] = max(latest.get(place, (0, 0)), (int(row["written"]), int(row["item"])))
        if twice and self._writer is not None:
            self._writer.keep_latest(sorted(twice))
        places = sorted(latest)
        for start in range(0, len(places), PAGE):
            page = places[start : start + PAGE]
            ids = [latest[place][1] for place in page]
            known = {int(row["item"]): row for row in self.tables.query_in("items", "item", ids, ITEM_COLUMNS)}
            for place, item in zip(page, ids, strict=True):
                if item in known:
                    file = file_of(known[item])
                    if (file.root, file.path) == place:  # otherwise it was moved meanwhile
                        yield file

    def recent(self, k: int, *, offset: int = 0, where: Filter | None = None) -> list[Item]:
        """Return ``k`` files that pass, newest first, after skipping ``offset``; each as its first item."""
        return reading.recent(self.tables, k, offset, where)

    def facets(self, folders: int = 200) -> Facets:
        """Return current counts by kind, time and folder, for the ``folders`` folders with the most files."""
        return reading.facets(self.tables, folders)

    def sample(self, count: int) -> Vectors:
        """Return the vectors of at most ``count`` items, by id: those whose ids have the smallest hashes."""
        ids = reading.sample(self.tables, count)
        rows = self.tables.query_in("items", "item", ids, ("vector",))
        return vectors_of(sorted(rows, key=lambda row: int(row["item"])), self.dimensions)

    def settle(self, *, progress: ProgressReporter | None = None) -> None:
        """Do nothing, except check that the collection is open for writing: Milvus maintains its indexes itself."""
        self._writing()

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> MilvusNextGeneration:
        """Return the next generation, to be filled while this one serves: see :class:`MilvusNextGeneration`."""
        from vse.index.milvus.next_generation import next_generation

        self._writing().check_serves()
        return next_generation(self, About(model, check_dimensions(dimensions), self.about.options), model_source)

    def unfinished(self) -> CollectionInfo | None:
        """Return the counts of an upgrade that is running or was interrupted; None when there is none."""
        tables = Tables(self.tables.connection, self.tables.generation + 1)
        return MilvusCollection(tables, None, write=False).info() if tables.load() else None

    def set_model_source(self, model_source: str) -> None:
        """Record a new location of the model."""
        self._writing()
        self.tables.put({SOURCE: model_source})

    def settings(self) -> dict[str, Any]:
        """Return what :meth:`set_settings` recorded."""
        self._settings = read_settings(self.tables.values())
        return dict(self._settings)

    def set_settings(self, settings: Mapping[str, Any]) -> None:
        """Record settings as a JSON object; the next generation keeps them.

        Folders whose rules differ from what :meth:`settings` last returned are written, one by one: those that another
        writer recorded meanwhile stay.
        """
        self._writing()
        values = self.tables.values()
        known = read_settings(values) if self._settings is None else self._settings
        rows = setting_rows(values, known, settings)
        if rows:
            self.tables.put(rows)
        self._settings = dict(settings)

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

    def _checked(self, vector: Vectors, k: int) -> Vectors:
        check_vectors(vector, (self.dimensions,), "query")
        if k < 1:
            raise InputError(f"k {k}: expected at least 1 result")
        return np.ascontiguousarray(vector)

    def _block(self, rows: list[Row]) -> tuple[NDArray[np.int64], Vectors]:
        return np.array([row["item"] for row in rows], np.int64), vectors_of(rows, self.dimensions)

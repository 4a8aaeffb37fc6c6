"""The collection in PostgreSQL, and the generation that an upgrade fills; the package docstring describes both."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from vse.errors import InputError, VSEError
from vse.index.checks import check_captions, check_dimensions, check_entry, model_mismatch_error
from vse.index.postgres.connection import LOCK_SECONDS, Connections, parse_address
from vse.index.postgres.reading import Reader
from vse.index.postgres.schema import Tables, about_generation, check_width, make_schema, serving
from vse.index.postgres.writing import Changes, drop_older
from vse.index.storage import to_bytes
from vse.index.types import CollectionInfo, Entry, MediaFile, Vectors
from vse.index.words import WORDS_VERSION
from vse.progress import ProgressReporter

Value = TypeVar("Value")
INDEX_FROM = 10_000
"""Items from which an approximate index is built, where one was asked for: fewer are compared as fast without."""


class WriteSession:
    """The connection that holds the writer's lock; one thread at a time writes with it."""

    def __init__(self, pool: Connections) -> None:
        self.connection = pool.lock()
        self.guard = threading.RLock()


class PostgresCollection(Reader):
    """A :class:`~vse.index.types.Collection` in PostgreSQL; see :meth:`create` and :meth:`open`.

    Thread-safe. Queries, like stored vectors, are unit vectors.
    """

    def __init__(
        self, pool: Connections, found: tuple[int, UUID, str | None], generation: int, writing: WriteSession | None
    ) -> None:
        self._serving, self._identity, index = found
        tables = Tables(pool, generation)
        with pool.using() as connection:
            about = about_generation(connection, generation)
        if about is None:
            raise pool.outdated_error()
        super().__init__(pool, tables, about[2], index=index is not None)
        self.where, self.model, self._found = pool.where, about[0], found
        self._writing = writing
        self._counted: tuple[object, CollectionInfo] | None = None

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], *, model: str, model_source: str, dimensions: int
    ) -> PostgresCollection:
        """Create an empty collection and open it for writing.

        Args:
            path: The address, see :func:`~vse.index.postgres.connection.parse_address`.
            model: Fingerprint of the model.
            model_source: Where the model was loaded from.
            dimensions: Length of its vectors.

        Raises:
            InputError: The address is invalid, or already taken.
            VSEError: PostgreSQL cannot be reached, lacks pgvector, or another process is writing there.
        """
        address = parse_address(os.fspath(path))
        check_width(check_dimensions(dimensions), address.index)

        def make(pool: Connections) -> PostgresCollection:
            writing = WriteSession(pool)
            try:
                with pool.told(), writing.connection.transaction():
                    if serving(writing.connection, pool) is not None:
                        raise InputError(f"{address} is already a collection: open it, or choose another name")
                    make_schema(writing.connection, pool, address.index)
                    Tables(pool, 1).make(writing.connection, model, model_source, dimensions)
                    found = _expected(writing.connection, pool)
                return cls(pool, found, 1, writing)
            except BaseException:
                writing.connection.close()
                raise

        return _with_pool(Connections(address), make)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write: bool = False, model: str | None = None) -> PostgresCollection:
        """Open the serving generation of the collection at ``path``.

        Args:
            path: The address, see :func:`~vse.index.postgres.connection.parse_address`.
            write: Open for writing, which takes the lock and drops older generations.
            model: Fingerprint that the collection's model must have; None accepts any.

        Raises:
            InputError: There is no collection at ``path``, or its model is another one.
            VSEError: PostgreSQL cannot be reached, or another process is writing to the collection.
        """

        def reopen(pool: Connections) -> PostgresCollection:
            with pool.using() as connection:
                found = _expected(connection, pool)
            if not write:
                return cls(pool, found, found[0], None)
            writing = WriteSession(pool)
            try:
                with pool.told():
                    found = _expected(writing.connection, pool)  # cannot change while the lock is held
                    drop_older(pool, writing.connection, found[0], LOCK_SECONDS)
                    about = about_generation(writing.connection, found[0])
                    if about is not None and about[3] != WORDS_VERSION:
                        with writing.connection.transaction():
                            Changes(writing.connection, Tables(pool, found[0])).split_words_again()
                return cls(pool, found, found[0], writing)
            except BaseException:
                writing.connection.close()
                raise

        collection = _with_pool(Connections(parse_address(os.fspath(path))), reopen)
        if model is not None and model != collection.model:
            source = collection.info().model_source
            collection.close()
            raise model_mismatch_error(collection.where, collection.model, source, model)
        return collection

    @classmethod
    def exists(cls, path: str | os.PathLike[str]) -> bool:
        """Return whether there is a collection at ``path``, even one that this version cannot open."""
        pool = Connections(parse_address(os.fspath(path)))
        try:
            with pool.using() as connection:
                return serving(connection, pool) is not None
        except InputError:
            return True
        finally:
            pool.close()

    @property
    def superseded(self) -> bool:
        """Whether an upgrade switched to a newer generation, or the collection was dropped and created again."""
        with self.pool.using() as connection:
            return serving(connection, self.pool) != self._found

    def info(self) -> CollectionInfo:
        """Return current counts and model; counted again only when something has changed."""
        with self.pool.using(snapshot=True) as connection:
            about = about_generation(connection, self.tables.generation)
            if about is None:
                raise self.pool.outdated_error()
            if self._counted is None or self._counted[0] != about:
                rows = connection.execute(
                    self.tables.sql("SELECT root, count(*) FROM {files} GROUP BY root ORDER BY root")
                )
                roots = {root.decode("utf-8", "surrogateescape"): int(files) for root, files in rows}
                items, captions = connection.execute(
                    self.tables.sql("SELECT (SELECT count(*) FROM {items}), (SELECT count(*) FROM {captions})")
                ).fetchone()
                info = CollectionInfo(
                    where=self.where,
                    backend="postgresql",
                    model=about[0],
                    model_source=about[1],
                    dimensions=self.dimensions,
                    generation=self.tables.generation,
                    files=sum(roots.values()),
                    items=items,
                    captions=captions,
                    roots=tuple(roots),
                    changes=about[4],
                    root_files=tuple(roots.values()),
                )
                self._counted = about, info
            return self._counted[1]

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files in one transaction; one invalid entry raises InputError and none is added."""
        entries = tuple(entries)
        for entry in entries:
            check_entry(entry, self.dimensions)
        self._change(lambda changes: changes.add(entries))

    def remove(self, files: Iterable[tuple[str, str]]) -> int:
        """Remove files by (root, path); return how many there were."""
        places = list(files)
        return self._change(lambda changes: changes.remove(places))

    def move(
        self, moves: Sequence[tuple[tuple[str, str], MediaFile]], *, captions: Mapping[str, Vectors] | None = None
    ) -> None:
        """Move files, all at once, so that they can swap places; a file at a new place is removed."""
        known = check_captions(captions, self.dimensions)
        self._change(lambda changes: changes.move(tuple(moves), known))

    def settle(self, *, progress: ProgressReporter | None = None) -> None:
        """Build the approximate index, if the address asked for one and there are enough items."""
        with self._changing() as connection:
            if self._index and self.info().items >= INDEX_FROM:
                self.tables.make_index(connection)

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> PostgresNextGeneration:
        """Return the next generation, to be filled while this one serves: see :class:`PostgresNextGeneration`."""
        check_width(check_dimensions(dimensions), self._found[2])
        tables = Tables(self.pool, self.tables.generation + 1)
        with self._changing() as connection:
            known = about_generation(connection, tables.generation)
            if known is not None and (known[0], known[2]) == (model, dimensions):
                connection.execute(
                    "UPDATE generations SET model_source = %s WHERE generation = %s",
                    (to_bytes(model_source), tables.generation),
                )
                Changes(connection, tables, self.tables).align()
            else:
                tables.drop(connection)
                tables.make(connection, model, model_source, dimensions)
        return _with_pool(Connections(self.pool.address), lambda pool: PostgresNextGeneration(pool, self))

    def unfinished(self) -> CollectionInfo | None:
        """Return the counts of an upgrade that is running or was interrupted; None when there is none."""
        with self.pool.using() as connection:
            if about_generation(connection, self.tables.generation + 1) is None:
                return None
        return PostgresCollection(self.pool, self._found, self.tables.generation + 1, None).info()

    def set_model_source(self, model_source: str) -> None:
        """Record a new location of the model."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE generations SET model_source = %s WHERE generation = %s",
                (to_bytes(model_source), self.tables.generation),
            )

    def settings(self) -> dict[str, Any]:
        """Return what :meth:`set_settings` recorded."""
        with self.pool.using() as connection:
            return dict(connection.execute("SELECT settings FROM meta").fetchone()[0])

    def set_settings(self, settings: Mapping[str, Any]) -> None:
        """Record settings as a JSON object; the next generation keeps them."""
        text = json.dumps(dict(settings), allow_nan=False)
        with self._changing() as connection:
            connection.execute("UPDATE meta SET settings = %s", (text,))

    def close(self) -> None:
        """Close the connections, which releases the lock; a writer first does what :meth:`settle` does. Idempotent."""
        self._close(whole=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(whole=kind is None)

    def _close(self, *, whole: bool) -> None:
        if whole and self._index and self._writing is not None and not self.pool.closed:
            with suppress(VSEError):
                self.settle()
        self.pool.close()
        if self._writing is not None:
            with self._writing.guard:
                self._writing.connection.close()

    def _change(self, change: Callable[[Changes], Value]) -> Value:
        with self._changing() as connection:
            return change(Changes(connection, self.tables))

    @contextmanager
    def _changing(self) -> Iterator[Any]:
        """Yield the connection that holds the lock, in a transaction; the generation that it expects serves."""
        self.pool.check_open()
        if self._writing is None:
            raise VSEError(f"{self.where} is open for reading only: open it with write=True")
        with self._writing.guard, self.pool.told(), self._writing.connection.transaction():
            if serving(self._writing.connection, self.pool) != self._found:
                raise self.pool.outdated_error()
            yield self._writing.connection


class PostgresNextGeneration(PostgresCollection):
    """A :class:`~vse.index.types.NextGeneration` in PostgreSQL; see :meth:`PostgresCollection.new_generation`.

    ::

        with collection.new_generation(model=..., model_source=..., dimensions=...) as new:
            for ...: new.add(...)
            new.commit()

    Closing without :meth:`commit`, or a crash, keeps what was added: the next call for the same model and dimensions
    resumes it, a call for another model removes it, and so does :meth:`discard`. The old collection has to stay open,
    because changes go through the connection that holds its lock, and rejects changes after the switch.
    """

    def __init__(self, pool: Connections, old: PostgresCollection) -> None:
        super().__init__(pool, old._found, old.tables.generation + 1, old._writing)
        self._old = old.tables

    @property
    def superseded(self) -> bool:
        """Always False: nothing replaces a generation before it serves."""
        return False

    def commit(self, *, progress: ProgressReporter | None = None) -> None:
        """Make this generation serve, atomically, and close it; open the collection again to use it."""
        self.settle()
        with self._changing() as connection:
            connection.execute("UPDATE meta SET generation = %s", (self.tables.generation,))
        self._close(whole=False)

    def discard(self) -> None:
        """Drop this generation and close it; the old one keeps serving."""
        with self._changing() as connection:
            self.tables.drop(connection)
        self._close(whole=False)

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> PostgresNextGeneration:
        """Raise VSEError: only one generation is built at a time."""
        raise VSEError(f"generation {self.tables.generation} of {self.where} is not serving yet: commit it first")

    def _close(self, *, whole: bool) -> None:
        self.pool.close()  # the connection with the lock is that of the old collection

    def _change(self, change: Callable[[Changes], Value]) -> Value:
        with self._changing() as connection:
            return change(Changes(connection, self.tables, self._old))


def _expected(connection: Any, pool: Connections) -> tuple[int, UUID, str | None]:
    found = serving(connection, pool)
    if found is None:
        raise InputError(f"{pool.where} is not a collection: 'vse index' creates one")
    return found


def _with_pool(pool: Connections, use: Callable[[Connections], Value]) -> Value:
    """Return ``use(pool)``; close the pool if it fails."""
    try:
        return use(pool)
    except BaseException:
        pool.close()
        raise

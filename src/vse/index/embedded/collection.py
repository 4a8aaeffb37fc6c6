"""The collection in a folder: see the package for the layout and what holds when a process dies."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, VSEError
from vse.index.collection import CollectionInfo, Entry, Hits, Item, Vectors
from vse.index.embedded import changing, database
from vse.index.embedded.caches import Caches
from vse.index.embedded.checks import check_entry, check_vectors
from vse.index.embedded.database import Ids, Meta
from vse.index.embedded.layout import (
    CACHE,
    generation_folder,
    is_collection,
    read_generation,
    remove_generations,
    write_generation,
)
from vse.index.embedded.schema import LANES, Lane, one_line, transaction
from vse.index.embedded.searcher import Searcher, Snapshot
from vse.index.embedded.session import Session, make_session, open_session
from vse.index.embedded.verify_report import VerifyReport
from vse.index.filters import Filter
from vse.index.media_file import MediaFile
from vse.locking import FolderLock

if TYPE_CHECKING:
    from vse.index.embedded.new_generation import NewGeneration

REMEMBERED_FILTERS = 16


class EmbeddedCollection:
    """A :class:`~vse.index.collection.Collection` in one folder, made by :meth:`create` and :meth:`open`.

    May be used from several threads. Queries are unit vectors, as those that are added. A filter that is asked for
    again is answered from memory until something changes.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.folder, self.generation = session, session.folder, session.generation
        self.meta: Meta = session.meta
        self.caches = Caches(generation_folder(self.folder, self.generation) / CACHE, self.meta.dimensions)
        self._searchers = {lane: Searcher(self.caches.lanes[lane]) for lane in LANES}
        self._allowed: dict[Filter, tuple[int, Ids]] = {}

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], *, model: str, model_source: str, dimensions: int
    ) -> EmbeddedCollection:
        """A new, empty collection, open for writing. ``path`` may be an empty folder."""
        folder = Path(path)
        if dimensions < 1:
            raise InputError(f"dimensions {dimensions}: expected 1 at least, as many as the model's vectors have")
        if is_collection(folder):
            raise InputError(f"{folder} is a collection already: open it, or choose another folder")
        with one_line(folder, fix="choose a folder that may be written"):
            folder.mkdir(parents=True, exist_ok=True)
            ours = (".lock", ".collection", "generation-")  # left by a process that was killed before it had made one
            strangers = [path.name for path in folder.iterdir() if not path.name.startswith(ours)]
            if strangers:
                raise InputError(f"{folder} holds {strangers[0]!r}: expected an empty or new folder for a collection")
            lock = FolderLock(folder)
            try:
                remove_generations(folder, keep=None)
                session = make_session(folder, 1, Meta(model, model_source, dimensions), {}, lock)
                write_generation(folder, 1)
                return EmbeddedCollection(session)
            except BaseException:
                lock.release()
                raise

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
            raise InputError(
                f"{self.folder} holds vectors of model {self.meta.model} ({self.meta.model_source}), not of {model}: "
                "use that model, or index anew with 'vse index FOLDER --into ANOTHER.vse --model MODEL'"
            )

    @property
    def superseded(self) -> bool:
        """Whether an upgrade has switched to a newer generation: open the collection again to use it."""
        return read_generation(self.folder) != self.generation

    def info(self) -> CollectionInfo:
        """Counts and origin, as of now."""
        with self.session.reading() as connection:
            files, items, captions = database.counts(connection)
            roots = database.roots(connection)
        meta = self.meta
        return CollectionInfo(
            str(self.folder), "embedded", meta.model, meta.model_source, meta.dimensions, self.generation,
            files, items, captions, roots,
        )  # fmt: skip

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
        ``approximate.MOST`` when it is not.
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

    def files(self, root: str | None = None) -> Iterator[MediaFile]:
        """Every file, by root and path; changes made meanwhile are seen or not."""
        after: tuple[str, str] | None = None
        while True:
            with self.session.reading() as connection:
                page = database.page_of_files(connection, root, after)
            if not page:
                return
            after = page[-1].root, page[-1].path
            yield from page

    def verify(self) -> VerifyReport:
        """Read everything and compare it with its checksums; problems are listed, not raised."""
        from vse.index.embedded.verify import verify_generation

        with self.session.using() as connection:
            return verify_generation(str(self.folder), connection, self.meta.dimensions, self.caches)

    def rebuild(self) -> None:
        """Make the cache anew, with an approximate index where the size asks for one."""
        with self._changing() as connection:
            self.caches.rebuild(connection)

    def new_generation(self, *, model: str, model_source: str, dimensions: int) -> NewGeneration:
        """The next generation, empty and writable, beside this one: see :class:`NewGeneration`."""
        from vse.index.embedded.new_generation import NewGeneration

        with self._changing():
            return NewGeneration(self, Meta(model, model_source, dimensions))

    def close(self) -> None:
        """Release what is held; a writer brings the cache up to date first. Harmless when closed already."""
        connection = self.session.end()
        if connection is None:
            return
        try:
            if self.session.writable:
                self._settle(connection)
        finally:
            self.session.release(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settle(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error, OSError):  # everything is committed; the cache can be made at any time
            self.caches.follow(connection, whole=True)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

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

    def _prepared(self, lane: Lane, vector: Vectors, k: int, where: Filter | None) -> tuple[Snapshot, Ids | None]:
        check_vectors(vector, (self.meta.dimensions,), "query")
        if k < 1:
            raise InputError(f"k {k}: expected 1 result at least")
        with self.session.using() as connection:
            snapshot = self._searchers[lane].current(connection)
            return snapshot, None if where is None or where.empty else self._ids_allowed(connection, where, snapshot)

    def _ids_allowed(self, connection: sqlite3.Connection, where: Filter, snapshot: Snapshot) -> Ids:
        changes, ids = self._allowed.get(where, (-1, None))
        if ids is None or changes != snapshot.changes:
            ids = database.allowed_items(connection, where)
            while len(self._allowed) >= REMEMBERED_FILTERS:
                del self._allowed[next(iter(self._allowed))]
            self._allowed[where] = snapshot.changes, ids
        return ids

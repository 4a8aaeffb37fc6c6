"""The collection in Milvus: see the package for what is stored and what holds when a process dies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, VSEError
from vse.index.collection import CollectionInfo, Entry, Hits, Item, Vectors
from vse.index.embedded.checks import check_entry, check_vectors
from vse.index.filters import Filter
from vse.index.media_file import MediaFile
from vse.index.milvus import changing
from vse.index.milvus.address import parse_address
from vse.index.milvus.committing import Writer
from vse.index.milvus.connection import Connection
from vse.index.milvus.filtering import condition
from vse.index.milvus.opening import opened
from vse.index.milvus.rows import Row, file_of, item_of, vectors_of
from vse.index.milvus.schema import ITEM_COLUMNS
from vse.index.milvus.searching import Search, best, next_window
from vse.index.milvus.state import Index, State
from vse.index.milvus.texts import from_stored, literal
from vse.locking import FolderLock

T = TypeVar("T")
TRIES = 50
"""How often something is read again because a change came between."""
PAGE = 512


class MilvusCollection:
    """A :class:`~vse.index.collection.Collection` in Milvus, made by :meth:`create` and :meth:`open`.

    May be used from several threads. Queries are unit vectors, as those that are added.
    """

    def __init__(self, connection: Connection, lock: FolderLock | None, *, write: bool) -> None:
        self.where = connection.where
        self._connection, self._lock = connection, lock
        try:
            self._writer = Writer(connection) if write else None
            self.dimensions = connection.state().dimensions
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
        """A new, empty collection, open for writing.

        ``index`` is ``"flat"``, which compares with every vector, or ``"hnsw"``, which is approximate; None means
        flat for Milvus Lite and hnsw for a server.
        """
        address = parse_address(os.fspath(path))
        if dimensions < 1:
            raise InputError(f"dimensions {dimensions}: expected 1 at least, as many as the model's vectors have")
        index = index or ("hnsw" if address.folder is None else "flat")

        def make(connection: Connection) -> None:
            if connection.exists():
                raise InputError(f"{address} is a collection already: open it, or choose another name")
            connection.make(dimensions, index)
            connection.publish(State(model, model_source, dimensions, index))

        return cls(*opened(address, make, new=True, write=True), write=True)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write: bool = False, model: str | None = None) -> MilvusCollection:
        """The collection at ``path``; ``model`` is the fingerprint that its vectors have to have."""
        address = parse_address(os.fspath(path))

        def expect(connection: Connection) -> None:
            if not connection.exists():
                raise InputError(f"{address} is no collection: 'vse index' makes one")
            state = connection.state()
            if model is not None and model != state.model:
                raise InputError(
                    f"{address} holds vectors of model {state.model} ({state.model_source}), not of {model}: use that "
                    "model, or index into a new collection"
                )

        return cls(*opened(address, expect, new=False, write=write), write=write)

    def info(self) -> CollectionInfo:
        """Counts and origin, as of now."""
        state = self._connection.state()
        return CollectionInfo(
            self.where, "milvus", state.model, state.model_source, state.dimensions, state.generation,
            state.files, state.items, state.captions, tuple(sorted(state.roots)),
        )  # fmt: skip

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files, all of them or none; of a file that is named twice the last counts."""
        entries = tuple(entries)
        for entry in entries:
            check_entry(entry, self.dimensions)
        self._writing().change(lambda now: changing.adding(self._connection, now, entries))

    def remove(self, files: Iterable[tuple[str, str]]) -> int:
        """Forget files by (root, path), purge their vectors, and return how many there were."""
        places = tuple(files)
        count = 0

        def planned(now: State) -> changing.Change:
            nonlocal count
            change, count = changing.removing(self._connection, now, places)
            return change

        self._writing().change(planned)
        return count

    def move(self, moves: Sequence[tuple[tuple[str, str], MediaFile]]) -> None:
        """Move files, all of them or none and at once, so that they may change places.

        A file that was at a new place is forgotten. Captions that stay the same keep their vectors, others have none.
        """
        moves = tuple(moves)
        self._writing().change(lambda now: changing.moving(self._connection, now, moves))

    def search(self, vector: Vectors, k: int, *, where: Filter | None = None, exact: bool | None = None) -> Hits:
        """The ``k`` best items; what an approximate index proposes is scored exactly as well.

        The best 5 are the first 5 of the best 15: always when the search is exact, and among all ``k`` up to 256 when
        it is not.
        """
        search = Search("items", self._checked(vector, k), k, condition(where))
        (rows, scores), compared = self._steady(lambda state: best(self._connection, state, search, exact=bool(exact)))
        return Hits(np.array([row["item"] for row in rows], np.int64), scores, compared)

    def search_captions(self, vector: Vectors, k: int) -> list[tuple[str, int, float]]:
        """The best captions as (caption, id of its file's first item, score); those without vectors are not found."""
        search = Search("captions", self._checked(vector, k), k, None, ("text", "first"))
        (rows, scores), _ = self._steady(lambda state: best(self._connection, state, search, exact=False))
        return [
            (from_stored(row["text"]), int(row["first"]), score)
            for row, score in zip(rows, scores.tolist(), strict=True)
        ]

    def items(self, ids: Sequence[int]) -> list[Item]:
        """The items with these ids, in this order; one that is gone is an error."""
        return [item_of(row) for row in self._rows(ids, ITEM_COLUMNS)]

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """Their vectors ``(n, D)``, in this order; one that is gone is an error."""
        return vectors_of(self._rows(ids, ("item", "vector")), self.dimensions)

    def all_vectors(self, block: int = 8192) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Every id with its vector, ascending, in blocks; changes made meanwhile are seen or not."""
        if block < 1:
            raise InputError(f"block {block}: expected 1 vector at least")
        waiting: list[Row] = []
        for rows in self._windows(None, ("item", "vector")):
            waiting += rows
            while len(waiting) > block:
                some, waiting = waiting[:block], waiting[block:]
                yield self._block(some)
        if waiting:
            yield self._block(waiting)

    def files(self, root: str | None = None) -> Iterator[MediaFile]:
        """Every file, by root and path; changes made meanwhile are seen or not.

        Milvus does not sort: the names of all files are held in memory.
        """
        first = "position == 0" if root is None else f"position == 0 and root == {literal(root)}"
        places: list[tuple[str, str, int]] = []
        for rows in self._windows(first, ("item", "root", "path")):
            places += [(from_stored(row["root"]), from_stored(row["path"]), int(row["item"])) for row in rows]
        places.sort()
        for start in range(0, len(places), PAGE):
            page = places[start : start + PAGE]
            known = self._known([item for _, _, item in page], ITEM_COLUMNS)
            for at_root, path, item in page:
                if item in known:
                    file = file_of(known[item])
                    if (file.root, file.path) == (at_root, path):  # otherwise it was moved meanwhile
                        yield file

    def close(self) -> None:
        """Release what is held; harmless when closed already."""
        self._connection.close()
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
            raise InputError(f"k {k}: expected 1 result at least")
        return np.ascontiguousarray(vector)

    def _steady(self, read: Callable[[State], T]) -> T:
        """What ``read`` finds in one published state, during which no other was published."""
        state = self._connection.state()
        for _ in range(TRIES):
            found = read(state)
            before, state = state, self._connection.state()
            if state.batch == before.batch:
                return found
        raise VSEError(f"{self.where} changed {TRIES} times while it was read: try again when less is written")

    def _known(self, ids: Sequence[int], columns: Sequence[str]) -> dict[int, Row]:
        if not ids:
            return {}
        rows = self._steady(lambda state: self._connection.query_in("items", "item", ids, state.alive, columns))
        return {int(row["item"]): row for row in rows}

    def _rows(self, ids: Sequence[int], columns: Sequence[str]) -> list[Row]:
        known = self._known([int(each) for each in ids], columns)
        for each in ids:
            if int(each) not in known:
                raise InputError(f"no item has id {each}: it was removed or replaced, search again")
        return [known[int(each)] for each in ids]

    def _windows(self, only: str | None, columns: Sequence[str]) -> Iterator[list[Row]]:
        after = 0
        while window := self._steady(
            lambda state: next_window(self._connection, state, "items", only, columns, after)  # noqa: B023 - called at once
        ):
            rows, after = window
            yield rows

    def _block(self, rows: list[Row]) -> tuple[NDArray[np.int64], Vectors]:
        return np.array([row["item"] for row in rows], np.int64), vectors_of(rows, self.dimensions)

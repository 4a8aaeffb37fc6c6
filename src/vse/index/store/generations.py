"""Filling the next generation while the present one serves."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

from vse.errors import InputError, VSEError
from vse.index.checks import check_entry
from vse.index.store import changes as changing
from vse.index.store.changes import align_ids, held_elsewhere, ids_before, raise_last, reserve_ids, set_meta
from vse.index.store.collection import EmbeddedCollection
from vse.index.store.database import Meta, changes, one_line, read_meta, transaction
from vse.index.store.layout import DATABASE, connect_to_write, generation_folder, remove_generation, write_generation
from vse.index.store.session import Session, make_session
from vse.index.types import Entry
from vse.progress import ProgressReporter


def unfinished_session(folder: Path, generation: int, meta: Meta, progress: ProgressReporter | None) -> Session | None:
    """The generation as far as it was filled with the vectors of this model; its ``model_source`` is the new one.

    None when there is none, when it is of another model, or when it does not match its checksums: it is read as a whole
    before hours of work are built on it.
    """
    file = generation_folder(folder, generation) / DATABASE
    if not file.is_file():
        return None
    try:
        connection = _opened(file, meta, progress)
    except sqlite3.OperationalError:
        raise  # no room or no permission says nothing about what is there
    except sqlite3.DatabaseError:
        return None
    return None if connection is None else Session(folder, generation, connection, None, writable=True)


def _opened(file: Path, meta: Meta, progress: ProgressReporter | None) -> sqlite3.Connection | None:
    connection = connect_to_write(file)
    usable = False
    try:
        usable = _is_usable(connection, meta, progress)
        if usable:
            with transaction(connection, "IMMEDIATE"):
                set_meta(connection, "model_source", meta.model_source)
    finally:
        if not usable:
            connection.close()
    return connection if usable else None


def _is_usable(connection: sqlite3.Connection, meta: Meta, progress: ProgressReporter | None) -> bool:
    from vse.index.store.verify import row_problems

    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return False  # killed before the tables were made, which is one step
    known = read_meta(connection)
    if (known.model, known.dimensions) != (meta.model, meta.dimensions):
        return False
    return not row_problems(connection, meta.dimensions, progress)


class NewGeneration(EmbeddedCollection):
    """A collection for the vectors of another model, made by :meth:`EmbeddedCollection.new_generation`.

    ::

        with collection.new_generation(model=..., model_source=..., dimensions=...) as new:
            for ...: new.add(...)
            new.commit()

    A file that is added with the digest and the moments it has in the old generation keeps the ids of its items;
    other items get ids that were never used. :meth:`commit` lets this generation serve, in one step. Leaving the block
    or closing without it, or dying, keeps what was added: the next call for the same model and dimensions goes on with
    it, one for another model throws it away, and so does :meth:`discard`. The old collection keeps the lock, and takes
    no more changes once the switch is made.
    """

    def __init__(self, old: EmbeddedCollection, meta: Meta, progress: ProgressReporter | None) -> None:
        super().__init__(_session(old, meta, progress))
        self.caches.resting = True
        self._old = old.session
        self._committed = False

    @property
    def superseded(self) -> bool:
        """Never before it serves."""
        return False

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files, all of them or none."""
        entries = tuple(entries)
        for entry in entries:
            check_entry(entry, self.meta.dimensions)
        ids = self._ids_for(entries)

        def change(connection: sqlite3.Connection) -> None:
            for entry in entries:  # all of them before any comes: they may have exchanged their ids
                changing.remove_file(connection, (entry.file.root, entry.file.path))
            for entry, own in zip(entries, ids, strict=True):
                changing.add_entry(connection, entry, own)

        self._change(change, 0)
        for searcher in self._searchers.values():  # ids that were kept may come before those that are known
            searcher.forget()

    def commit(self, *, progress: ProgressReporter | None = None) -> None:
        """Let this generation serve, and close it; open the collection again to use it.

        The cache is made first, while the old generation is searched and changed as always.
        """
        while True:
            with self._old.using(), self.session.using():
                pass  # both are open, and the old one holds the lock
            with self.caches.guard, self.session.using() as connection, self._explained():
                cached = self.caches.rewrite(connection, progress)
                self.caches.index(progress)
            if self._switched(cached):
                break
        self.close()

    def _switched(self, cached: int) -> bool:
        """Let this generation serve, unless another thread has changed it since the cache was made."""
        with self._old.using() as before, self.session.using() as connection, self._explained():
            if changes(connection) != cached:
                return False
            with transaction(connection, "IMMEDIATE"):
                raise_last(connection, changing.last_ids(before))  # the old generation may have given ids meanwhile
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            write_generation(self.folder, self.generation)
            self._committed = True
        return True

    def _explained(self) -> AbstractContextManager[None]:
        return one_line(self.folder, fix="the old generation still serves, free space and try again")

    def discard(self) -> None:
        """Discard what was made, and close; the old generation goes on serving."""
        if self._committed:
            raise VSEError(f"generation {self.generation} of {self.folder} serves already: it cannot be discarded")
        with self._old.using():  # whoever holds the lock by now may be going on with it
            self.close()
            remove_generation(generation_folder(self.folder, self.generation))

    def settle(self, *, progress: ProgressReporter | None = None) -> None:
        """Nothing to do: :meth:`commit` makes the cache, and before it would be outrun by ids that are kept."""

    def rebuild(self, *, progress: ProgressReporter | None = None) -> None:
        """Nothing to do, as for :meth:`settle`."""

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> NewGeneration:
        """An error: one is made at a time."""
        raise VSEError(f"generation {self.generation} of {self.folder} does not serve yet: commit it first")

    def _finish(self, connection: sqlite3.Connection, *, whole: bool) -> None:
        pass  # commit has written the cache, and before nobody needs it

    def _ids_for(self, entries: tuple[Entry, ...]) -> list[list[int]]:
        places = {(entry.file.root, entry.file.path) for entry in entries}
        with self._old.writing() as before, self.session.writing() as connection:
            known = [ids_before(before, entry) for entry in entries]
            known = [None if ids and held_elsewhere(connection, ids, places) else ids for ids in known]
            missing = sum(len(entry.moments) for entry, ids in zip(entries, known, strict=True) if ids is None)
            fresh = iter(reserve_ids(before, missing))
        return [
            list(islice(fresh, len(entry.moments))) if ids is None else ids
            for entry, ids in zip(entries, known, strict=True)
        ]


def _session(old: EmbeddedCollection, meta: Meta, progress: ProgressReporter | None) -> Session:
    """What is left of the last attempt, in line with the old generation as it is now; or new tables."""
    number = old.generation + 1
    with one_line(old.folder):
        session = unfinished_session(old.folder, number, meta, progress)  # reads it all, while the old one is searched
    if session is None:
        return _made(old, number, meta)
    try:
        with old.session.using() as before, session.using() as connection:
            align_ids(connection, before, generation_folder(old.folder, old.generation) / DATABASE)
    except BaseException:
        session.abandon()
        raise
    return session


def _made(old: EmbeddedCollection, number: int, meta: Meta) -> Session:
    place = generation_folder(old.folder, number)
    with old.session.using() as before:
        remove_generation(place)
        if place.exists():
            raise InputError(f"{place} holds what no collection wrote: move it elsewhere, its name is needed")
        return make_session(old.folder, number, meta, changing.last_ids(before), lock=None)

"""Filling the next generation while the current one serves."""

from __future__ import annotations

import json
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
from vse.index.store.database import Meta, changes, one_line, read_meta, settings, transaction
from vse.index.store.layout import (
    DATABASE,
    connect_to_write,
    generation_folder,
    remove_generation,
    write_committed,
    write_generation,
)
from vse.index.store.session import Session, make_session
from vse.index.types import Entry
from vse.progress import ProgressReporter


def unfinished_session(folder: Path, generation: int, meta: Meta, progress: ProgressReporter | None) -> Session | None:
    """Reopen an unfinished generation of the same model, and record its new ``model_source``.

    None when there is none, it belongs to another model, or it fails its checksums: it is read completely before hours
    of work are added to it.
    """
    file = generation_folder(folder, generation) / DATABASE
    if not file.is_file():
        return None
    try:
        connection = _opened(file, meta, progress)
    except sqlite3.OperationalError:
        raise  # a full disk or missing permission says nothing about the data
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
            write_committed(file.parent, changes(connection))  # what was lost of it is encoded again
    finally:
        if not usable:
            connection.close()
    return connection if usable else None


def _is_usable(connection: sqlite3.Connection, meta: Meta, progress: ProgressReporter | None) -> bool:
    from vse.index.store.verify import row_problems

    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return False  # killed before the tables were created, which is one transaction
    known = read_meta(connection)
    if (known.model, known.form) != (meta.model, meta.form):
        return False
    return not row_problems(connection, meta.form, progress)


class NewGeneration(EmbeddedCollection):
    """The next generation, for the vectors of another model; see :meth:`EmbeddedCollection.new_generation`.

    ::

        with collection.new_generation(model=..., model_source=..., dimensions=...) as new:
            for ...: new.add(...)
            new.commit()

    A file added with the digest and moments that it has in the old generation keeps its item ids; other items get ids
    that were never used. :meth:`commit` makes this generation serve, atomically. Closing without it, or a crash, keeps
    what was added: the next call for the same model and dimensions resumes it, a call for another model removes it, and
    so does :meth:`discard`. The old collection keeps the lock, and rejects changes after the switch.
    """

    def __init__(self, old: EmbeddedCollection, meta: Meta, progress: ProgressReporter | None) -> None:
        super().__init__(_session(old, meta, progress))
        self.caches.resting = True
        self._old = old.session
        self._committed = False

    @property
    def superseded(self) -> bool:
        """Always False: nothing replaces a generation before it serves."""
        return False

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files in one transaction.

        Args:
            entries: The files with the vectors of the new model.

        Raises:
            InputError: An entry is invalid; nothing is added.
        """
        entries = tuple(entries)
        for entry in entries:
            check_entry(entry, self.meta.dimensions)
        ids = self._ids_for(entries)

        def change(connection: sqlite3.Connection) -> None:
            for entry in entries:  # remove all before adding any: they may have swapped ids
                changing.remove_file(connection, (entry.file.root, entry.file.path))
            for entry, own in zip(entries, ids, strict=True):
                changing.add_entry(connection, entry, self.meta.form, own)

        self._change(change, 0)
        for searcher in self._searchers.values():  # ids that were kept may be below those already known
            searcher.forget()

    def commit(self, *, progress: ProgressReporter | None = None) -> None:
        """Make this generation serve, and close it; open the collection again to use it.

        The cache is built first, while the old generation is still searched and changed. If another thread adds files
        meanwhile, the cache is rebuilt.

        Args:
            progress: Receives the progress of the cache and index build.

        Raises:
            VSEError: The switch failed; the old generation still serves.
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
        """Make this generation serve; return False if another thread changed it since the cache was built."""
        with self._old.using() as before, self.session.using() as connection, self._explained():
            if changes(connection) != cached:
                return False
            with transaction(connection, "IMMEDIATE"):
                raise_last(connection, changing.last_ids(before))  # the old generation may have assigned ids since
                set_meta(connection, "settings", json.dumps(settings(before)))
                set_meta(connection, "lost_changes", changing.recorded_loss(before))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            write_generation(self.folder, self.generation, self.meta.storage)
            self._committed = True
        return True

    def _explained(self) -> AbstractContextManager[None]:
        return one_line(self.folder, fix="the old generation still serves, free space and try again")

    def discard(self) -> None:
        """Delete this generation and close it; the old one keeps serving.

        Raises:
            VSEError: It already serves.
        """
        if self._committed:
            raise VSEError(f"generation {self.generation} of {self.folder} is already serving: it cannot be discarded")
        with self._old.using():  # without the lock, another process may already be resuming it
            self.close()
            remove_generation(generation_folder(self.folder, self.generation))

    def settle(self, *, progress: ProgressReporter | None = None) -> None:
        """Do nothing: :meth:`commit` builds the cache; an earlier one could not take ids of the old generation."""

    def rebuild(self, *, progress: ProgressReporter | None = None) -> None:
        """Do nothing, as in :meth:`settle`."""

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> NewGeneration:
        """Raise VSEError: only one generation is built at a time."""
        raise VSEError(f"generation {self.generation} of {self.folder} is not serving yet: commit it first")

    def _finish(self, connection: sqlite3.Connection, *, whole: bool) -> None:
        pass  # commit has written the cache; before that nobody needs it

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
    """Resume the last attempt, aligned with the current state of the old generation, or create new tables."""
    number = old.generation + 1
    with one_line(old.folder):
        session = unfinished_session(old.folder, number, meta, progress)  # slow: reads it all while the old one serves
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
            raise InputError(f"{place} holds files of something else: move it elsewhere, its name is needed")
        return make_session(old.folder, number, meta, changing.last_ids(before), lock=None)

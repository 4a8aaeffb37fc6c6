"""Filling the next generation while the present one serves."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence

from vse.errors import VSEError
from vse.index.collection import Entry
from vse.index.embedded import changing
from vse.index.embedded.checks import check_entry
from vse.index.embedded.collection import EmbeddedCollection
from vse.index.embedded.database import Meta
from vse.index.embedded.layout import generation_folder, write_generation
from vse.index.embedded.rows import to_bytes
from vse.index.embedded.schema import one_line
from vse.index.embedded.session import make_session


class NewGeneration(EmbeddedCollection):
    """A collection for the vectors of another model, made by :meth:`EmbeddedCollection.new_generation`.

    ::

        with collection.new_generation(model=..., model_source=..., dimensions=...) as new:
            for ...: new.add(...)
            new.commit()

    A file that is added with the digest and the moments it has in the old generation keeps the ids of its items;
    other items get ids that were never used. :meth:`commit` lets this generation serve, in one step; leaving the block
    or closing without it removes what was made. The old collection keeps the lock, and takes no more
    changes once the switch is made.
    """

    def __init__(self, old: EmbeddedCollection, meta: Meta) -> None:
        number = old.generation + 1
        shutil.rmtree(generation_folder(old.folder, number), ignore_errors=True)
        with old.session.using() as connection:
            super().__init__(make_session(old.folder, number, meta, changing.last_ids(connection), lock=None))
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

        def change(connection: sqlite3.Connection) -> None:
            for entry in entries:
                changing.add_entry(connection, entry, self._ids_before(entry))

        self._change(change, 0)
        for searcher in self._searchers.values():  # ids that were kept may come before those that are known
            searcher.forget()

    def commit(self) -> None:
        """Let this generation serve, and close it; open the collection again to use it."""
        with self._old.using(), self.session.using() as connection:  # the old session holds the lock
            if self._committed:
                raise VSEError(
                    f"generation {self.generation} of {self.folder} serves already: open the collection again"
                )
            with one_line(self.folder, fix="the old generation still serves, free space and try again"):
                self.caches.rebuild(connection)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                write_generation(self.folder, self.generation)
            self._committed = True
        self.close()

    def close(self) -> None:
        """Release what is held; without :meth:`commit` nothing remains."""
        super().close()
        if not self._committed:
            shutil.rmtree(generation_folder(self.folder, self.generation), ignore_errors=True)

    def _settle(self, connection: sqlite3.Connection) -> None:
        pass  # either commit has written the cache, or all of it goes

    def _ids_before(self, entry: Entry) -> list[int] | None:
        file = entry.file
        with self._old.using() as connection:
            rows = connection.execute(
                'SELECT items.id, start, "end" FROM items JOIN files ON files.id = items.file '
                "WHERE root = ? AND path = ? AND digest = ? ORDER BY items.id",
                (to_bytes(file.root), to_bytes(file.path), file.digest),
            ).fetchall()
        same = [row[1:] for row in rows] == [(moment.start, moment.end) for moment in entry.moments]
        return [row[0] for row in rows] if same else None

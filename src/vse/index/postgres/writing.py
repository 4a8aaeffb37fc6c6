"""Change the files of a generation: statements inside the transaction of the caller, who holds the writer's lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from vse.errors import InputError
from vse.index.checks import check_distinct
from vse.index.postgres.connection import Connections
from vse.index.postgres.schema import (
    FILE,
    FILE_COLUMNS,
    FILE_TYPES,
    Tables,
    captions_of,
    file_cells,
    file_key,
    file_of,
    item_cells,
    to_text,
    word_cells,
)
from vse.index.types import Entry, MediaFile, Place, Vectors
from vse.index.words import WORDS_VERSION

BLOCK = 1024
"""Files whose words are written at a time."""


class Changes:
    """Changes one generation through ``connection``; ``old`` is the serving one while this one is being filled."""

    def __init__(self, connection: Any, tables: Tables, old: Tables | None = None) -> None:
        self._connection, self._tables, self._old = connection, tables, old

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files, replacing those at the same places; if a file occurs twice, the last one counts."""
        last = {file_key((entry.file.root, entry.file.path)): entry for entry in entries}
        known = self._known_ids(last)
        gone = self._remove(last)[1]
        fresh = iter(self._next("item_ids", sum(len(e.moments) for key, e in last.items() if key not in known)))
        files, items, captions, words = (list[tuple[Any, ...]]() for _ in range(4))
        for file_id, (key, entry) in zip(self._next("file_ids", len(last)), last.items(), strict=True):
            ids = known.get(key) or [next(fresh) for _ in entry.moments]
            files.append((file_id, ids[0], *file_cells(entry.file)))
            items += item_cells(ids, file_id, entry.moments)
            vectors = [None] * len(entry.file.captions) if entry.caption_vectors is None else entry.caption_vectors
            captions += [(file_id, position, vector) for position, vector in enumerate(vectors)]
            words.append(word_cells(file_id, entry.file))
        self._copy("files", ("id", "first", *FILE_COLUMNS), ("int8", "int8", *FILE_TYPES), files)
        columns = ("id", "file", "starts", "ends", "chance", "vector")
        self._copy("items", columns, ("int8", "int8", "float8", "float8", "int8", self._vector), items)
        self._put_captions(captions)
        self._put_words(words)
        self._count(gone + len(items))

    def remove(self, places: Iterable[Place]) -> int:
        """Remove files; return how many there were."""
        files, items = self._remove({file_key(place) for place in places})
        self._count(items)
        return files

    def move(self, moves: Sequence[tuple[Place, MediaFile]], new_captions: Mapping[str, Vectors]) -> None:
        """Move all files at once, so that they can swap places; a file that was at a new place is removed."""
        check_distinct("moved twice", [place for place, _ in moves])
        check_distinct("the new place of two files", [(file.root, file.path) for _, file in moves])
        keys = {file_key(place): place for place, _ in moves}
        rows = self._execute("SELECT key, id, about FROM {files} WHERE key = ANY(%s::uuid[])", list(keys))
        known = {row[0]: (row[1], captions_of(row[2])) for row in rows}
        for key, place in keys.items():
            if key not in known:
                raise InputError(
                    f"no file {place[0]}/{place[1]} to move: expected one of the collection, add it instead"
                )
        gone = self._remove({file_key((file.root, file.path)) for _, file in moves} - known.keys())[1]
        ids = [known[key][0] for key in keys]
        cells = [(*file_cells(file), each) for (_, file), each in zip(moves, ids, strict=True)]
        self._connection.execute("SET CONSTRAINTS ALL DEFERRED")
        names = ", ".join(f"{column} = %s" for column in FILE_COLUMNS)
        with self._connection.cursor() as cursor:
            cursor.executemany(self._tables.sql(f"UPDATE {{files}} SET {names} WHERE id = %s"), cells)
        self._exchange_captions(
            {
                each: (known[key][1], file.captions)
                for key, each, (_, file) in zip(keys, ids, moves, strict=True)
                if known[key][1] != file.captions
            },
            new_captions,
        )
        self._execute("DELETE FROM {words} WHERE file = ANY(%s::bigint[])", ids)
        self._put_words([word_cells(each, file) for each, (_, file) in zip(ids, moves, strict=True)])
        self._count(gone)

    def align(self) -> None:
        """Remove files of a resumed generation whose items have other ids by now, because the old one was changed."""
        self._connection.execute(
            self._tables.sql(
                "DELETE FROM {files} WHERE id IN (SELECT f.id FROM {files} f JOIN {items} i ON i.file = f.id "
                "LEFT JOIN {old_files} b ON b.key = f.key LEFT JOIN {old_items} o ON o.id = i.id "
                "WHERE (o.id IS NOT NULL AND o.file IS DISTINCT FROM b.id) OR (b.digest = f.digest AND EXISTS ("
                "SELECT 1 FROM {old_items} s WHERE s.file = b.id AND s.id <> i.id "
                "AND s.starts IS NOT DISTINCT FROM i.starts AND s.ends IS NOT DISTINCT FROM i.ends)))",
                self._old,
            )
        )
        self._count(0)

    def split_words_again(self) -> None:
        """Write the words of all files again: an earlier version split them otherwise."""
        self._connection.execute(self._tables.sql("TRUNCATE {words}"))
        with self._connection.cursor("files") as cursor:
            cursor.execute(self._tables.sql(f"SELECT f.id, {FILE} FROM {{files}} f"))
            while rows := cursor.fetchmany(BLOCK):
                self._put_words([word_cells(row[0], file_of(row[1:])) for row in rows])
        self._connection.execute(
            "UPDATE generations SET words = %s WHERE generation = %s", (WORDS_VERSION, self._tables.generation)
        )

    def _known_ids(self, entries: Mapping[UUID, Entry]) -> dict[UUID, list[int]]:
        """Return the ids of the items of files that the old generation holds with the same content.

        A file at another place of this generation may hold them, where files moved in the old one meanwhile: then they
        are left to it.
        """
        if self._old is None:
            return {}
        rows = self._connection.execute(
            self._tables.sql(
                "SELECT f.key, f.digest, i.id, i.starts, i.ends FROM {old_files} f JOIN {old_items} i ON i.file = f.id "
                "WHERE f.key = ANY(%s::uuid[]) ORDER BY i.id",
                self._old,
            ),
            (list(entries),),
        )
        held: dict[UUID, list[tuple[Any, ...]]] = {}
        for key, digest, *item in rows:
            held.setdefault(key, []).append((to_text(digest), *item))
        known: dict[UUID, list[int]] = {}
        for key, found in held.items():
            entry = entries[key]
            same = [(entry.file.digest, moment.start, moment.end) for moment in entry.moments]
            if [(digest, start, end) for digest, _, start, end in found] == same:
                known[key] = [row[1] for row in found]
        elsewhere = self._connection.execute(
            self._tables.sql(
                "SELECT i.id FROM {items} i JOIN {files} f ON f.id = i.file "
                "WHERE i.id = ANY(%s::bigint[]) AND f.key <> ALL(%s::uuid[])"
            ),
            ([each for ids in known.values() for each in ids], list(entries)),
        )
        taken = {row[0] for row in elsewhere}
        return {key: ids for key, ids in known.items() if taken.isdisjoint(ids)}

    def _remove(self, keys: Iterable[UUID]) -> tuple[int, int]:
        """Remove files with their items, captions and words; return the numbers of files and items."""
        some = list(keys)
        (items,) = self._execute(
            "SELECT count(*) FROM {items} WHERE file IN (SELECT id FROM {files} WHERE key = ANY(%s::uuid[]))", some
        ).fetchone()
        files = self._execute("DELETE FROM {files} WHERE key = ANY(%s::uuid[])", some).rowcount
        return int(files), int(items)

    def _exchange_captions(
        self, changed: Mapping[int, tuple[Sequence[str], Sequence[str]]], new: Mapping[str, Vectors]
    ) -> None:
        """Replace the captions of files; those that stay keep their vectors, others have those of ``new`` or none."""
        if not changed:
            return
        rows = self._connection.execute(
            self._tables.sql("SELECT file, position, vector FROM {captions} WHERE file = ANY(%s::bigint[])"),
            (list(changed),), binary=True,
        ).fetchall()  # fmt: skip
        held = {(file, changed[file][0][position]): raw for file, position, raw in rows if raw is not None}
        self._execute("DELETE FROM {captions} WHERE file = ANY(%s::bigint[])", list(changed))
        self._put_captions(
            [
                (file, position, held.get((file, text), new.get(text)))
                for file, (_, texts) in changed.items()
                for position, text in enumerate(texts)
            ]
        )

    def _put_captions(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._copy("captions", ("file", "position", "vector"), ("int8", "int4", self._vector), rows)

    def _put_words(self, rows: Sequence[tuple[Any, ...]]) -> None:
        columns = ("file", "named", "half", "other", "every")
        self._copy("words", columns, ("int8", "text", "text", "text", "text[]"), rows)

    def _copy(
        self, part: str, columns: Sequence[str], types: Sequence[str | int], rows: Sequence[tuple[Any, ...]]
    ) -> None:
        """Insert rows through COPY, in binary form."""
        if not rows:
            return
        text = f"COPY {{{part}}} ({', '.join(columns)}) FROM STDIN WITH (FORMAT BINARY)"
        with self._connection.cursor() as cursor, cursor.copy(self._tables.sql(text)) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    def _next(self, sequence: str, count: int) -> list[int]:
        """Return the next numbers of a sequence, which even a transaction that fails has used up."""
        rows = self._connection.execute("SELECT nextval(%s::regclass) FROM generate_series(1, %s)", (sequence, count))
        return [row[0] for row in rows]

    def _count(self, items: int) -> None:
        """Record a change, and how many items came and went."""
        self._connection.execute(
            "UPDATE generations SET changes = changes + %s, revision = revision + 1 WHERE generation = %s",
            (items, self._tables.generation),
        )

    def _execute(self, text: str, values: Sequence[Any]) -> Any:
        return self._connection.execute(self._tables.sql(text), (list(values),))

    @property
    def _vector(self) -> int:
        return int(self._connection.vector_oid)


def drop_older(pool: Connections, connection: Any, serving: int, lock_seconds: float) -> None:
    """Drop the generations before the serving one; where a long read holds them, the next writer tries again."""
    rows = connection.execute("SELECT generation FROM generations WHERE generation < %s", (serving,)).fetchall()
    for (generation,) in rows:
        with suppress(pool.psycopg.errors.LockNotAvailable), connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{lock_seconds * 1000:.0f}ms",))
            Tables(pool, generation).drop(connection)

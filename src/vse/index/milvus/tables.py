"""Read and write the rows of one generation, and find, make, switch and drop generations."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from vse.errors import InputError, VSEError
from vse.index.milvus import connection as calls
from vse.index.milvus import schema
from vse.index.milvus.connection import Connection
from vse.index.milvus.schema import (
    ID_BITS,
    KEY,
    LOCAL,
    SMALL,
    Row,
    columns_of,
    load_part,
    make_part,
    search_options,
)
from vse.index.types import Vectors, VectorTable

PARTS = ("meta", "items", "captions")
"""In the order to drop them: without its meta, nobody takes the rest for complete."""
MAX_ROWS = 16_384
"""Most rows that Milvus returns from one search, or from one query with a limit."""
BLOCK_BYTES = 16 * 2**20
"""Approximate size of one request or reply; Milvus rejects messages above 64 MiB."""
FLUSH_AFTER = 1024
"""Rows that Milvus Lite may keep in its log, where searches are much slower than in its files."""
AT_ONCE = 1000
"""Values listed in one expression."""
ABOUT = "about"
TOKEN_LENGTH = 8


@dataclass(frozen=True)
class About:
    """What a generation was made for."""

    model: str
    dimensions: int
    options: Mapping[str, str]

    @property
    def exact(self) -> bool:
        """Whether Milvus compares every vector."""
        return self.options["index_type"] == "FLAT"


def full_options(connection: Connection, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a new collection with their defaults."""
    local = connection.address.folder is not None
    plain = {"index_type": "FLAT" if local else "HNSW", "consistency_level": "Strong"}
    return {**plain, **({LOCAL: "1"} if local else {}), **given}


class Tables:
    """The Milvus collections of one generation; :meth:`make` or :meth:`load` them first.

    ``level`` is the consistency of reads; by default that of the address, else the recorded one. ``token`` tells the
    first generations apart that several processes create for one name.
    """

    def __init__(self, connection: Connection, generation: int, token: str = "") -> None:
        self.connection, self.generation, self.token = connection, generation, token
        self.base = f"{connection.name}_g{generation}" + (f"_{token}" if token else "")
        self._about: About | None = None
        self.level = dict(connection.address.options).get("consistency_level")
        self._unflushed: dict[str, int] = dict.fromkeys(PARTS, 0)

    @property
    def about(self) -> About:
        """What it was made for."""
        if self._about is None:
            raise VSEError(f"{self.connection.where} is not complete: index again")
        return self._about

    def make(self, about: About, values: Mapping[str, str]) -> None:
        """Create the Milvus collections, empty; the row about them, which is written last, makes them complete."""
        self.drop()
        with self.using() as client:
            for part in PARTS:
                make_part(client, self._name(part), part, about.dimensions, about.options, calls.CALL_SECONDS)
        described = {"model": about.model, "dimensions": about.dimensions, "options": dict(about.options)}
        self.put({**values, ABOUT: json.dumps({"format": schema.FORMAT, **described})})
        self._about = about

    def load(self) -> bool:
        """Load everything for reading; return False when it is missing or incomplete.

        Raises:
            InputError: It has another format.
        """
        if any(self.connection.columns(self._name(part)) != columns_of(part) for part in PARTS):
            return False
        with self.using() as client:
            load_part(client, self._name("meta"), {}, calls.CALL_SECONDS)
            text = self.values().get(ABOUT)
            if text is None:
                return False
            found = json.loads(text)
            if found.pop("format") != schema.FORMAT:
                written = json.loads(text)["format"]
                where = self.connection.where
                raise InputError(
                    f"{where} has format {written}, expected {schema.FORMAT}: use the version of vse that wrote it"
                )
            self._about = About(**found)
            for part in PARTS[1:]:
                load_part(client, self._name(part), self.about.options, calls.CALL_SECONDS)
        return True

    def drop(self) -> None:
        """Drop the Milvus collections."""
        self.connection.drop(*self.names())

    def names(self) -> list[str]:
        """Return the names of the Milvus collections."""
        return [self._name(part) for part in PARTS]

    def values(self) -> dict[str, str]:
        """Return what :meth:`put` stored."""
        with self.using() as client:
            found = client.query(
                self._name("meta"), filter='key != ""', output_fields=["key", "value"],
                consistency_level="Strong", timeout=calls.ANSWER_SECONDS,
            )  # fmt: skip
            return {str(row["key"]): str(row["value"]) for row in found}

    def put(self, values: Mapping[str, str]) -> None:
        """Store values by key; of several writers the last one wins, key by key."""
        rows = [{"key": key, "value": value, "vector": [0.0, 0.0]} for key, value in values.items()]
        with self.using() as client:
            client.upsert(self._name("meta"), rows, timeout=calls.CALL_SECONDS)

    def count(self, table: VectorTable, condition: str | None = None) -> int:
        """Return how many rows pass."""
        if self.connection.address.folder is not None:  # where counting is slow, and counts rows twice after a kill
            return len(self.query(table, condition or f"{KEY[table]} >= 0", ()))
        with self.using() as client:
            (found,) = client.query(
                self._name(table), filter=condition or "", output_fields=["count(*)"],
                consistency_level=self._read_level(), timeout=calls.CALL_SECONDS,
            )  # fmt: skip
            return int(found["count(*)"])

    def query(self, table: VectorTable, condition: str, columns: Sequence[str], limit: int | None = None) -> list[Row]:
        """Return at most ``limit`` rows that pass, in any order."""
        key = KEY[table]
        options = {} if limit is None else {"limit": limit}
        with self.using() as client:
            found = client.query(
                self._name(table), filter=condition, output_fields=list(dict.fromkeys((key, *columns))),
                consistency_level=self._read_level(), timeout=calls.CALL_SECONDS, **options,
            )  # fmt: skip
            return list({row[key]: dict(row) for row in found}.values())  # a killed Milvus Lite may return a row twice

    def query_in(
        self, table: VectorTable, column: str, values: Iterable[int | str], columns: Sequence[str]
    ) -> list[Row]:
        """Return the rows that have one of these values (numbers or hashes) in a column."""
        rows: list[Row] = []
        for listed in _lists(values):
            rows += self.query(table, f"{column} in [{listed}]", columns)
        return rows

    def windows(self, table: VectorTable, condition: str | None, columns: Sequence[str]) -> Iterator[list[Row]]:
        """Yield the rows that pass by primary key, in blocks; changes between two blocks may or may not be seen.

        Milvus returns rows in any order and limits the size of a reply. Primary keys are hashes, so ranges of equal
        width hold about equally many; one that holds too many is cut at the keys themselves.
        """
        key, total = KEY[table], self.count(table)
        bytes_each = 128 if SMALL.issuperset(columns) else 1024 + 4 * self.about.dimensions * ("vector" in columns)
        block = max(64, min(8192 if bytes_each > 128 else MAX_ROWS - 1, BLOCK_BYTES // bytes_each))
        end = 2 ** (ID_BITS + 1) if table == "items" else 2**63 - 1
        pieces = max(1, -(-10 * total // (8 * block)))
        cuts = [end * piece // pieces for piece in range(pieces)] + [end]
        also = "" if condition is None else f" and {condition}"
        for low, high in pairwise(cuts):
            inside = f"{key} >= {low} and {key} < {high}{also}"
            rows = self.query(table, inside, columns, block + 1)
            if len(rows) <= block:
                if rows:
                    yield sorted(rows, key=lambda row: int(row[key]))
                continue
            keys = sorted(int(row[key]) for row in self.query(table, inside, ()))
            for start in range(0, len(keys), block):
                some = keys[start : start + block]
                rows = self.query(table, f"{key} >= {some[0]} and {key} <= {some[-1]}{also}", columns)
                yield sorted(rows, key=lambda row: int(row[key]))

    def nearest(
        self, table: VectorTable, query: Vectors, count: int, condition: str | None, columns: Sequence[str]
    ) -> tuple[list[Row], bool]:
        """Return the ``count`` best rows, best first, with Milvus's own ``score``, and whether these are all."""
        key = KEY[table]
        breadth = {"ef": 2 * count} if self.about.options["index_type"] == "HNSW" else {}
        options = {"metric_type": "IP", "params": {**breadth, **search_options(self.about.options)}}
        with self.using() as client:
            (found,) = client.search(
                self._name(table), data=[query.tolist()], anns_field="vector", limit=count, filter=condition or "",
                output_fields=list(dict.fromkeys((key, *columns))), search_params=options,
                consistency_level=self._read_level(), timeout=calls.CALL_SECONDS,
            )  # fmt: skip
            hits = [{**hit["entity"], "score": float(hit["distance"])} for hit in found]
        return list({row[key]: row for row in reversed(hits)}.values())[::-1], len(hits) < count

    def upsert(self, table: VectorTable, rows: Sequence[Row]) -> None:
        """Write rows; those with a known key are replaced. Repeating it changes nothing."""
        for block in _blocks(rows):
            with self.using() as client:
                client.upsert(self._name(table), block, timeout=calls.CALL_SECONDS)
            self._unflushed[table] += len(block)
        if self.connection.address.folder is not None and self._unflushed[table] >= FLUSH_AFTER:
            with self.using() as client:
                client.flush(self._name(table), timeout=calls.CALL_SECONDS)
            self._unflushed[table] = 0

    def delete(self, table: VectorTable, keys: Sequence[int]) -> None:
        """Delete rows by primary key."""
        for start in range(0, len(keys), AT_ONCE):
            with self.using() as client:
                some = [int(key) for key in keys[start : start + AT_ONCE]]
                client.delete(self._name(table), ids=some, timeout=calls.CALL_SECONDS)

    def serves(self) -> bool:
        """Return whether this is the serving generation."""
        return _serving(self.connection) == (self.generation, self.token)

    @contextmanager
    def using(self) -> Iterator[Any]:
        """Yield the client; an error is explained if an upgrade has dropped this generation."""
        try:
            with self.connection.using() as client:
                yield client
        except VSEError as error:
            if self._about is not None and not isinstance(error, InputError) and self._is_behind():
                raise outdated_error(self.connection.where) from error
            raise

    def _is_behind(self) -> bool:
        try:
            serving = serving_generation(self.connection)
        except VSEError:
            return False
        return serving is not None and serving > self.generation

    def _read_level(self) -> str:
        recorded = "Strong" if self._about is None else self._about.options["consistency_level"]
        return self.level or recorded

    def _name(self, part: str) -> str:
        return self.base if part == "items" else f"{self.base}_{part}"


def outdated_error(where: str) -> VSEError:
    """Return the error for a generation that no longer serves."""
    return VSEError(f"{where} was switched to a newer generation: open it again")


def _lists(values: Iterable[int | str]) -> Iterator[str]:
    wanted = [f'"{value}"' if isinstance(value, str) else str(int(value)) for value in dict.fromkeys(values)]
    for start in range(0, len(wanted), AT_ONCE):
        yield ", ".join(wanted[start : start + AT_ONCE])


def _blocks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Split rows into requests."""
    block: list[Row] = []
    size = 0
    for row in rows:
        size += 4 * np.size(row["vector"]) + 512 + 4 * sum(len(value) for value in row.values() if type(value) is str)
        block.append(row)
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def part_of(name: str, table: str) -> tuple[int, str, str] | None:
    """Return generation, token and part of the collection ``name`` that a Milvus collection is; None if of another."""
    match = re.fullmatch(rf"{name}_g([1-9][0-9]*)(?:_([0-9a-f]{{{TOKEN_LENGTH}}}))?(?:_(captions|meta))?", table)
    return None if match is None else (int(match[1]), match[2] or "", match[3] or "items")


def _serving(connection: Connection) -> tuple[int, str] | None:
    target = connection.target(connection.name)
    found = None if target is None else part_of(connection.name, target)
    return None if found is None or found[2] != "items" else found[:2]


def serving_generation(connection: Connection) -> int | None:
    """Return the generation that the alias stands for; None when there is no alias of ours."""
    found = _serving(connection)
    return None if found is None else found[0]


def serving_tables(connection: Connection) -> Tables | None:
    """Return the serving generation, loaded; None when no collection was completely created."""
    while (serving := _serving(connection)) is not None:
        tables = Tables(connection, *serving)
        with suppress(VSEError):
            if tables.load():
                return tables
        if tables.serves():  # otherwise an upgrade dropped it while it was being opened: retry
            return tables if tables.load() else None
    return None


def switch(tables: Tables) -> None:
    """Let the alias stand for a generation, atomically."""
    connection = tables.connection
    known = connection.target(connection.name) is not None
    with connection.using() as client:
        change = client.alter_alias if known else client.create_alias
        change(tables.base, connection.name, timeout=calls.CALL_SECONDS)


def create_tables(connection: Connection, about: About, values: Mapping[str, str]) -> Tables:
    """Create the first generation and let it serve, unless another process is faster: return what serves.

    The tables have names of their own until the alias, which Milvus creates once, decides. Nothing of another process
    is dropped.
    """
    tables = Tables(connection, 1, secrets.token_hex(TOKEN_LENGTH // 2))
    try:
        tables.make(about, values)
        with connection.using() as client:
            client.create_alias(tables.base, connection.name, timeout=calls.CALL_SECONDS)
    except BaseException as error:
        with suppress(VSEError):
            if not tables.serves():  # otherwise the answer was lost
                tables.drop()
            winner = serving_tables(connection) if isinstance(error, VSEError) else None
            if winner is not None:
                return winner
        raise
    return tables


def expect_ours(connection: Connection, names: Iterable[str], *, fix: str) -> None:
    """Raise InputError when one of these Milvus collections exists and is not ours: it must not be dropped."""
    for table in names:
        found = part_of(connection.name, table)
        if connection.columns(table) not in (None, columns_of(found[2]) if found else None):
            raise InputError(f"{table} at {connection.where} is a Milvus collection of something else: {fix}")


def drop_leftovers(connection: Connection, serving: Tables | None = None) -> None:
    """Drop what older generations and unfinished creations left, while ``serving`` serves; what is not ours stays.

    Without it all generations of this name are dropped, for which nobody else may use the name.
    """
    for table in connection.names():
        found = part_of(connection.name, table)
        if found is None or (serving is not None and found[0] > serving.generation):
            continue
        if serving is not None and found[:2] == (serving.generation, serving.token):
            continue
        if connection.columns(table) == columns_of(found[2]):
            connection.drop(table)

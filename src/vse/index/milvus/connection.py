"""Reading and writing rows over one connection, and how errors of Milvus are told."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from vse.errors import VSEError, first_line, require
from vse.index.collection import Vectors
from vse.index.milvus import lite
from vse.index.milvus.address import MilvusAddress
from vse.index.milvus.rows import Row
from vse.index.milvus.schema import COLUMNS, LANES, Lane, make_tables, meta_table, table
from vse.index.milvus.state import Index, State, state_of

TOKEN = "VSE_MILVUS_TOKEN"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""For the state, with which everything begins: a server that was lost is told after so long."""
CALL_SECONDS = 60.0
MOST_ROWS = 16_384
"""What Milvus returns at most from one search."""
BLOCK_BYTES = 16 * 2**20
"""Roughly what one call sends or receives; Milvus refuses messages above 64 MiB."""
FLUSH_AFTER = 1024
"""Rows that Milvus Lite may hold in its log, where it searches much slower than in its files."""
AT_ONCE = 1000
"""Values that an expression lists."""


class Connection:
    """The three Milvus collections behind an address. May be used from several threads."""

    def __init__(self, address: MilvusAddress) -> None:
        self.address, self.where = address, str(address)
        self._errors: tuple[type[BaseException], ...] = ()
        self._unflushed = dict.fromkeys(LANES, 0)
        self._guard = threading.Lock()
        pymilvus = require("pymilvus", "milvus", "a collection in Milvus")
        grpc = require("grpc", "milvus", "a collection in Milvus")
        self._errors = (pymilvus.MilvusException, grpc.RpcError, grpc.FutureTimeoutError, OSError)
        uri = address.uri if address.folder is None else lite.start(address.folder)
        try:
            with self._told(fix=f"check the address, that Milvus runs there, and {TOKEN} if it asks for one"):
                self._client: Any = pymilvus.MilvusClient(
                    uri=uri, token=os.environ.get(TOKEN, "") if address.folder is None else "", timeout=CONNECT_SECONDS
                )
        except BaseException:
            self._stop_lite()
            raise

    def close(self) -> None:
        """Give the connection back; harmless when that was done already."""
        with self._guard:
            client, self._client = self._client, None
        if client is not None:
            with suppress(*self._errors):
                client.close()
            self._stop_lite()

    def exists(self) -> bool:
        """Whether a collection was completely made."""
        with self._using() as client:
            if not client.has_collection(meta_table(self.address.name), timeout=CALL_SECONDS):
                return False
            for each in (*(table(self.address.name, lane) for lane in LANES), meta_table(self.address.name)):
                if not client.has_collection(each, timeout=CALL_SECONDS):
                    return False
                client.load_collection(each, timeout=CALL_SECONDS)
        return self._newest() is not None

    def make(self, dimensions: int, index: Index) -> None:
        """Make the Milvus collections, empty; the first :meth:`publish` makes them a collection."""
        with self._using() as client:
            make_tables(client, self.address.name, dimensions, index, CALL_SECONDS)

    def state(self) -> State:
        """What is published."""
        text = self._newest()
        if text is None:
            raise VSEError(f"{self.where} is damaged, it has no state: restore it or index again")
        return state_of(self.where, text)

    def publish(self, state: State) -> None:
        """Let ``state`` hold from now on: one row."""
        row = {"batch": state.batch, "state": state.to_text(), "vector": [0.0, 0.0]}
        with self._using() as client:
            client.insert(meta_table(self.address.name), [row], timeout=CALL_SECONDS)

    def forget(self, *batches: int) -> None:
        """Delete states that no longer hold."""
        with self._using() as client:
            client.delete(meta_table(self.address.name), ids=list(batches), timeout=CALL_SECONDS)

    def query(
        self, lane: Lane, condition: str, columns: Sequence[str] | None = None, most: int | None = None
    ) -> list[Row]:
        """The rows that pass, in any order and ``most`` of them, whole unless columns are named."""
        limit = {} if most is None else {"limit": most}
        with self._using() as client:
            found = client.query(
                table(self.address.name, lane), filter=condition,
                output_fields=list(columns or (*COLUMNS[lane], "vector")),
                consistency_level="Strong", timeout=CALL_SECONDS, **limit,
            )  # fmt: skip
            return list(_once(dict(row) for row in found))

    def whole(self, lane: Lane, keys: Sequence[int], dimensions: int) -> Iterator[list[Row]]:
        """The rows with these keys that are there, in blocks."""
        step = rows_at_once(dimensions)
        for start in range(0, len(keys), step):
            yield self.query_in(lane, "row", keys[start : start + step], "row >= 0")

    def query_in(
        self, lane: Lane, column: str, values: Iterable[int | str], condition: str, columns: Sequence[str] | None = None
    ) -> list[Row]:
        """The rows that pass and have one of these values, which are numbers or hashes, in a column."""
        wanted = [f'"{value}"' if isinstance(value, str) else str(int(value)) for value in dict.fromkeys(values)]
        rows: list[Row] = []
        for start in range(0, len(wanted), AT_ONCE):
            listed = ", ".join(wanted[start : start + AT_ONCE])
            rows += self.query(lane, f"{column} in [{listed}] and {condition}", columns)
        return rows

    def nearest(
        self, lane: Lane, query: Vectors, count: int, condition: str, columns: Sequence[str], breadth: int
    ) -> tuple[list[Row], bool]:
        """Of the ``count`` best rows, the best first, the columns and Milvus's own ``score``; whether these are all."""
        options = {"metric_type": "IP", "params": {"ef": breadth} if breadth else {}}
        with self._using() as client:
            (found,) = client.search(
                table(self.address.name, lane), data=[query.tolist()], anns_field="vector", limit=count,
                filter=condition, output_fields=["row", *columns], search_params=options,
                consistency_level="Strong", timeout=CALL_SECONDS,
            )  # fmt: skip
            hits = [{**hit["entity"], "score": float(hit["distance"])} for hit in found]
        return list(_once(hits)), len(hits) < count

    def insert(self, lane: Lane, rows: Sequence[Row]) -> None:
        """Add rows whose keys are new."""
        for block in _blocks(rows):
            with self._using() as client:
                client.insert(table(self.address.name, lane), block, timeout=CALL_SECONDS)
            self._unflushed[lane] += len(block)

    def rewrite(self, lane: Lane, rows: Sequence[Row]) -> None:
        """Put rows in the place of those with their keys."""
        for block in _blocks(rows):
            with self._using() as client:
                client.upsert(table(self.address.name, lane), block, timeout=CALL_SECONDS)
            self._unflushed[lane] += len(block)

    def delete(self, lane: Lane, keys: Sequence[int]) -> None:
        """Delete rows by their keys."""
        for start in range(0, len(keys), AT_ONCE):
            with self._using() as client:
                client.delete(
                    table(self.address.name, lane), ids=list(keys[start : start + AT_ONCE]), timeout=CALL_SECONDS
                )

    def settle(self, lane: Lane) -> None:
        """Let Milvus Lite move rows from its log to its files when there are many; a server does so by itself."""
        if self.address.folder is not None and self._unflushed[lane] >= FLUSH_AFTER:
            with self._using() as client:
                client.flush(table(self.address.name, lane), timeout=CALL_SECONDS)
            self._unflushed[lane] = 0

    def _newest(self) -> str | None:
        with self._using() as client:
            rows = client.query(
                meta_table(self.address.name), filter="batch >= 0", output_fields=["batch", "state"],
                consistency_level="Strong", timeout=ANSWER_SECONDS,
            )  # fmt: skip
            newest = max(rows, key=lambda row: int(row["batch"]), default=None)
            return None if newest is None else str(newest["state"])

    @contextmanager
    def _using(self) -> Iterator[Any]:
        client = self._client
        if client is None:
            raise VSEError(f"{self.where} is closed: open it again")
        with self._told(fix="check that Milvus runs, and try again"):
            yield client

    @contextmanager
    def _told(self, *, fix: str) -> Iterator[None]:
        try:
            yield
        except VSEError:
            raise
        except self._errors as error:
            reason = first_line(Exception(getattr(error, "message", "") or error))
            raise VSEError(f"{self.where} cannot be used ({reason}): {fix}") from error

    def _stop_lite(self) -> None:
        if self.address.folder is not None:
            lite.stop(self.address.folder)


def rows_at_once(dimensions: int) -> int:
    """How many whole rows one call returns."""
    return max(16, min(AT_ONCE, BLOCK_BYTES // (4 * dimensions + 2048)))


def _once(rows: Iterable[Row]) -> Iterator[Row]:
    """Each key once.

    Milvus Lite returns rows twice when it was killed while it moved them from its log to its files, and a server when
    an insert was repeated because its answer was lost.
    """
    seen: set[int] = set()
    for row in rows:
        if row["row"] not in seen:
            seen.add(row["row"])
            yield row


def _blocks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """As many rows as one call takes."""
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

"""The three Milvus collections of a generation: their columns, rows and published state."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from vse.errors import InputError, VSEError
from vse.index.types import VECTOR_TABLES, CollectionInfo, Entry, Item, MediaFile, Place, Vectors, VectorTable

_UNSAFE = re.compile("[\x00-\x1f\x7f\"'%\\\\\ud800-\udfff]")
_CODE = re.compile("%([0-9A-F]{2})")
_BYTES = 0xDC00  # surrogateescape: where Python maps bytes that are not UTF-8


def to_stored(text: str) -> str:
    """Encode text as stored."""
    return _UNSAFE.sub(lambda match: _code(match[0], text), text)


def from_stored(stored: str) -> str:
    """Decode what :func:`to_stored` encoded."""
    return _CODE.sub(lambda match: _character(int(match[1], 16)), stored)


def literal(text: str) -> str:
    """Return the text as a literal of an expression, to compare with stored text."""
    return f'"{to_stored(text)}"'


def _code(character: str, text: str) -> str:
    value = ord(character)
    if value < 0x80:
        return f"%{value:02X}"
    if _BYTES + 0x80 <= value <= _BYTES + 0xFF:
        return f"%{value - _BYTES:02X}"
    raise InputError(f"{text!r} cannot be stored: expected Unicode, or the bytes of a file name")


def _character(value: int) -> str:
    return chr(value) if value < 0x80 else chr(_BYTES + value)


Index = Literal["flat", "hnsw"]
FORMAT = 1
MAX_BYTES = 65_535


@dataclass(frozen=True)
class State:
    """The collection as of ``batch``.

    ``next_item``, ``next_caption`` and ``next_row`` have never been used; ``roots`` counts the files of each root;
    ``writer`` is the token of the writer that may change the collection.
    """

    model: str
    model_source: str
    dimensions: int
    index: Index
    batch: int = 1
    generation: int = 1
    next_item: int = 1
    next_caption: int = 1
    next_row: int = 1
    items: int = 0
    captions: int = 0
    roots: Mapping[str, int] = field(default_factory=dict)
    writer: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> int:
        return sum(self.roots.values())

    @property
    def alive(self) -> str:
        """The expression for rows that exist in this state."""
        return f"born <= {self.batch} and died > {self.batch}"

    def info(self, where: str) -> CollectionInfo:
        """Return counts and model."""
        roots, given = dict(sorted(self.roots.items())), self.next_item - 1
        return CollectionInfo(
            where=where,
            backend="milvus",
            model=self.model,
            model_source=self.model_source,
            dimensions=self.dimensions,
            generation=self.generation,
            files=self.files,
            items=self.items,
            captions=self.captions,
            roots=tuple(roots),
            changes=given + (given - self.items),
            root_files=tuple(roots.values()),
        )

    def to_text(self) -> str:
        """Encode as ASCII, even where a root holds bytes that are not UTF-8."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, allow_nan=False)
        if len(text) > MAX_BYTES:
            raise InputError(
                f"{len(self.roots)} roots and their settings take {len(text)} bytes, expected at most {MAX_BYTES}: "
                "index fewer folders into one collection"
            )
        return text


def state_of(where: str, text: str) -> State:
    """Decode a state.

    Raises:
        VSEError: It is corrupt.
        InputError: It has another format.
    """
    try:
        values = json.loads(text)
        found = values.pop("format")
        if found == FORMAT:
            return State(**values)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise VSEError(f"{where} is corrupt, its state cannot be read: restore it or index again") from None
    raise InputError(f"{where} has format {found!r}, expected {FORMAT}: use the version of vse that wrote it")


NEVER = 2**62
"""``died`` of rows that are alive."""
NAME_BYTES = 16_384
"""Fits a path of 4,096 bytes, each stored as three characters."""
DIGEST_BYTES = 512
LINKS, BREADTH = 32, 256
"""HNSW parameters: M and efConstruction."""

# (name, type, options): "row" is the key of one version; "item" is the id, which all versions share.
_VERSION = [("row", "INT64", {"is_primary": True}), ("born", "INT64", {}), ("died", "INT64", {})]
_ITEM = [
    ("item", "INT64", {}),
    ("position", "INT64", {}),  # among the moments of its file
    ("place", "VARCHAR", {"max_length": 64}),  # a hash of root and path
    ("root", "VARCHAR", {"max_length": NAME_BYTES}),
    ("path", "VARCHAR", {"max_length": NAME_BYTES}),
    ("kind", "VARCHAR", {"max_length": 16}),
    ("size", "INT64", {}),
    ("modified", "INT64", {}),
    ("digest", "VARCHAR", {"max_length": DIGEST_BYTES}),
    ("width", "INT64", {}),
    ("height", "INT64", {}),
    *((name, "DOUBLE", {"nullable": True}) for name in ("taken", "latitude", "longitude", "duration", "start", "end")),
    ("captions", "VARCHAR", {"max_length": MAX_BYTES}),
]
_CAPTION = [("caption", "INT64", {}), ("first", "INT64", {}), ("text", "VARCHAR", {"max_length": MAX_BYTES})]
_META = [("batch", "INT64", {"is_primary": True}), ("state", "VARCHAR", {"max_length": MAX_BYTES})]

ITEM_COLUMNS = tuple(name for name, _, _ in (*_VERSION, *_ITEM))
CAPTION_COLUMNS = tuple(name for name, _, _ in (*_VERSION, *_CAPTION))
META_COLUMNS = frozenset((*(name for name, _, _ in _META), "vector"))
COLUMNS = {"items": ITEM_COLUMNS, "captions": CAPTION_COLUMNS}
NUMBERS = frozenset(name for name, kind, _ in (*_VERSION, *_ITEM) if kind != "VARCHAR")
"""Columns of items that take eight bytes."""
NUMBER = {"items": "item", "captions": "caption"}
"""The column that breaks ties between scores, and that pages follow."""


def base_name(name: str, generation: int) -> str:
    """Return the prefix of the names of a generation's Milvus collections."""
    return name if generation == 1 else f"{name}_g{generation}"


def table_name(base: str, table: VectorTable) -> str:
    """Return the Milvus collection of a table."""
    return base if table == "items" else f"{base}_{table}"


def meta_table(base: str) -> str:
    """Return the Milvus collection of the states."""
    return f"{base}_meta"


def tables_of(base: str) -> tuple[str, ...]:
    """Return all three in the order to drop them: the states first, so that nobody takes the rest for complete."""
    return meta_table(base), *(table_name(base, table) for table in VECTOR_TABLES)


def generation_of(name: str, table: str) -> int | None:
    """Return the generation of the collection ``name`` that a Milvus collection belongs to; None if to none."""
    match = re.fullmatch(rf"{name}(?:_g([2-9]|[1-9][0-9]+))?(?:_captions|_meta)?", table)
    return None if match is None else int(match[1] or 1)


def columns_of(table: str) -> frozenset[str]:
    """Return the columns of one of our Milvus collections, by the suffix of its name."""
    if table.endswith("_meta"):
        return META_COLUMNS
    return frozenset((*COLUMNS["captions" if table.endswith("_captions") else "items"], "vector"))


def make_tables(client: Any, base: str, dimensions: int, index: Index, timeout: float) -> None:
    """Create and load all three, empty; first drop what a killed process left of them."""
    for each in tables_of(base):
        if client.has_collection(each, timeout=timeout):
            client.drop_collection(each, timeout=timeout)
    _make(client, table_name(base, "items"), [*_VERSION, *_ITEM], dimensions, index, timeout)
    _make(client, table_name(base, "captions"), [*_VERSION, *_CAPTION], dimensions, index, timeout)
    _make(client, meta_table(base), _META, 2, "flat", timeout)  # Milvus requires a vector in every collection


def _make(client: Any, name: str, fields: list[Any], dimensions: int, index: Index, timeout: float) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    for column, kind, options in fields:
        schema.add_field(column, getattr(DataType, kind), **options)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
    indexes = client.prepare_index_params()
    options = {"M": LINKS, "efConstruction": BREADTH} if index == "hnsw" else {}
    indexes.add_index(field_name="vector", index_type=index.upper(), metric_type="IP", params=options)
    client.create_collection(name, schema=schema, consistency_level="Strong", timeout=timeout)
    client.create_index(name, indexes, sync=False, timeout=timeout)  # no rows yet: waiting would cost half a second
    client.load_collection(name, timeout=timeout)


Row = dict[str, Any]
_TEXTS = {"root": NAME_BYTES, "path": NAME_BYTES, "digest": DIGEST_BYTES, "kind": 16}
_WHOLE = ("size", "modified", "width", "height")
_REAL = ("taken", "latitude", "longitude", "duration")


def place_key(place: Place) -> str:
    """Return the SHA-256 of root and path, by which a file is looked up."""
    text = f"{len(place[0])}:{place[0]}{place[1]}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_columns(file: MediaFile) -> Row:
    """Return the columns that describe a file.

    Raises:
        InputError: Milvus cannot store one of the values.
    """
    name = f"{file.root}/{file.path}"
    row: Row = {"place": place_key((file.root, file.path))}
    for column, max_bytes in _TEXTS.items():
        row[column] = _bounded(name, column, to_stored(getattr(file, column)), max_bytes)
    for column in _WHOLE:
        value = int(getattr(file, column))
        if not -(2**63) <= value < 2**63:
            raise InputError(f"{name} has {column} {value}: expected at most 64 bits")
        row[column] = value
    for column in _REAL:
        value = getattr(file, column)
        if value is not None and not math.isfinite(value):
            raise InputError(f"{name} has {column} {value}: expected a finite number, or None")
        row[column] = _real(value)
    row["captions"] = _bounded(
        name, "captions", json.dumps([to_stored(text) for text in file.captions], ensure_ascii=False), MAX_BYTES
    )
    return row


def item_rows(entry: Entry, items: Sequence[int], batch: int, row: int) -> list[Row]:
    """Return a row for each moment, with keys from ``row`` on and the ids ``items``."""
    file = file_columns(entry.file)
    return [
        {
            "row": row + position, "born": batch, "died": NEVER, "item": item, "position": position, **file,
            "start": _real(moment.start), "end": _real(moment.end), "vector": moment.vector,
        }
        for position, (item, moment) in enumerate(zip(items, entry.moments, strict=True))
    ]  # fmt: skip


def caption_row(text: str, vector: Vectors, first: int, batch: int, row: int, caption: int) -> Row:
    """Return the row of a caption of the file whose first item is ``first``."""
    return {
        "row": row, "born": batch, "died": NEVER, "caption": caption, "first": first, "text": to_stored(text),
        "vector": vector,
    }  # fmt: skip


def file_of(row: Row) -> MediaFile:
    """Return the file of an item's row."""
    values = {column: row[column] for column in (*_WHOLE, *_REAL)}
    values |= {column: from_stored(row[column]) for column in _TEXTS}
    return MediaFile(**values, captions=captions_of(row))


def captions_of(row: Row) -> tuple[str, ...]:
    """Return the captions of an item's file."""
    return tuple(from_stored(text) for text in json.loads(row["captions"]))


def item_of(row: Row) -> Item:
    """Return the item of a row."""
    return Item(row["item"], file_of(row), row["start"], row["end"])


def vectors_of(rows: Sequence[Row], dimensions: int) -> Vectors:
    """Return the vectors ``(n, D)`` of rows."""
    return np.array([row["vector"] for row in rows], np.float32).reshape(len(rows), dimensions)


def _bounded(name: str, column: str, text: str, max_bytes: int) -> str:
    size = len(text.encode())
    if size > max_bytes:
        raise InputError(f"{name} has {column} of {size} bytes as stored: Milvus takes at most {max_bytes}, shorten it")
    return text


def _real(value: float | None) -> float | None:
    return None if value is None else float(value)

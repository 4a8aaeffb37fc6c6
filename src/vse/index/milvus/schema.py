"""The Milvus collections of a generation: their columns, and rows from and to files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from vse.errors import InputError
from vse.index.scoring import hashes
from vse.index.storage import hashed, place_key
from vse.index.types import Entry, Item, MediaFile, Vectors, VectorTable, recency

Row = dict[str, Any]
FORMAT = 2
MAX_BYTES = 65_535
NAME_BYTES = 16_384
"""Fits a path of 4,096 bytes, each stored as three characters."""
DIGEST_BYTES = 512
ID_BITS = 52
"""Ids stay below 2^53, where JavaScript counts exactly."""
CHANCES = 2.0**63

_UNSAFE = re.compile("[\x00-\x1f\x7f\"'%\\\\\ud800-\udfff]")
_CODE = re.compile("%([0-9A-F]{2})")
_BYTES = 0xDC00  # surrogateescape: where Python maps bytes that are not UTF-8


def to_stored(text: str) -> str:
    """Encode text that expressions compare: no character of it can end a literal."""
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


_NULLABLE = ("taken", "latitude", "longitude", "start", "end")
_COLUMNS: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "items": [
        ("item", "INT64", {"is_primary": True}),
        ("position", "INT64", {}),  # among the moments of its file
        ("place", "VARCHAR", {"max_length": 32}),  # a hash of root and path
        ("written", "INT64", {}),  # of two versions at one place the later one counts
        ("chance", "INT64", {}),  # a hash of the id: a range of it is a random sample
        ("root", "VARCHAR", {"max_length": NAME_BYTES}),
        ("path", "VARCHAR", {"max_length": NAME_BYTES}),
        ("kind", "VARCHAR", {"max_length": 16}),
        ("digest", "VARCHAR", {"max_length": DIGEST_BYTES}),
        ("recency", "DOUBLE", {}),
        *((name, "DOUBLE", {"nullable": True}) for name in _NULLABLE),
        ("file", "VARCHAR", {"max_length": MAX_BYTES}),  # the other fields, as JSON
    ],
    "captions": [
        ("caption", "INT64", {"is_primary": True}),
        ("first", "INT64", {}),  # the id of the first item of its file
        ("encoded", "BOOL", {}),  # otherwise the vector is zero
        ("text", "VARCHAR", {"max_length": MAX_BYTES}),
    ],
    "meta": [
        ("key", "VARCHAR", {"is_primary": True, "max_length": 128}),
        ("value", "VARCHAR", {"max_length": MAX_BYTES}),
    ],
}  # fmt: skip
ITEM_COLUMNS = tuple(name for name, _, _ in _COLUMNS["items"])
VERSION_COLUMNS = ("item", "place", "position", "written", "digest", "start", "end")
KEY: dict[VectorTable, str] = {"items": "item", "captions": "caption"}
"""Primary keys, which break ties between scores."""
SMALL = frozenset(name for name, kind, _ in _COLUMNS["items"] if kind != "VARCHAR")
"""Columns of eight bytes."""
_LOOKED_UP = {"items": ("place", "position", "chance"), "captions": ("first",), "meta": ()}
LOCAL = "local"
"""Option of Milvus Lite, which has no use for indexes of scalar columns."""
_SEARCHING = frozenset({"ef", "nprobe", "search_list", "reorder_k", "level"})
_CREATION = frozenset({"consistency_level", "num_shards", "replica_number", "index_type", LOCAL})


def columns_of(part: str) -> frozenset[str]:
    """Return the columns of a part of a generation: items, captions or meta."""
    return frozenset((*(name for name, _, _ in _COLUMNS[part]), "vector"))


def search_options(options: Mapping[str, str]) -> dict[str, int]:
    """Return those of the options that a search takes."""
    return {name: int(value) for name, value in options.items() if name in _SEARCHING}


def make_part(client: Any, name: str, part: str, dimensions: int, options: Mapping[str, str], timeout: float) -> None:
    """Create and load one Milvus collection, empty; Milvus requires a vector in each."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    for column, kind, settings in _COLUMNS[part]:
        schema.add_field(column, getattr(DataType, kind), **settings)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2 if part == "meta" else dimensions)
    kind = "FLAT" if part == "meta" else options["index_type"]
    build = {each: int(value) for each, value in options.items() if each not in _SEARCHING | _CREATION}
    build = {"M": 32, "efConstruction": 256, **build} if kind == "HNSW" else build
    indexes = client.prepare_index_params()
    params = {} if part == "meta" else build
    indexes.add_index(field_name="vector", index_type=kind, metric_type="IP", params=params)
    shards = {"num_shards": int(options["num_shards"])} if "num_shards" in options and part != "meta" else {}
    if LOCAL not in options:
        for column in _LOOKED_UP[part]:
            indexes.add_index(field_name=column, index_type="INVERTED")
    client.create_collection(
        name, schema=schema, consistency_level=options["consistency_level"], timeout=timeout, **shards
    )
    client.create_index(name, indexes, sync=False, timeout=timeout)  # no rows yet: waiting would cost half a second
    load_part(client, name, options, timeout)


def load_part(client: Any, name: str, options: Mapping[str, str], timeout: float) -> None:
    """Load one Milvus collection for reading."""
    replicas = {"replica_number": int(options["replica_number"])} if "replica_number" in options else {}
    client.load_collection(name, timeout=timeout, **replicas)


def first_id(entry: Entry, salt: int) -> int:
    """Return the id of the first moment; the others follow it. The same file and moments have the same ids."""
    windows = [
        None if moment.start is None or moment.end is None else [float(moment.start), float(moment.end)]
        for moment in entry.moments
    ]
    return hashed(entry.file.root, entry.file.path, entry.file.digest, windows, salt, bits=ID_BITS)


def caption_id(first: int, number: int, text: str) -> int:
    """Return the key of a caption."""
    return hashed(first, number, text, bits=63)


def chances(ids: Sequence[int]) -> list[int]:
    """Return the hashes of ids that order samples."""
    return [int(each) for each in hashes(np.array(ids, np.int64)) >> np.uint64(1)]


_OWN_COLUMNS = frozenset({"root", "path", "kind", "digest", "taken", "latitude", "longitude"})
_IN_JSON = tuple(field.name for field in fields(MediaFile) if field.name not in _OWN_COLUMNS)
_LISTS = ("captions", "keywords")


def file_columns(file: MediaFile) -> Row:
    """Return the columns that describe a file.

    Raises:
        InputError: Milvus cannot store one of the values.
    """
    name = f"{file.root}/{file.path}"
    for column in ("size", "modified", "width", "height"):
        value = int(getattr(file, column))
        if not -(2**63) <= value < 2**63:
            raise InputError(f"{name} has {column} {value}: expected at most 64 bits")
    row: Row = {"place": place_key((file.root, file.path)), "recency": float(recency(file.taken, file.modified))}
    for column, max_bytes in (("root", NAME_BYTES), ("path", NAME_BYTES), ("digest", DIGEST_BYTES), ("kind", 16)):
        row[column] = _bounded(name, column, to_stored(getattr(file, column)), max_bytes)
    for column in ("taken", "latitude", "longitude"):
        value = getattr(file, column)
        if value is not None and not math.isfinite(value):
            raise InputError(f"{name} has {column} {value}: expected a finite number, or None")
        row[column] = None if value is None else float(value)
    plain = {field: getattr(file, field) for field in _IN_JSON}
    row["file"] = _bounded(name, "captions and metadata", _json(plain), MAX_BYTES)
    return row


def item_rows(entry: Entry, first: int, written: int) -> list[Row]:
    """Return a row for each moment, with ids from ``first`` on."""
    file = file_columns(entry.file)
    ids = range(first, first + len(entry.moments))
    return [
        {
            "item": item, "position": position, "written": written, "chance": chance, **file,
            "start": None if moment.start is None else float(moment.start),
            "end": None if moment.end is None else float(moment.end),
            "vector": moment.vector,
        }
        for position, (item, chance, moment) in enumerate(zip(ids, chances(ids), entry.moments, strict=True))
    ]  # fmt: skip


def caption_rows(texts: Sequence[str], vectors: Sequence[Vectors | None], first: int, dimensions: int) -> list[Row]:
    """Return a row for each caption of the file whose first item is ``first``."""
    return [
        {
            "caption": caption_id(first, number, text),
            "first": first,
            "encoded": vector is not None,
            "text": _json(text),
            "vector": np.zeros(dimensions, np.float32) if vector is None else vector,
        }
        for number, (text, vector) in enumerate(zip(texts, vectors, strict=True))
    ]


def caption_text(row: Row) -> str:
    """Return the text of a caption's row."""
    return str(json.loads(row["text"]))


def file_of(row: Row) -> MediaFile:
    """Return the file of an item's row."""
    values = json.loads(row["file"])
    values |= {name: tuple(values.get(name) or ()) for name in _LISTS}
    values |= {name: from_stored(row[name]) for name in ("root", "path", "digest", "kind")}
    return MediaFile(**values, **{name: row[name] for name in ("taken", "latitude", "longitude")})


def item_of(row: Row) -> Item:
    """Return the item of a row."""
    return Item(int(row["item"]), file_of(row), row["start"], row["end"])


def vectors_of(rows: Sequence[Row], dimensions: int) -> Vectors:
    """Return the vectors ``(n, D)`` of rows."""
    return np.array([row["vector"] for row in rows], np.float32).reshape(len(rows), dimensions)


def _json(value: object) -> str:
    """Return JSON in UTF-8, or in ASCII if the value holds bytes that are not Unicode."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return text


def _bounded(name: str, column: str, text: str, max_bytes: int) -> str:
    size = len(text.encode())
    if size > max_bytes:
        raise InputError(f"{name} has {column} of {size} bytes as stored: Milvus takes at most {max_bytes}, shorten it")
    return text

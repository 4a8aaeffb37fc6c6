"""The three Milvus collections of a collection, and their columns."""

from __future__ import annotations

from typing import Any, Literal

from vse.index.milvus.state import MOST_BYTES, Index

Lane = Literal["items", "captions"]
LANES: tuple[Lane, ...] = ("items", "captions")
NEVER = 2**62
"""The batch with which rows die that live."""
NAME_BYTES = 16_384
"""A path of 4,096 bytes, each stored as three characters, fits."""
DIGEST_BYTES = 512
LINKS, BREADTH = 32, 256
"""Of the graph that an approximate search walks."""

# (name, type, options): "row" is the key and belongs to one version; "item" is the id, which stays.
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
    ("captions", "VARCHAR", {"max_length": MOST_BYTES}),
]
_CAPTION = [("caption", "INT64", {}), ("first", "INT64", {}), ("text", "VARCHAR", {"max_length": MOST_BYTES})]
_META = [("batch", "INT64", {"is_primary": True}), ("state", "VARCHAR", {"max_length": MOST_BYTES})]

ITEM_COLUMNS = tuple(name for name, _, _ in (*_VERSION, *_ITEM))
CAPTION_COLUMNS = tuple(name for name, _, _ in (*_VERSION, *_CAPTION))
COLUMNS = {"items": ITEM_COLUMNS, "captions": CAPTION_COLUMNS}
NUMBER = {"items": "item", "captions": "caption"}
"""The column that orders equal scores, and that pages go by."""


def table(name: str, lane: Lane) -> str:
    """The Milvus collection of a lane."""
    return name if lane == "items" else f"{name}_{lane}"


def meta_table(name: str) -> str:
    """The Milvus collection of the state."""
    return f"{name}_meta"


def make_tables(client: Any, name: str, dimensions: int, index: Index, timeout: float) -> None:
    """Make all three, empty and loaded; what a process that was killed had made of them is dropped before."""
    columns = {table(name, "items"): [*_VERSION, *_ITEM], table(name, "captions"): [*_VERSION, *_CAPTION]}
    for each, fields in columns.items():
        _make(client, each, fields, dimensions, index, timeout)
    _make(client, meta_table(name), _META, 2, "flat", timeout)  # Milvus wants a vector in every collection


def _make(client: Any, name: str, fields: list[Any], dimensions: int, index: Index, timeout: float) -> None:
    from pymilvus import DataType

    if client.has_collection(name, timeout=timeout):
        client.drop_collection(name, timeout=timeout)
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    for column, kind, options in fields:
        schema.add_field(column, getattr(DataType, kind), **options)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
    indexes = client.prepare_index_params()
    options = {"M": LINKS, "efConstruction": BREADTH} if index == "hnsw" else {}
    indexes.add_index(field_name="vector", index_type=index.upper(), metric_type="IP", params=options)
    client.create_collection(name, schema=schema, consistency_level="Strong", timeout=timeout)
    client.create_index(name, indexes, sync=False, timeout=timeout)  # of no rows: waiting would cost half a second
    client.load_collection(name, timeout=timeout)

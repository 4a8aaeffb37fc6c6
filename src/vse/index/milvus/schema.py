"""The three Milvus collections of a generation, and their columns."""

from __future__ import annotations

import re
from typing import Any

from vse.index.lanes import LANES, Lane
from vse.index.milvus.state import MOST_BYTES, Index

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
META_COLUMNS = frozenset((*(name for name, _, _ in _META), "vector"))
COLUMNS = {"items": ITEM_COLUMNS, "captions": CAPTION_COLUMNS}
NUMBERS = frozenset(name for name, kind, _ in (*_VERSION, *_ITEM) if kind != "VARCHAR")
"""The columns of items that take eight bytes."""
NUMBER = {"items": "item", "captions": "caption"}
"""The column that orders equal scores, and that pages go by."""


def base_name(name: str, generation: int) -> str:
    """What the names of a generation's Milvus collections begin with."""
    return name if generation == 1 else f"{name}_g{generation}"


def lane_table(base: str, lane: Lane) -> str:
    """The Milvus collection of a lane."""
    return base if lane == "items" else f"{base}_{lane}"


def meta_table(base: str) -> str:
    """The Milvus collection of the states."""
    return f"{base}_meta"


def tables_of(base: str) -> tuple[str, ...]:
    """All three, in the order in which they are dropped: without states nobody takes the rest for something whole."""
    return meta_table(base), *(lane_table(base, lane) for lane in LANES)


def generation_of(name: str, table: str) -> int | None:
    """The generation of the collection ``name`` to which a Milvus collection belongs; None when to none."""
    match = re.fullmatch(rf"{name}(?:_g([2-9]|[1-9][0-9]+))?(?:_captions|_meta)?", table)
    return None if match is None else int(match[1] or 1)


def columns_of(table: str) -> frozenset[str]:
    """The columns that a Milvus collection of ours has, by the end of its name."""
    if table.endswith("_meta"):
        return META_COLUMNS
    return frozenset((*COLUMNS["captions" if table.endswith("_captions") else "items"], "vector"))


def make_tables(client: Any, base: str, dimensions: int, index: Index, timeout: float) -> None:
    """Make all three, empty and loaded; what a process that was killed had made of them is dropped before."""
    for each in tables_of(base):
        if client.has_collection(each, timeout=timeout):
            client.drop_collection(each, timeout=timeout)
    _make(client, lane_table(base, "items"), [*_VERSION, *_ITEM], dimensions, index, timeout)
    _make(client, lane_table(base, "captions"), [*_VERSION, *_CAPTION], dimensions, index, timeout)
    _make(client, meta_table(base), _META, 2, "flat", timeout)  # Milvus wants a vector in every collection


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
    client.create_index(name, indexes, sync=False, timeout=timeout)  # of no rows: waiting would cost half a second
    client.load_collection(name, timeout=timeout)

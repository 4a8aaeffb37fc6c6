"""A :class:`~vse.index.filters.Filter` as an expression of Milvus."""

from __future__ import annotations

import math
import sys

from vse.index.filters import Filter
from vse.index.milvus.texts import literal

NOTHING = "row < 0"


def condition(where: Filter | None) -> str | None:
    """The expression over the columns of items; None when all items pass. Empty columns pass no comparison."""
    if where is None:
        return None
    parts: list[str] = []
    if where.root is not None:
        parts.append(f"root == {literal(where.root)}")
    if where.folder is not None:
        folder = where.folder
        parts += [f"path >= {literal(folder + '/')}", f"path < {literal(folder + '0')}"]  # "0" comes right after "/"
    if where.kind is not None:
        parts.append(f"kind == {literal(where.kind)}")
    if where.after is not None:
        parts.append(_compared("taken >=", where.after))
    if where.before is not None:
        parts.append(_compared("taken <", where.before))
    if where.within is not None:
        box = where.within
        parts += [_compared("latitude >=", box.south), _compared("latitude <=", box.north)]
        joined = "and" if box.west <= box.east else "or"  # a box across the date line is two
        parts.append(f"({_compared('longitude >=', box.west)} {joined} {_compared('longitude <=', box.east)})")
    return " and ".join(parts) or None


def _compared(column: str, value: float) -> str:
    """A comparison with a number; Milvus has no literals for infinity, and nothing compares with NaN."""
    if math.isnan(value):
        return NOTHING
    most = sys.float_info.max
    return f"{column} {min(max(float(value), -most), most)!r}"

"""A :class:`~vse.index.filters.Filter` as SQL."""

from __future__ import annotations

from vse.index.embedded.rows import Cell, to_bytes
from vse.index.filters import Filter


def condition(where: Filter) -> tuple[str, list[Cell]]:
    """The condition on the table ``files`` and its parameters; bounds of a box belong to it."""
    parts: list[str] = []
    cells: list[Cell] = []

    def add(part: str, *values: Cell) -> None:
        parts.append(part)
        cells.extend(values)

    if where.root is not None:
        add("root = ?", to_bytes(where.root))
    if where.folder is not None:
        folder = to_bytes(where.folder)
        add("(path >= ? AND path < ?)", folder + b"/", folder + b"0")  # "0" comes right after "/"
    if where.kind is not None:
        add("kind = ?", where.kind)
    if where.after is not None:
        add("taken >= ?", where.after)
    if where.before is not None:
        add("taken < ?", where.before)
    if where.within is not None:
        box = where.within
        add("latitude BETWEEN ? AND ?", box.south, box.north)
        joined = "AND" if box.west <= box.east else "OR"  # a box across the date line is two
        add(f"(longitude >= ? {joined} longitude <= ?)", box.west, box.east)
    return " AND ".join(parts) or "1", cells

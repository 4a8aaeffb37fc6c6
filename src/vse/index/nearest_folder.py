"""A folder in which no file lies: said in one line, with the folder that may have been meant."""

from __future__ import annotations

from vse.errors import InputError
from vse.index.collection import Collection, Vectors
from vse.index.filters import Filter
from vse.index.steady import of_hits

LOOKED_AT = 256
"""So many items tell which folders there are: a list of all files would take long."""
NAMED = 3


def expect_files(collection: Collection, vector: Vectors, where: Filter | None) -> None:
    """Raise when no file lies in the folder of a filter. ``vector (D,)`` is any query, on which nothing depends.

    Takes a search for each part of the folder, so it is for searches that found nothing. Within
    :func:`~vse.index.steady.steadily`.
    """
    if where is None or (where.folder is None and where.root is None):
        return
    parts = [] if where.folder is None else where.folder.split("/")
    if _paths(collection, vector, where.root, parts, 1):
        return
    shown = "/".join([*([where.root.rstrip("/")] if where.root is not None else []), *parts])
    raise InputError(f"no file lies in folder {shown[:200]!r}: {_hint(collection, vector, where.root, parts)}")


def _hint(collection: Collection, vector: Vectors, root: str | None, parts: list[str]) -> str:
    from difflib import get_close_matches

    for depth in range(len(parts) - 1, -1, -1):
        paths = _paths(collection, vector, root, parts[:depth], LOOKED_AT)
        below = sorted({path.split("/")[depth] for path in paths if path.count("/") > depth})
        close = get_close_matches(parts[depth], below, n=1)
        if close:
            return f"did you mean {'/'.join([*parts[:depth], *close])!r}?"
        if paths and depth:
            return f"the nearest that holds files is {'/'.join(parts[:depth])!r}"
        if below:
            more = " …" if len(below) > NAMED else ""
            return f"there are {', '.join(map(repr, below[:NAMED]))}{more}"
    return "leave it out, or index it"


def _paths(collection: Collection, vector: Vectors, root: str | None, parts: list[str], count: int) -> list[str]:
    """Paths of some files in a folder."""
    hits = collection.search(vector, count, where=Filter(folder="/".join(parts), root=root))
    return [item.file.path for item in of_hits(collection.items, hits.ids.tolist())]

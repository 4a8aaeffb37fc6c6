"""What Milvus Lite left half-written when its process was killed, and would stumble over."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

PLACES = "**/indexes/*"
FLAT = ".flat."


def remove_torn_indexes(folder: Path) -> None:
    """Remove indexes that are not whole, of a folder that nobody serves; Milvus Lite makes them anew.

    It writes them in place. One that is empty or cut off makes it refuse the whole collection, whose rows are all
    there. A flat index is an array whose header tells its size; of others only an empty file can be told.
    """
    for path in folder.glob(PLACES):
        with suppress(OSError):
            if path.is_file() and _is_torn(path):
                path.unlink()


def _is_torn(path: Path) -> bool:
    size = path.stat().st_size
    if size == 0 or FLAT not in path.name.lower():
        return size == 0
    with path.open("rb") as file:
        try:
            np.lib.format.read_magic(file)
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
        except ValueError:
            return True
        return size < file.tell() + int(np.prod(shape, dtype=np.int64)) * kind.itemsize

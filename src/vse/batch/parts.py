"""Packed files of a source: count their images in parallel, and keep the offsets of tars beside the shards."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from vse.batch.store import Store, StoreError
from vse.data.packed import MAX_MEMBERS, TAR, Member, Packed, TarImages, open_packed, tar_members
from vse.data.packed_tables import open_parquet
from vse.errors import InputError, VSEError, first_line, require

COUNTED_AT_ONCE = 16
HEADER_BLOCK = 8192
"""Bytes that are read of a tar in an object store at a header: with the small members beside an image."""
_COLUMNS = ("key", "ending", "offset", "size")
_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")


@dataclass(frozen=True)
class Part:
    """A packed file: its name, size in bytes, and number of images."""

    name: str
    size: int
    count: int


@dataclass(frozen=True)
class DamagedPart:
    """A packed file that cannot be read."""

    name: str
    reason: str


def readable_name(name: str) -> str:
    """Return a name as a part of a file name; other names may give the same.

    >>> readable_name("laion/00012.tar")
    'laion.00012'
    """
    return _UNSAFE.sub(".", name.rpartition(".")[0]).strip(".")[-60:] or "part"


def digest_of(*values: object) -> str:
    """Return a short digest of plain values."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]


def count_parts(
    store: Store, sizes: Mapping[str, int], known: Sequence[Part], offsets: Store | None
) -> tuple[list[Part], list[DamagedPart]]:
    """Count the images of packed files, in parallel; those in ``known`` are not opened.

    Args:
        store: Where they are.
        sizes: Their names and sizes.
        known: Files that were counted before; of another size they are counted again.
        offsets: Where the offsets of tars are kept, see :func:`open_part`.

    Returns:
        The files by name, and those that are damaged.

    Raises:
        StoreError: The source or ``offsets`` cannot be reached.
    """
    counted = {(part.name, part.size): part for part in known}

    def count(name: str) -> Part | DamagedPart:
        size = sizes[name]
        if (name, size) in counted:
            return counted[name, size]
        try:
            return Part(name, size, len(open_part(store, name, size, offsets)))
        except InputError as error:
            return DamagedPart(name, str(error))
        except VSEError:
            raise
        except Exception as error:  # an object store that was lost while a file was read
            raise StoreError(f"{store.place}/{name} cannot be read ({first_line(error)}): resume later") from error

    with ThreadPoolExecutor(COUNTED_AT_ONCE) as pool:
        try:
            found = list(pool.map(count, sorted(sizes)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return (
        [each for each in found if isinstance(each, Part)],
        [each for each in found if isinstance(each, DamagedPart)],
    )


def open_part(store: Store, name: str, size: int, offsets: Store | None) -> Packed:
    """Open a packed file; the offsets of a tar are read from ``offsets``, or from its headers and then kept there.

    Raises:
        InputError: It is damaged.
        StoreError: It cannot be reached.
    """
    if not name.lower().endswith(TAR):
        return open_packed(name, store.opener(name))
    kept = f"index/{readable_name(name)}-{digest_of(name, size)}.parquet"
    members = None if offsets is None else _read(offsets, kept)
    if members is None:
        members = tar_members(name, store.opener(name, HEADER_BLOCK))
        if offsets is not None:
            offsets.write(kept, _table(members))
    return TarImages(name, store.opener(name), members, store.opener(name, HEADER_BLOCK))


def _table(members: Sequence[Member]) -> bytes:
    pyarrow = require("pyarrow", "parquet", "writing Parquet")
    parquet = require("pyarrow.parquet", "parquet", "writing Parquet")
    columns: list[Any] = list(zip(*members, strict=True)) or [(), (), (), ()]
    kinds = (pyarrow.string(), pyarrow.string(), pyarrow.int64(), pyarrow.int64())
    arrays = [pyarrow.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays, names=list(_COLUMNS)), buffer, compression="zstd")
    return buffer.getvalue()


def _read(store: Store, name: str) -> list[Member] | None:
    """Return the members that were kept; None if there are none, or they cannot be read."""
    content = store.read(name)
    if not content:
        return None
    try:
        file = open_parquet(io.BytesIO(content), name)
        if tuple(file.schema_arrow.names) != _COLUMNS or file.metadata.num_rows > MAX_MEMBERS:
            return None
        table = file.read(use_threads=False)
        table.validate(full=True)
        key, ending, offset, size = (column.to_pylist() for column in table.columns)
    except (InputError, OSError, ValueError):  # errors of pyarrow are ValueErrors
        return None
    members = list(zip(key, ending, offset, size, strict=True))
    return members if all(_is_member(each) for each in members) else None


def _is_member(values: tuple[Any, ...]) -> bool:
    key, ending, offset, size = values
    return isinstance(key, str) and isinstance(ending, str) and all(map(_is_size, (offset, size)))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and value >= 0

"""How embeddings and names are stored: embeddings as float32, as float16 or as int8, names as bytes or by their hash.

A collection stores every embedding twice, in the database and in the search cache, both with the same bytes. Searches
are exact with respect to what is stored: all of them decode it with :func:`decode`, and compute in float32 and float64.

==========  ======  ============================================================================
storage     bytes   a stored value
==========  ======  ============================================================================
float32     4 D     the value
float16     2 D     the value, rounded: off by at most 2^-11 of itself
int8        D       the value by the largest of the vector, times 127; decoded to unit length
==========  ======  ============================================================================
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, unknown_choice

if TYPE_CHECKING:
    from vse.index.types import CollectionInfo

Storage = Literal["float32", "float16", "int8"]
STORAGES: tuple[Storage, ...] = get_args(Storage)
DEFAULT_STORAGE: Storage = "float32"
Rows = NDArray[Any]
"""Embeddings ``(n, D)`` as stored; the dtype says how."""
_DTYPES: dict[Storage, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "int8": np.dtype("i1"),
}
_LARGEST_CODE = 127
_KEPT_LENGTH = 4e-4
"""A vector whose length is off 1 by more is normalised before it is rounded, and then still passes for a unit one."""


def check_storage(name: str) -> Storage:
    """Return ``name``; raise InputError if embeddings cannot be stored so."""
    if name not in STORAGES:
        raise InputError(unknown_choice("storage", name, STORAGES))
    return name


def encode(vectors: NDArray[np.float32], storage: Storage) -> Rows:
    """Return unit vectors ``(..., D)`` as stored.

    Args:
        vectors: Unit vectors; a zero vector stays zero.
        storage: How to store them.

    Returns:
        An array of the same shape. Encoding what :func:`decode` returned gives the same values again.
    """
    if storage == "float32":
        return np.ascontiguousarray(vectors, _DTYPES[storage])
    if storage == "float16":
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        off = (np.abs(lengths - 1) > _KEPT_LENGTH) & (lengths > 0)
        return (vectors / np.where(off, lengths, np.float32(1))).astype(_DTYPES[storage])
    largest = np.abs(vectors).max(axis=-1, keepdims=True, initial=0)
    return np.rint(vectors * (_LARGEST_CODE / np.where(largest > 0, largest, 1))).astype(_DTYPES[storage])


def decode(rows: Rows) -> NDArray[np.float32]:
    """Return stored embeddings ``(..., D)`` as float32; a row of zeros, whose embedding was purged, stays zero.

    The result of a row does not depend on the others.
    """
    if rows.dtype != np.int8:
        return rows.astype(np.float32, copy=False)
    codes = rows.astype(np.int32)
    squares = (codes * codes).sum(axis=-1, keepdims=True)  # whole numbers: exact in any order
    return (codes / np.sqrt(np.where(squares > 0, squares, 1))).astype(np.float32)


def rounded(vectors: NDArray[np.float32], storage: Storage) -> NDArray[np.float32]:
    """Return what a collection of this storage returns for ``vectors``."""
    return decode(encode(vectors, storage))


@dataclass(frozen=True)
class VectorFormat:
    """Width and storage of the embeddings of a collection."""

    dimensions: int
    storage: Storage = DEFAULT_STORAGE

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of stored values, little endian."""
        return _DTYPES[self.storage]

    @property
    def row_bytes(self) -> int:
        """Bytes of one stored embedding."""
        return self.dimensions * self.dtype.itemsize

    def to_bytes(self, vector: NDArray[np.float32]) -> bytes:
        """Return the stored bytes of one unit vector ``(D,)``."""
        return encode(vector, self.storage).tobytes()

    def from_bytes(self, raw: bytes) -> Rows:
        """Return stored rows ``(n, D)`` as a new array."""
        return np.frombuffer(raw, self.dtype).reshape(-1, self.dimensions).copy()


def check_same_storage(info: CollectionInfo, storage: str | None) -> None:
    """Raise InputError if an existing collection stores its embeddings otherwise; None accepts any."""
    if storage is not None and check_storage(storage) != info.storage:
        raise InputError(
            f"{info.where} stores {info.storage}, not {storage}, and storage is chosen when an index is created: "
            "leave --storage out, or export it and import it into a new one"
        )


def to_bytes(text: str) -> bytes:
    """Encode text as stored; bytes of file names that are not UTF-8 survive."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InputError(f"{text!r} cannot be stored: expected Unicode, or the bytes of a file name") from None


def hashed(*parts: object, bits: int = 128) -> int:
    """Return a hash of values, the same on every machine."""
    text = json.dumps(parts, ensure_ascii=True).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest()) >> (128 - bits)


def place_key(place: tuple[str, str]) -> str:
    """Return the hash of root and path by which a server looks a file up."""
    return f"{hashed(*place):032x}"

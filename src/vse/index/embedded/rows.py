"""What the columns of a row hold, and the checksum that tells a row that decayed.

The checksum is CRC-32 over all other columns, each behind a letter for its type: numbers as eight bytes, texts and
vectors behind their length.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from vse.errors import InputError
from vse.index.collection import Vectors
from vse.index.media_file import MediaFile

Cell = int | float | str | bytes | None
STORED = np.dtype("<f4")


def checksum(cells: Iterable[Cell]) -> int:
    """CRC-32 over ``cells``; a change of any value or of their order changes it."""
    total = 0
    for cell in cells:
        total = zlib.crc32(_bytes_of(cell), total)
    return total


def _bytes_of(cell: Cell) -> bytes:
    if cell is None:
        return b"n"
    if isinstance(cell, int):
        return b"i" + struct.pack("<q", cell)
    if isinstance(cell, float):
        return b"f" + struct.pack("<d", cell)
    kind, raw = (b"b", cell) if isinstance(cell, bytes) else (b"t", cell.encode("utf-8", "surrogateescape"))
    return kind + struct.pack("<q", len(raw)) + raw


def to_bytes(text: str) -> bytes:
    """A text as it is stored; bytes of file names that are no UTF-8 survive."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InputError(f"{text!r} cannot be stored: expected Unicode, or the bytes of a file's name") from None


def to_text(raw: Cell) -> str:
    """The text that :func:`to_bytes` stored."""
    if not isinstance(raw, bytes):
        raise sqlite3.DatabaseError(f"a text is stored as {type(raw).__name__}")
    return raw.decode("utf-8", "surrogateescape")


def file_cells(file: MediaFile) -> tuple[Cell, ...]:
    """The columns of ``FILE_COLUMNS``."""
    return (
        to_bytes(file.root), to_bytes(file.path), file.kind, file.size, file.modified, file.digest,
        file.width, file.height, _real(file.taken), _real(file.latitude), _real(file.longitude), _real(file.duration),
    )  # fmt: skip


def file_of(cells: tuple[Cell, ...], captions: tuple[str, ...]) -> MediaFile:
    """The file whose columns these are."""
    root, path, *others = cells
    values: list[Any] = [to_text(root), to_text(path), *others]
    return replace(MediaFile(*values), captions=captions)


def vector_bytes(vector: Vectors) -> bytes:
    """A vector as it is stored: float32, little endian."""
    return np.ascontiguousarray(vector, dtype=STORED).tobytes()


def vectors_of(blobs: list[bytes], dimensions: int) -> Vectors:
    """Stored vectors as an array (n, D) of its own."""
    if any(not isinstance(blob, bytes) or len(blob) != dimensions * STORED.itemsize for blob in blobs):
        raise sqlite3.DatabaseError("a vector has the wrong length")
    array = np.frombuffer(b"".join(blobs), dtype=STORED).astype(np.float32)
    return array.reshape(len(blobs), dimensions)


def _real(value: float | None) -> float | None:
    return None if value is None else float(value)

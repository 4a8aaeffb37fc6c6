"""Checksums of the cached vectors: damage on disk is found before it can change an answer.

The matrix is divided into blocks of about :data:`BLOCK_BYTES`. With the 64-bit words b of a block and fixed odd weights
w, its checksum is

    Σ_i w_i · b_i  modulo 2^64

An odd weight is invertible, so any damage within one word changes the sum; other damage is missed with a probability of
about 2^-64. The sum is linear: a row that is appended or purged changes it by its own part, and a block that is not
full is summed as if it were padded with zeros. It is computed at the speed of memory.
"""

from __future__ import annotations

import os
import threading
import zlib
from io import FileIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vse.errors import VSEError
from vse.index.scoring import hashes
from vse.index.store.database import STORED
from vse.index.types import Vectors

Sums = NDArray[np.uint64]
Numbers = NDArray[np.int64]
SUM = np.dtype("<u8")
ID = np.dtype("<i8")
BLOCK_BYTES = 16384
"""A search through an approximate index verifies one block per candidate, so blocks are small."""
READ_BYTES = 4 * 2**20
MAX_READ_BYTES = 512 * 2**20
"""Larger files are mapped: 260,000 vectors of 512 dimensions are read."""
LARGEST_COSINE = 1.01
"""A score above this is no rounding error: a vector is damaged."""


class DamagedCacheError(VSEError):
    """Cached vectors cannot be trusted; ``blocks`` are the numbers of the damaged blocks, empty if all of it is."""

    def __init__(self, path: Path, blocks: Numbers, reason: str) -> None:
        super().__init__(f"{path} is damaged ({reason}): 'vse collection rebuild' writes it again")
        self.blocks = blocks


def rows_per_block(dimensions: int) -> int:
    """Return the rows of a block: an even number, so that a block consists of whole 64-bit words."""
    return max(2, BLOCK_BYTES // (dimensions * STORED.itemsize) // 2 * 2)


def block_count(rows: int, dimensions: int) -> int:
    """Return the number of blocks that ``rows`` rows take."""
    return -(-rows // rows_per_block(dimensions))


def weights(dimensions: int) -> Sums:
    """Return the weights of the words of a block."""
    words = rows_per_block(dimensions) * dimensions * STORED.itemsize // SUM.itemsize
    return hashes(np.arange(1, words + 1)) | np.uint64(1)


def sums_of(vectors: Vectors, first_row: int = 0) -> Sums:
    """Return what ``vectors (n, D)``, rows from ``first_row`` on, add to the checksums of the blocks they touch."""
    count, dimensions = vectors.shape
    size = rows_per_block(dimensions)
    before = first_row % size
    blocks = -(-(before + count) // size)
    padded = np.ascontiguousarray(vectors, STORED)
    if before or count % size:
        padded = np.zeros((blocks * size, dimensions), STORED)
        padded[before : before + count] = vectors
    return padded.reshape(blocks, size * dimensions).view(SUM) @ weights(dimensions)  # modulo 2^64


def extended(sums: Sums, vectors: Vectors, first_row: int) -> Sums:
    """Return the checksums after ``vectors`` were appended at ``first_row``."""
    parts = sums_of(vectors, first_row)
    first = first_row // rows_per_block(vectors.shape[1])
    total = np.zeros(max(len(sums), first + len(parts)), np.uint64)
    total[: len(sums)] = sums
    total[first : first + len(parts)] += parts
    return total


def ids_checksum(ids: Numbers, before: int = 0) -> int:
    """Return the CRC-32 of ids that follow those with the checksum ``before``; purging one does not change it."""
    return zlib.crc32(np.abs(ids).astype(ID).tobytes(), before)


def file_checksum(path: Path) -> int:
    """Return the CRC-32 of a file, read in blocks."""
    total = 0
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            total = zlib.crc32(block, total)
    return total


class IntactFile:
    """A file that other code maps into memory: reading beyond its end there would kill the process."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self.file = path.open("rb", buffering=0)  # stays readable when the writer replaces it
        if os.fstat(self.file.fileno()).st_size < size:
            self.file.close()
            raise OSError(f"{path} is shorter than {size} bytes")

    def check(self) -> None:
        """Raise :class:`DamagedCacheError` if the file was shortened since it was opened."""
        if os.fstat(self.file.fileno()).st_size < self.size:
            raise DamagedCacheError(self.path, np.empty(0, np.int64), "it was shortened")

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


class VectorFile:
    """The vectors of a cache; blocks are read or mapped, and verified when they are first used.

    Up to :data:`MAX_READ_BYTES` blocks are read into memory. Larger files are mapped: they share the memory of all
    readers, but a page that vanishes while it is used ends the process.

    Args:
        path: The file.
        rows: Rows to use.
        dimensions: Values of a row.
        sums: Checksums of the blocks; None for a cache of an earlier version, which has none.

    Raises:
        OSError: The file is missing or too short.
    """

    def __init__(self, path: Path, rows: int, dimensions: int, sums: Sums | None) -> None:
        self.dimensions, self.rows, self._sums = dimensions, rows, sums
        self.path = path
        shape, size = (rows, dimensions), rows * dimensions * STORED.itemsize
        self._file = IntactFile(path, size)
        self._mapped = size > MAX_READ_BYTES
        # Memory that is never written to is never taken: blocks that no search needs cost nothing.
        self.matrix: Vectors = (
            np.asarray(np.memmap(path, STORED, "r", shape=shape)) if self._mapped else np.zeros(shape, STORED)
        )
        self._verified = np.full(block_count(rows, dimensions), sums is None and self._mapped)
        self.complete = bool(self._verified.all())
        self._lock = threading.Lock()

    def verify(self, rows: Numbers | None = None) -> None:
        """Verify the blocks that hold these rows, all by default, unless that was done before.

        Raises:
            DamagedCacheError: A block does not match its checksum or cannot be read.
        """
        if self._mapped:
            self._file.check()
        if self.complete:
            return
        size = rows_per_block(self.dimensions)
        with self._lock:
            wanted = ~self._verified
            if rows is not None:
                asked = np.zeros_like(wanted)
                asked[rows // size] = True
                wanted &= asked
            damaged = [
                block for run in _runs(np.flatnonzero(wanted), self._block_bytes) for block in self._damaged(run)
            ]
            self.complete = bool(self._verified.all())
        if damaged:
            raise DamagedCacheError(self._file.path, np.array(damaged, np.int64), "a checksum does not match")

    def accept(self, blocks: Numbers) -> None:
        """Take blocks for verified that were compared with the database."""
        with self._lock:
            self._verified[blocks] = True

    def rows_of(self, blocks: Numbers) -> Numbers:
        """Return the rows of these blocks."""
        size = rows_per_block(self.dimensions)
        rows = (blocks[:, None] * size + np.arange(size)).reshape(-1)
        return rows[rows < self.rows]

    @property
    def _block_bytes(self) -> int:
        return rows_per_block(self.dimensions) * self.dimensions * STORED.itemsize

    def row(self, number: int) -> Vectors:
        """Return one row ``(1, D)`` as the file holds it, not verified."""
        buffer = bytearray(self.dimensions * STORED.itemsize)
        self._file.file.seek(number * len(buffer))
        if _read_all(self._file.file, buffer) < len(buffer):
            raise DamagedCacheError(self.path, np.empty(0, np.int64), "it was shortened")
        return np.frombuffer(buffer, STORED).reshape(1, self.dimensions)

    def _damaged(self, blocks: Numbers) -> Numbers:
        """Read a run of adjacent blocks; return those that do not match, the others are marked as verified.

        The file is read, not the mapped memory: a page that the disk cannot deliver is an error here, a signal there.
        """
        first = int(blocks[0]) * rows_per_block(self.dimensions)
        count = min(len(blocks) * rows_per_block(self.dimensions), self.rows - first)
        part = self.matrix[first : first + count]
        if self._mapped:
            part = np.empty(part.shape, STORED)
        buffer = part.data.cast("B")
        try:
            self._file.file.seek(first * self.dimensions * STORED.itemsize)
            if _read_all(self._file.file, buffer) < len(buffer):
                return blocks
        except OSError:
            return blocks
        same = np.full(len(blocks), True) if self._sums is None else sums_of(part) == self._sums[blocks]
        self._verified[blocks[same]] = True
        return blocks[~same]


def _read_all(file: FileIO, buffer: bytearray | memoryview) -> int:
    view, done = memoryview(buffer), 0
    while done < len(buffer):
        count = file.readinto(view[done:])
        if not count:
            break
        done += count
    return done


def _runs(blocks: Numbers, block_bytes: int) -> list[Numbers]:
    """Split ascending block numbers into runs of adjacent ones, each small enough to be read at once."""
    if not len(blocks):
        return []
    largest = max(1, READ_BYTES // block_bytes)
    runs = np.split(blocks, np.flatnonzero(np.diff(blocks) != 1) + 1)
    return [run[start : start + largest] for run in runs for start in range(0, len(run), largest)]

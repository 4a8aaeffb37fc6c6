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
from vse.index.storage import Rows, VectorFormat

Sums = NDArray[np.uint64]
Numbers = NDArray[np.int64]
SUM = np.dtype("<u8")
ID = np.dtype("<i8")
BLOCK_BYTES = 16384
"""A search through an approximate index verifies one block per candidate, so blocks are small."""
READ_BYTES = 4 * 2**20
MAX_READ_BYTES = 512 * 2**20
"""Larger files are mapped: 260,000 vectors of 512 dimensions in float32 are read."""
LARGEST_COSINE = 1.01
"""A score above this is no rounding error: a vector is damaged."""


class DamagedCacheError(VSEError):
    """Cached vectors cannot be trusted; ``blocks`` are the numbers of the damaged blocks, empty if all of it is."""

    def __init__(self, path: Path, blocks: Numbers, reason: str) -> None:
        super().__init__(f"{path} is damaged ({reason}): 'vse collection rebuild' writes it again")
        self.blocks = blocks


def rows_per_block(dimensions: int, value_bytes: int = 4) -> int:
    """Return the rows of a block: a multiple of as many as surely consist of whole 64-bit words."""
    whole = SUM.itemsize // value_bytes
    return max(whole, BLOCK_BYTES // (dimensions * value_bytes) // whole * whole)


def block_count(rows: int, dimensions: int, value_bytes: int = 4) -> int:
    """Return the number of blocks that ``rows`` rows take."""
    return -(-rows // rows_per_block(dimensions, value_bytes))


def weights(dimensions: int, value_bytes: int = 4) -> Sums:
    """Return the weights of the words of a block."""
    words = rows_per_block(dimensions, value_bytes) * dimensions * value_bytes // SUM.itemsize
    return hashes(np.arange(1, words + 1)) | np.uint64(1)


def sums_of(vectors: Rows, first_row: int = 0) -> Sums:
    """Return what stored ``vectors (n, D)`` add to the checksums of the blocks they touch, from ``first_row`` on."""
    (count, dimensions), stored = vectors.shape, vectors.dtype.newbyteorder("<")
    size = rows_per_block(dimensions, stored.itemsize)
    before = first_row % size
    blocks = -(-(before + count) // size)
    padded = np.ascontiguousarray(vectors, stored)
    if before or count % size:
        padded = np.zeros((blocks * size, dimensions), stored)
        padded[before : before + count] = vectors
    return padded.reshape(blocks, size * dimensions).view(SUM) @ weights(dimensions, stored.itemsize)  # modulo 2^64


def extended(sums: Sums, vectors: Rows, first_row: int) -> Sums:
    """Return the checksums after stored ``vectors`` were appended at ``first_row``."""
    parts = sums_of(vectors, first_row)
    first = first_row // rows_per_block(vectors.shape[1], vectors.dtype.itemsize)
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
        form: Width and storage of a row.
        sums: Checksums of the blocks; None for a cache of an earlier version, which has none.

    Raises:
        OSError: The file is missing or too short.
    """

    def __init__(self, path: Path, rows: int, form: VectorFormat, sums: Sums | None) -> None:
        self.form, self.rows, self._sums = form, rows, sums
        self.path = path
        self.block_rows = rows_per_block(form.dimensions, form.dtype.itemsize)
        shape, size = (rows, form.dimensions), rows * form.row_bytes
        self._file = IntactFile(path, size)
        self._mapped = size > MAX_READ_BYTES
        # Memory that is never written to is never taken: blocks that no search needs cost nothing.
        self.matrix: Rows = (
            np.asarray(np.memmap(path, form.dtype, "r", shape=shape)) if self._mapped else np.zeros(shape, form.dtype)
        )
        self._verified = np.full(-(-rows // self.block_rows), sums is None and self._mapped)
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
        size = self.block_rows
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
        size = self.block_rows
        rows = (blocks[:, None] * size + np.arange(size)).reshape(-1)
        return rows[rows < self.rows]

    @property
    def _block_bytes(self) -> int:
        return self.block_rows * self.form.row_bytes

    def row(self, number: int) -> Rows:
        """Return one row ``(1, D)`` as the file holds it, not verified."""
        buffer = bytearray(self.form.row_bytes)
        self._file.file.seek(number * len(buffer))
        if _read_all(self._file.file, buffer) < len(buffer):
            raise DamagedCacheError(self.path, np.empty(0, np.int64), "it was shortened")
        return self.form.from_bytes(bytes(buffer))

    def read(self, block: int, count: int = 1) -> Rows:
        """Return the rows of ``count`` blocks from ``block`` on, read from the file and verified: nothing stays mapped.

        Raises:
            DamagedCacheError: A block does not match its checksum or cannot be read.
        """
        first = block * self.block_rows
        part = np.empty((min(count * self.block_rows, self.rows - first), self.form.dimensions), self.form.dtype)
        with self._lock:
            damaged = self._damaged(np.arange(block, block + -(-len(part) // self.block_rows)), part)
        if len(damaged):
            raise DamagedCacheError(self.path, damaged, "a checksum does not match")
        return part

    def _damaged(self, blocks: Numbers, into: Rows | None = None) -> Numbers:
        """Read a run of adjacent blocks; return those that do not match, the others are marked as verified.

        The file is read, not the mapped memory: a page that the disk cannot deliver is an error here, a signal there.
        """
        first = int(blocks[0]) * self.block_rows
        count = min(len(blocks) * self.block_rows, self.rows - first)
        part = self.matrix[first : first + count] if into is None else into
        if self._mapped and into is None:
            part = np.empty(part.shape, part.dtype)
        buffer = part.data.cast("B")
        try:
            self._file.file.seek(first * self.form.row_bytes)
            if _read_all(self._file.file, buffer) < len(buffer):
                return blocks
        except OSError:
            return blocks
        same = np.full(len(blocks), True) if self._sums is None else sums_of(part) == self._sums[blocks]
        if into is None or self._mapped:  # what is not mapped is in the matrix only once it was read into it
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

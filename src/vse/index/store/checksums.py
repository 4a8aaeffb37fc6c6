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
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vse._util.worker_process import available_memory
from vse.errors import VSEError, first_line
from vse.index.scoring import hashes
from vse.index.storage import Rows, VectorFormat

Sums = NDArray[np.uint64]
Numbers = NDArray[np.int64]
SUM = np.dtype("<u8")
ID = np.dtype("<i8")
BLOCK_BYTES = 16384
"""A search through an approximate index verifies one block per candidate, so blocks are small."""
READ_BYTES = 4 * 2**20
MAX_READ_BYTES = max(512 * 2**20, available_memory() // 8)
"""Up to here a file stays in memory: an eighth of it, and at least 260,000 vectors of 512 dimensions in float32.

Larger files are read in parts, which makes a scan two or three times as long. Nothing is mapped: a page that vanishes
while it is used would end the process.
"""
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
    """A file of the cache that stays open, and is read at any place by several threads."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self.file = path.open("rb", buffering=0)  # stays readable when the writer replaces it
        self._lock = threading.Lock()
        if os.fstat(self.file.fileno()).st_size < size:
            self.file.close()
            raise OSError(f"{path} is shorter than {size} bytes")

    def check(self) -> None:
        """Raise :class:`DamagedCacheError` if the file was shortened since it was opened."""
        if os.fstat(self.file.fileno()).st_size < self.size:
            raise DamagedCacheError(self.path, np.empty(0, np.int64), "it was shortened")

    def read(self, place: int, buffer: bytearray | memoryview) -> None:
        """Fill the buffer with the bytes from ``place`` on.

        Raises:
            OSError: They cannot be read, or the file ends before.
        """
        view, done = memoryview(buffer), 0
        while done < len(view):
            if hasattr(os, "preadv"):
                count = os.preadv(self.file.fileno(), [view[done:]], place + done)
            else:
                with self._lock:
                    self.file.seek(place + done)
                    count = self.file.readinto(view[done:]) or 0
            if not count:
                raise OSError(f"{self.path} was shortened")
            done += count

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


class VectorFile:
    """The vectors of a cache; blocks are read and verified when they are first used.

    Up to :data:`MAX_READ_BYTES` they stay in memory. Of larger files what is needed is read each time, from the pages
    that the system keeps for all readers.

    Args:
        path: The file.
        rows: Rows to use.
        form: Width and storage of a row.
        sums: Checksums of the blocks.

    Raises:
        OSError: The file is missing or too short.
    """

    def __init__(self, path: Path, rows: int, form: VectorFormat, sums: Sums) -> None:
        self.form, self.rows, self._sums = form, rows, sums
        self.path = path
        self.block_rows = rows_per_block(form.dimensions, form.dtype.itemsize)
        shape, size = (rows, form.dimensions), rows * form.row_bytes
        self._file = IntactFile(path, size)
        # Memory that is never written to is never taken: blocks that no search needs cost nothing.
        self._matrix: Rows | None = None if size > MAX_READ_BYTES else np.zeros(shape, form.dtype)
        self._verified = np.zeros(-(-rows // self.block_rows), bool)
        self.complete = not len(self._verified)
        self._lock = threading.Lock()

    @property
    def matrix(self) -> Rows | StoredRows:
        """The vectors ``(rows, D)`` as stored; in memory, those of a block that was not verified may be missing."""
        return StoredRows(self) if self._matrix is None else self._matrix

    def take(self, rows: Numbers, *, verified: bool = True) -> Rows:
        """Return these rows as stored, in this order, after :meth:`verify` unless they are to be compared.

        Raises:
            DamagedCacheError: A block does not match its checksum or cannot be read.
        """
        if verified:
            self.verify(rows)
        if self._matrix is not None:
            return self._matrix[rows]
        order = np.argsort(rows, kind="stable")
        ascending, part = rows[order], np.empty((len(rows), self.form.dimensions), self.form.dtype)
        size, near = self.form.row_bytes, max(1, BLOCK_BYTES // self.form.row_bytes)
        view, most = part.data.cast("B"), READ_BYTES // BLOCK_BYTES
        ends = np.flatnonzero(np.diff(ascending, append=self.rows + near + 1) > near) + 1
        start = 0
        for end in ends.tolist():
            if end - start == 1:
                self._read(int(ascending[start]) * size, view[start * size : end * size])
            for some in range(start, end if end - start > 1 else start, most):
                span = ascending[some : min(some + most, end)]
                part[some : some + len(span)] = self._part(int(span[0]), int(span[-1]) + 1)[span - span[0]]
            start = end
        found = np.empty_like(part)
        found[order] = part
        return found

    def parts(self, start: int, rows: int) -> Iterator[tuple[int, Rows]]:
        """Yield all rows from ``start`` on, about ``rows`` at a time, after :meth:`verify`, each with its number.

        What was yielded is overwritten by the next rows: a buffer that stays in the processor's cache is filled several
        times as fast as new memory.
        """
        buffer = np.empty((rows, self.form.dimensions), self.form.dtype)
        for block in range(start, self.rows, READ_BYTES // self.form.row_bytes + 1):
            end = min(block + READ_BYTES // self.form.row_bytes + 1, self.rows)
            if not self.complete:
                self.verify(np.arange(block, end))
            for first in range(block, end, rows):
                part = buffer[: min(rows, end - first)]
                self._read(first * self.form.row_bytes, part.data.cast("B"))
                yield first, part

    def _part(self, start: int, stop: int) -> Rows:
        part = np.empty((stop - start, self.form.dimensions), self.form.dtype)
        self._read(start * self.form.row_bytes, part.data.cast("B"))
        return part

    def _read(self, place: int, buffer: memoryview) -> None:
        try:
            self._file.read(place, buffer)
        except OSError as error:
            raise DamagedCacheError(self.path, np.empty(0, np.int64), first_line(error)) from None

    def verify(self, rows: Numbers | None = None) -> None:
        """Verify the blocks that hold these rows, all by default, unless that was done before.

        Raises:
            DamagedCacheError: A block does not match its checksum or cannot be read.
        """
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
        return self._part(number, number + 1)

    def read(self, block: int, count: int = 1) -> Rows:
        """Return the rows of ``count`` blocks from ``block`` on, read from the file and verified.

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
        """Read a run of adjacent blocks; return those that do not match, the others are marked as verified."""
        first = int(blocks[0]) * self.block_rows
        count = min(len(blocks) * self.block_rows, self.rows - first)
        if into is not None:
            part = into
        elif self._matrix is not None:
            part = self._matrix[first : first + count]
        else:
            part = np.empty((count, self.form.dimensions), self.form.dtype)
        try:
            self._file.read(first * self.form.row_bytes, part.data.cast("B"))
        except OSError:
            return blocks
        same = sums_of(part) == self._sums[blocks]
        if into is None or self._matrix is None:  # a matrix has only what was read into it
            self._verified[blocks[same]] = True
        return blocks[~same]


class StoredRows:
    """The rows of a large file from ``first`` on: read, and verified, when they are asked for."""

    def __init__(self, file: VectorFile, first: int = 0) -> None:
        self._file, self._first = file, first
        self.shape, self.dtype = (file.rows - first, file.form.dimensions), file.form.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Numbers) -> Rows:
        return self._file.take(self._first + rows)

    def after(self, start: int) -> StoredRows:
        """Return the rows from ``start`` on, not read yet."""
        return StoredRows(self._file, self._first + start)

    def parts(self, size: int) -> Iterator[tuple[int, Rows]]:
        """Yield all rows with the number of the first, in parts of ``size`` bytes; each overwrites the one before."""
        for start, part in self._file.parts(self._first, max(1, size // self._file.form.row_bytes)):
            yield start - self._first, part


def _runs(blocks: Numbers, block_bytes: int) -> list[Numbers]:
    """Split ascending block numbers into runs of adjacent ones, each small enough to be read at once."""
    if not len(blocks):
        return []
    largest = max(1, READ_BYTES // block_bytes)
    runs = np.split(blocks, np.flatnonzero(np.diff(blocks) != 1) + 1)
    return [run[start : start + largest] for run in runs for start in range(0, len(run), largest)]

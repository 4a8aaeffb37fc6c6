"""Approximate indexes over the rows of a cache, for collections that are too large to scan on every search.

From :data:`HNSW_FROM` vectors on a graph is used (HNSW over 8-bit codes), from :data:`IVFPQ_FROM` on inverted lists of
product-quantization codes, which need less memory. Neither stores the vectors: an index proposes :data:`POOL` rows
whatever ``k`` is, and these are scored exactly. Searches for more than :data:`MAX_RESULTS` results are always exact.
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import settle
from vse.errors import first_line
from vse.index.store.checksums import MAX_READ_BYTES
from vse.index.types import Vectors
from vse.progress import ProgressReporter, SilentProgress

Kind = Literal["hnsw", "ivfpq"]
HNSW_FROM = 200_000
IVFPQ_FROM = 5_000_000
POOL = 384
MAX_RESULTS = 256
TAIL = 0.2
"""Fraction of rows that may lie beyond the index, where they are scanned exactly, before it is rebuilt."""
LINKS = 32
PROBED = 1 / 32
"""Fraction of the inverted lists that a search visits."""
BLOCK = 2048
"""Rows indexed between two progress reports: about a second's work."""
TRAINING_ROWS = 100_000
LEAST_ALLOWED = 0.5
"""A filter that passes less than this fraction of rows is searched exactly: an index would find too few of them."""


def kind_for(rows: int) -> Kind | None:
    """Return the kind of index for a collection of this size; None means exact search."""
    if rows >= IVFPQ_FROM:
        return "ivfpq"
    return "hnsw" if rows >= HNSW_FROM else None


def build(kind: Kind, matrix: Vectors, path: Path, progress: ProgressReporter | None = None) -> None:
    """Index all rows of ``matrix`` and write the index to ``path`` atomically; this takes minutes.

    Purged rows are zero and are indexed too.

    Args:
        kind: The kind of index.
        matrix: Vectors ``(rows, D)``.
        path: Where to write; left as it was when the build fails or is interrupted.
        progress: Receives the number of rows indexed.

    Raises:
        OSError: FAISS failed, memory ran out, or the index could not be written.
    """
    faiss = library()
    report = progress or SilentProgress()
    count, dimensions = matrix.shape
    report.start(count, "building the approximate index")
    try:
        index = faiss.index_factory(dimensions, recipe(kind, count, dimensions), faiss.METRIC_INNER_PRODUCT)
        step = max(1, count // training_rows(kind, count))
        index.train(np.ascontiguousarray(matrix[::step]))
        for start in range(0, count, BLOCK):
            index.add(np.ascontiguousarray(matrix[start : start + BLOCK]))
            report.advance(min(BLOCK, count - start))
        _write(index, path)
    except (RuntimeError, MemoryError) as error:
        raise OSError(f"{path.name} cannot be built: {first_line(error)}") from error
    finally:
        report.finish()


def _write(index: Any, path: Path) -> None:
    beside = path.with_name(path.name + "-new")  # readers may have mapped the current one
    try:
        library().write_index(index, str(beside))
        settle(beside)
        beside.replace(path)
    except RuntimeError as error:
        raise OSError(f"{path.name} cannot be written: {first_line(error)}") from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def recipe(kind: Kind, count: int, dimensions: int) -> str:
    """Return the FAISS factory string."""
    if kind == "hnsw":
        return f"HNSW{LINKS}_SQ8"
    pieces = next(
        each for each in (64, 32, 16, 8, 4, 2, 1) if dimensions % each == 0 and 4 * each <= max(dimensions, 4)
    )
    return f"IVF{lists(count)},PQ{pieces}np"  # np: skip ordering codes for polysemous search, which takes minutes


def lists(count: int) -> int:
    """Return the number of inverted lists for ``count`` vectors: 4 √n."""
    return max(1, round(4 * math.sqrt(count)))


def training_rows(kind: Kind, count: int) -> int:
    """Return how many rows to train codes on: for lists the 40 per list that FAISS asks for, within limits."""
    return min(count, TRAINING_ROWS if kind == "hnsw" else max(40 * lists(count), 40 * 256))


def load(path: Path, rows: int, dimensions: int) -> Any:
    """Load the index over ``rows`` rows; None when missing, corrupt or of another size.

    One above :data:`MAX_READ_BYTES` is memory-mapped: a file that is shortened under a mapping ends the process.
    """
    faiss = library()
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if path.stat().st_size > MAX_READ_BYTES else 0)
    except (RuntimeError, OSError):
        return None
    return index if (index.ntotal, index.d) == (rows, dimensions) else None


def propose(index: Any, query: Vectors, allowed: NDArray[np.bool_] | None) -> NDArray[np.int64] | None:
    """Return at most :data:`POOL` rows that are likely among the best; None when a filter allows too few rows."""
    faiss = library()
    part = 1.0 if allowed is None else np.count_nonzero(allowed) / max(1, len(allowed))
    if part < LEAST_ALLOWED:
        return None
    chosen = None if part == 1.0 else selector(allowed)
    if isinstance(index, faiss.IndexIVF):
        visited = max(8, round(PROBED * index.nlist))
        parameters = faiss.SearchParametersIVF(sel=chosen, nprobe=visited)
    else:
        parameters = faiss.SearchParametersHNSW(sel=chosen, efSearch=round(POOL / part))
    rows = index.search(query[None], POOL, params=parameters)[1][0]
    return rows[rows >= 0]


def library() -> Any:
    """Return the module ``faiss``, imported on first use."""
    import faiss

    return faiss


def selector(allowed: NDArray[np.bool_] | None) -> Any:
    """Return the FAISS selector of the rows that are True; None allows all."""
    return None if allowed is None else library().IDSelectorBitmap(np.packbits(allowed, bitorder="little"))

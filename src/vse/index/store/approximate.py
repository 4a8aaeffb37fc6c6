"""Approximate indexes over the rows of a cache, for collections that are too large to scan on every search.

From :data:`HNSW_FROM` vectors on a graph is used (HNSW over 8-bit codes), from :data:`IVFPQ_FROM` on inverted lists of
product-quantization codes, which need a tenth of the memory. Neither stores the vectors: an index proposes
:data:`POOL` rows whatever ``k`` is, and these are read from the cache and scored exactly. Searches for more than
:data:`MAX_RESULTS` results are always exact.

Inverted lists
    The vectors are projected on their :data:`PROJECTED` principal components and rotated at random, assigned to one of
    at most 4 √n lists, and coded in :data:`CODE_BYTES` bytes. Training uses a sample. A search visits ``nprobe`` lists:
    the build takes as many as find :data:`RECALL` of the ten nearest neighbours of :data:`TRIALS` of the vectors, which
    it determines exactly while it reads them, and :data:`MARGIN` times as many for queries that resemble no vector.

Memory
    Building holds the codes and row numbers, 72 bytes per vector, the training sample and one block of vectors.
    Searching holds a graph, and of inverted lists beyond an eighth of the memory the centroids alone: the lists that a
    search visits are read, and so are the rows that it scores. Nothing is mapped.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import settle
from vse.errors import first_line
from vse.index.storage import decode
from vse.index.store.checksums import MAX_READ_BYTES, DamagedCacheError, IntactFile, VectorFile
from vse.index.types import Vectors
from vse.progress import ProgressReporter, SilentProgress

Kind = Literal["hnsw", "ivfpq"]
HNSW_FROM = 200_000
IVFPQ_FROM = 1_000_000
POOL = 384
MAX_RESULTS = 256
TAIL = 0.2
"""Fraction of rows that may lie beyond the index, where they are scanned exactly, before it is rebuilt."""
LINKS = 32
PROBED = 1 / 32
"""Fraction of the inverted lists that a search visits if the build chose none, as in earlier versions."""
PROJECTED, CODE_BYTES = 128, 64
RECALL, TRIALS, NEIGHBOURS, MARGIN = 0.95, 100, 10, 2
LEAST_PROBES = 8
PARALLEL_FROM = 100_000
"""Rows from which on several threads fill inverted lists; FAISS decides how many there are."""
BLOCK = 2048
"""Rows indexed between two progress reports: less than a second's work."""
TRAINING_ROWS = 50_000
ROWS_PER_LIST, ITERATIONS = 24, 8
"""Training rows for each inverted list, and passes over them."""
POINTS_PER_CODE = 80
"""Training rows for each of the 256 values of a code byte."""
LEAST_ALLOWED = 0.5
"""A filter that passes less than this fraction of rows is searched exactly: an index would find too few of them."""


def kind_for(rows: int) -> Kind | None:
    """Return the kind of index for a collection of this size; None means exact search."""
    if rows >= IVFPQ_FROM:
        return "ivfpq"
    return "hnsw" if rows >= HNSW_FROM else None


def build(kind: Kind, vectors: VectorFile, path: Path, progress: ProgressReporter | None = None) -> None:
    """Index all rows of ``vectors`` and write the index to ``path`` atomically; this takes minutes.

    Purged rows are zero and are indexed too. Rows are read block by block and verified, not mapped.

    Args:
        kind: The kind of index.
        vectors: The vectors.
        path: Where to write; left as it was when the build fails or is interrupted.
        progress: Receives the number of rows indexed.

    Raises:
        DamagedCacheError: A block of vectors does not match its checksum.
        OSError: FAISS failed, memory ran out, or the index could not be written.
    """
    faiss = library()
    report = progress or SilentProgress()
    count, dimensions = vectors.rows, vectors.form.dimensions
    report.start(count, "building the approximate index")
    try:
        index = faiss.index_factory(dimensions, recipe(kind, count, dimensions), faiss.METRIC_INNER_PRODUCT)
        trial = _Trial(_sample(vectors, TRIALS, 1) if kind == "ivfpq" else np.empty((0, dimensions), np.float32))
        _train(index, vectors, training_rows(kind, count))
        workers = faiss.omp_get_max_threads() if kind == "ivfpq" and count >= PARALLEL_FROM else 1
        _add_all(index, vectors, trial, report, workers)
        if kind == "ivfpq":
            faiss.extract_index_ivf(index).nprobe = trial.probes(index)
        _write(index, path)
    except (RuntimeError, MemoryError) as error:
        raise OSError(f"{path.name} cannot be built: {first_line(error)}") from error
    finally:
        report.finish()


def _sample(vectors: VectorFile, count: int, per_block: int = 4) -> Vectors:
    """Return about ``count`` rows: the first few of evenly spread blocks, without purged ones."""
    return np.concatenate([*_samples(vectors, count, per_block), np.empty((0, vectors.form.dimensions), np.float32)])


def _samples(vectors: VectorFile, count: int, per_block: int = 4) -> Iterator[Vectors]:
    blocks = -(-vectors.rows // vectors.block_rows)
    each = min(vectors.block_rows, max(per_block, -(-count // blocks)))  # few: neighbouring rows are often alike
    for block in np.unique(np.linspace(0, blocks - 1, -(-count // each)).astype(np.int64)).tolist():
        rows = vectors.read(block)[:each]
        yield decode(rows[rows.any(axis=1)])


def _train(index: Any, vectors: VectorFile, count: int) -> None:
    """Train codes and lists on a sample; a projection is trained first, and applied while the sample is read."""
    faiss = library()
    if isinstance(index, faiss.IndexHNSW):
        index.train(_sample(vectors, count))
        return
    projection, lists = None, index
    if isinstance(index, faiss.IndexPreTransform):
        projection, lists = faiss.downcast_VectorTransform(index.chain.at(0)), faiss.downcast_index(index.index)
        projection.train(_sample(vectors, TRAINING_ROWS))
    for clustering in (lists.cp, lists.pq.cp):
        clustering.niter, clustering.min_points_per_centroid = ITERATIONS, 1  # FAISS would warn below 39
    lists.pq.cp.max_points_per_centroid = POINTS_PER_CODE
    lists.train(
        np.concatenate([rows if projection is None else projection.apply(rows) for rows in _samples(vectors, count)])
    )
    index.is_trained = True


def _add_all(index: Any, vectors: VectorFile, trial: _Trial, report: ProgressReporter, workers: int) -> None:
    """Add all rows. Inverted lists are filled by several threads, each with lists of its own, which are then merged.

    Threads that share the work on one block would wait for each other after every block.
    """
    faiss, guard, stopped = library(), threading.Lock(), threading.Event()
    starts = range(0, vectors.rows, max(1, BLOCK // vectors.block_rows) * vectors.block_rows)

    def fill(part: Any, mine: Sequence[int]) -> None:
        if workers > 1:
            faiss.omp_set_num_threads(1)  # of this thread
        for start in mine:
            if stopped.is_set():
                return
            rows = decode(vectors.read(start // vectors.block_rows, starts.step // vectors.block_rows))
            if workers > 1:
                part.add_with_ids(rows, np.arange(start, start + len(rows)))
            else:
                part.add(rows)
            with guard:
                trial.add(rows, start)
                report.advance(len(rows))

    if workers == 1:
        fill(index, starts)
        return
    parts = [index, *(faiss.clone_index(index) for _ in range(workers - 1))]
    with ThreadPoolExecutor(workers) as pool:
        filling = [pool.submit(fill, part, starts[number::workers]) for number, part in enumerate(parts)]
        try:
            for each in as_completed(filling):
                each.result()
        except BaseException:
            stopped.set()
            raise
    for part in parts[1:]:
        index.merge_from(part, 0)


class _Trial:
    """Exact nearest neighbours of a few rows, collected while all rows pass by."""

    def __init__(self, queries: Vectors) -> None:
        self.queries = queries
        shape = len(queries), NEIGHBOURS + 1  # a row is its own nearest neighbour
        self._scores, self._rows = np.full(shape, -np.inf, np.float32), np.full(shape, -1, np.int64)

    def add(self, vectors: Vectors, start: int) -> None:
        """Compare all queries with the rows from ``start`` on."""
        scores = self.queries @ vectors.T
        for query, row in np.argwhere(scores > self._scores.min(axis=1, keepdims=True)):
            last = int(self._scores[query].argmin())
            if scores[query, row] > self._scores[query, last]:
                self._scores[query, last], self._rows[query, last] = scores[query, row], start + row

    def probes(self, index: Any) -> int:
        """Return how many lists to visit: the least power of two that reaches the recall, and a margin."""
        count = int(library().extract_index_ivf(index).nlist)
        probes = LEAST_PROBES
        while probes < count and self._recall(index, probes) < RECALL:
            probes *= 2
        return min(count, MARGIN * probes)

    def _recall(self, index: Any, probes: int) -> float:
        found = index.search(self.queries, POOL, params=_parameters(index, None, probes))[1]
        hits = [np.isin(true[true >= 0], rows).mean() for true, rows in zip(self._rows, found, strict=True)]
        return float(np.mean(hits)) if hits else 1.0


def _write(index: Any, path: Path) -> None:
    beside = path.with_name(path.name + "-new")  # readers have the current one open
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
    # np: skip ordering codes for polysemous search, which takes minutes
    if dimensions > PROJECTED:
        return f"PCAR{PROJECTED},IVF{lists(count)},PQ{CODE_BYTES}np"
    pieces = next(
        each for each in (64, 32, 16, 8, 4, 2, 1) if dimensions % each == 0 and 4 * each <= max(dimensions, 4)
    )
    return f"IVF{lists(count)},PQ{pieces}np"


def lists(count: int) -> int:
    """Return the number of inverted lists: 4 √n, from a million vectors on as few as leave 2,500 vectors in each.

    Up to 40 million vectors that is less work: finding the list of a vector is most of the build.
    """
    return max(1, min(round(4 * math.sqrt(count)), max(4000, count // 2500)))


def training_rows(kind: Kind, count: int) -> int:
    """Return how many rows to train codes on: for lists a few for each, and enough for 256 codes."""
    return min(count, TRAINING_ROWS if kind == "hnsw" else max(ROWS_PER_LIST * lists(count), 40 * 256))


def load(path: Path, rows: int, dimensions: int) -> Any:
    """Load the index over ``rows`` rows; None when missing, corrupt or of another size.

    Inverted lists above :data:`MAX_READ_BYTES` stay in the file. A graph is read whole: it has less than
    :data:`IVFPQ_FROM` rows.
    """
    faiss = library()
    try:
        if path.suffix == ".ivfpq" and path.stat().st_size > MAX_READ_BYTES:
            index: Any = StoredLists(path)
        else:
            index = faiss.read_index(str(path))
    except (RuntimeError, OSError):
        return None
    return index if (index.ntotal, index.d) == (rows, dimensions) else None


class StoredLists:
    """An index whose inverted lists are read from its file when a search visits them."""

    def __init__(self, path: Path) -> None:
        faiss = library()
        self._index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)  # reads all but the lists, and where these are
        self.ntotal, self.d = self._index.ntotal, self._index.d
        self._inner = faiss.extract_index_ivf(self._index)
        lists = faiss.downcast_InvertedLists(self._inner.invlists).lists
        known = [lists.at(number) for number in range(self._inner.nlist)]
        self._places = [(int(each.offset), int(each.size), int(each.capacity)) for each in known]
        empty = faiss.ArrayInvertedLists(self._inner.nlist, self._inner.code_size)
        self._inner.replace_invlists(empty, True)  # no page was touched; nothing is mapped from here on
        empty.this.disown()
        self._file = IntactFile(path, path.stat().st_size)

    def propose(self, query: Vectors, chosen: Any) -> NDArray[np.int64]:
        """Return the rows that FAISS would, among those of the selector ``chosen``.

        Raises:
            DamagedCacheError: A list cannot be read.
        """
        faiss, inner = library(), self._inner
        prepared = query[None]
        if isinstance(self._index, faiss.IndexPreTransform):
            for number in range(self._index.chain.size()):
                prepared = faiss.downcast_VectorTransform(self._index.chain.at(number)).apply(prepared)
        near, places = inner.quantizer.search(prepared, min(_probes(inner), inner.nlist))
        scanner = inner.get_InvertedListScanner(False, chosen)
        scanner.set_query(faiss.swig_ptr(prepared))
        scores, rows = np.full(POOL, -np.inf, np.float32), np.full(POOL, -1, np.int64)
        best = faiss.swig_ptr(scores), faiss.swig_ptr(rows)
        for number, score in zip(places[0].tolist(), near[0].tolist(), strict=True):
            if number < 0 or not self._places[number][1]:
                continue
            codes, ids = self._read(number)
            scanner.set_list(number, score)
            scanner.scan_codes(len(ids), faiss.swig_ptr(codes), faiss.swig_ptr(ids), *best, POOL)
        if rows.max() >= self.ntotal:
            raise DamagedCacheError(self._file.path, np.empty(0, np.int64), "a list names other rows")
        return rows[np.argsort(-scores, kind="stable")]

    def _read(self, number: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the codes and rows of a list: codes, room for more of them, and rows follow each other."""
        place, size, capacity = self._places[number]
        room = capacity * self._inner.code_size
        content = np.empty(room + size * 8, np.uint8)
        try:
            self._file.read(place, content.data)
        except OSError as error:
            raise DamagedCacheError(self._file.path, np.empty(0, np.int64), first_line(error)) from None
        return content[: size * self._inner.code_size], content[room:].copy().view(np.int64)


def propose(index: Any, query: Vectors, allowed: NDArray[np.bool_] | None) -> NDArray[np.int64] | None:
    """Return at most :data:`POOL` rows that are likely among the best; None when a filter allows too few rows."""
    part = 1.0 if allowed is None else np.count_nonzero(allowed) / max(1, len(allowed))
    if part < LEAST_ALLOWED:
        return None
    chosen = None if part == 1.0 else selector(allowed)
    if isinstance(index, StoredLists):
        rows = index.propose(query, chosen)
    else:
        rows = index.search(query[None], POOL, params=_parameters(index, chosen, None, part))[1][0]
    return rows[rows >= 0]


def _parameters(index: Any, chosen: Any, probes: int | None = None, part: float = 1.0) -> Any:
    """Return the parameters of a search among the rows of the selector ``chosen``, a ``part`` of all."""
    faiss = library()
    inner = index
    if isinstance(index, faiss.IndexPreTransform):
        inner = faiss.downcast_index(index.index)
    if not isinstance(inner, faiss.IndexIVF):
        return faiss.SearchParametersHNSW(sel=chosen, efSearch=round(POOL / part))
    parameters = faiss.SearchParametersIVF(sel=chosen, nprobe=_probes(inner) if probes is None else probes)
    return parameters if inner is index else faiss.SearchParametersPreTransform(index_params=parameters)


def _probes(index: Any) -> int:
    """Return how many inverted lists a search visits."""
    return int(index.nprobe) if index.nprobe > 1 else max(LEAST_PROBES, round(PROBED * index.nlist))


def library() -> Any:
    """Return the module ``faiss``, imported on first use."""
    import faiss

    return faiss


def selector(allowed: NDArray[np.bool_] | None) -> Any:
    """Return the FAISS selector of the rows that are True; None allows all."""
    return None if allowed is None else library().IDSelectorBitmap(np.packbits(allowed, bitorder="little"))

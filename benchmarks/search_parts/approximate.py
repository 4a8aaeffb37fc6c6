"""Compare approximate with exact search through the same collection, over embeddings of real captions.

The collection holds the captions that :mod:`caption_vectors` encodes, without a thousand that are held out as queries.
Each query calls ``Collection.search(vector, 10)`` with and without ``exact=True``, in turns. Recall is the share of the
exact ten among the approximate ten. Both are measured with one thread and with all: on a busy machine a second thread
makes the exact search slower, which would flatter the ratio.

At this size a collection chooses the graph by itself. The inverted lists, which it chooses from five million embeddings
on, are measured at the same size by lowering that limit for their process. Each index is rebuilt in the run, with all
threads; the time includes writing the matrix of the cache.

Options: ``into``. The embeddings are in ``runs/caption-vectors`` and are computed if missing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from search_parts.caption_vectors import caption_vectors
from search_parts.exact import alone, compared, in_turns, status

QUERIES, WARM, K, BATCH = 1000, 20, 10, 4096
NAMES = {"hnsw": "graph over 8-bit codes (HNSW)", "ivfpq": "inverted lists of product codes (IVF-PQ)"}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return recall, latency beside the exact search, build time and bytes, for each kind of index."""
    captions, vectors = caption_vectors()
    held = np.linspace(0, len(captions) - 1, QUERIES).astype(int)
    place = options.into / f"captions-{len(captions) - QUERIES}"
    if not place.exists():
        alone(make, place, held)
    return {
        "rows": len(captions) - QUERIES,
        "dimensions": vectors.shape[1],
        "queries": QUERIES,
        "kinds": {kind: alone(measured, place, kind, vectors[held]) for kind in NAMES},
    }


def lines(result: dict[str, Any]) -> list[str]:
    """Return a Markdown table with a row for each kind of index and number of threads."""
    table = [
        f"| approximate top-{K} of {result['rows']:,} × {result['dimensions']} | recall@{K} | threads | exact | "
        "approximate | exact / approximate | built in | bytes / vectors' |",
        "|---|---|---|---|---|---|---|---|",
    ]
    whole = result["rows"] * result["dimensions"] * 4
    for kind, found in result["kinds"].items():
        for number, taken in found["threads"].items():
            low, high = taken["range"]
            table.append(
                f"| {NAMES[kind]} | {found['recall']:.4f} | {number} | {1e3 * taken['exact']:.2f} ms | "
                f"{1e3 * taken['approximate']:.2f} ms | {taken['ratio']:.1f}× ({low:.1f}–{high:.1f}), "
                f"processor {taken['processor_ratio']:.1f}× | {found['build']:.0f} s | {found['bytes'] / whole:.2f} |"
            )
    return [
        *table,
        "",
        f"{result['queries']:,} held-out captions as queries, in turns; medians, and the range that holds the middle "
        "half of the ratios.",
    ]


def make(place: Path, held: np.ndarray) -> None:
    """Create the collection without the queries' rows; it gets its name when it is complete."""
    from vse.index.store import EmbeddedCollection
    from vse.index.types import Entry, MediaFile, Moment

    captions, vectors = caption_vectors()
    rows = np.setdiff1d(np.arange(len(captions)), held)
    beside = place.with_name(place.name + "-new")
    shutil.rmtree(beside, ignore_errors=True)
    about = {"model": "all-minilm-l6-v2", "model_source": "none", "dimensions": vectors.shape[1]}
    with EmbeddedCollection.create(beside, **about) as collection:
        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH].tolist()
            files = [MediaFile("/captions", f"{row:06}", "image", 1, 1, str(row), 1, 1) for row in some]
            moments = ((Moment(np.array(vectors[row])),) for row in some)
            collection.add([Entry(file, moment) for file, moment in zip(files, moments, strict=True)])
            if start // BATCH % 16 == 0:
                print(f"{start:,} of {len(rows):,} captions added", file=sys.stderr)
    beside.replace(place)


def measured(place: Path, kind: str, queries: np.ndarray) -> dict[str, Any]:
    """Build the index, and search with and without it in turns."""
    import faiss

    from vse.index.store import EmbeddedCollection, approximate

    if kind == "ivfpq":
        approximate.IVFPQ_FROM = approximate.HNSW_FROM
    started = time.perf_counter()
    with EmbeddedCollection.open(place, write=True) as collection:
        collection.rebuild()
        build = time.perf_counter() - started
    (path,) = place.glob(f"generation-*/cache/items-*.{kind}")
    with EmbeddedCollection.open(place) as collection:
        threads = sorted({1, faiss.omp_get_max_threads()})
        found = {str(number): latencies(collection, queries, number) for number in threads}
        resident = status("/proc/self/smaps_rollup", "Rss")
    return {
        "recall": found["1"].pop("recall"),
        "threads": found,
        "build": build,
        "bytes": path.stat().st_size,
        "resident": resident,
    }


def latencies(collection: Any, queries: np.ndarray, threads: int) -> dict[str, Any]:
    """Return recall, and seconds with and without the index in turns, with this many FAISS threads."""
    import faiss

    faiss.omp_set_num_threads(threads)
    common, times = 0, []
    for number, query in enumerate(np.concatenate([queries[:WARM], queries])):
        searches = {
            "exact": partial(collection.search, query, K, exact=True),
            "approximate": partial(collection.search, query, K),
        }
        found, taken = in_turns(searches, number)
        if found["approximate"].exact:
            raise SystemExit("the collection was searched without its approximate index: remove it and run again")
        if number >= WARM:
            times.append(taken)
            common += len(np.intersect1d(found["exact"].ids, found["approximate"].ids))
    return {"recall": common / (K * len(queries)), **compared(times, "exact", "approximate")}

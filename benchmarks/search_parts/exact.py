"""Compare exact search through a collection with bare FAISS over the same embeddings, in turns.

- bare: ``faiss.IndexFlatIP.search``, the embeddings in memory;
- ours: ``Collection.search(vector, 10, exact=True)`` over the collection's mapped file, which is in the page cache.

The embeddings are random unit vectors, since an exhaustive search takes equally long for any. The collection is filled
by ``add``, in batches and without an approximate index, and stays in ``into`` for the next run; an interrupted one is
resumed. Both contestants run with one thread and with all. Results are compared: same ids.

The first search of a process verifies the checksum of every block. It is timed beside the second one, with a warm page
cache.

Memory is that of a separate process which has opened the collection and searched it: all of its resident pages
(``Rss``), including those of the mapped file. The peak while indexing is measured when the collection is filled.

Options: ``rows``, ``dimensions``, ``queries``, ``into``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

BATCH, K, FIRST = 4096, 10, 5
Seconds = tuple[float, float]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return ratios of latency with one thread and with all, and of memory to the bytes of the embeddings."""
    import faiss

    rows, dimensions = options.rows, options.dimensions
    place = options.into / f"exact-{rows}x{dimensions}"
    building = alone(build, place, rows, dimensions)
    queries = directions(options.queries, dimensions, seed=0)
    threads = sorted({1, faiss.omp_get_max_threads()})
    return {
        "rows": rows,
        "dimensions": dimensions,
        "queries": len(queries),
        "vector_bytes": rows * dimensions * 4,
        "building": building,
        "threads": {str(number): alone(latencies, place, queries, number) for number in threads},
        "first": [alone(first_searches, place, query) for query in queries[:FIRST]],
        "memory": {name: alone(memory, place, queries[:5], name) for name in ("ours", "bare")},
    }


def lines(result: dict[str, Any]) -> list[str]:
    """Return a Markdown table: latency with one thread and with all, then memory."""
    table = [
        f"| exact top-{K} of {result['rows']:,} × {result['dimensions']:,} | bare FAISS | collection | ratio |",
        "|---|---|---|---|",
    ]
    for number, found in result["threads"].items():
        low, high = found["range"]
        name = f"latency, {number} thread{'s' * (number != '1')}"
        times = f"{1e3 * found['bare']:.1f} ms | {1e3 * found['ours']:.1f} ms"
        ratios = f"{found['ratio']:.3f}× ({low:.2f}–{high:.2f}), processor {found['processor_ratio']:.3f}×"
        table.append(f"| {name} | {times} | {ratios} |")
    bare, ours = (result["memory"][name] / 1e6 for name in ("bare", "ours"))
    part = result["memory"]["ours"] / result["vector_bytes"]
    first, second = (1e3 * statistics.median(each[place] for each in result["first"]) for place in (0, 1))
    table.append(f"| resident memory | {bare:,.0f} MB | {ours:,.0f} MB | {part:.3f}× the vectors |")
    same = all(found["same"] for found in result["threads"].values())
    building = result["building"]
    return [
        *table,
        "",
        f"The first search of a process, which opens it and verifies every block: {first:,.0f} ms, the next "
        f"{second:,.0f} ms (medians of {len(result['first'])} processes).",
        f"Medians over {result['queries']} queries in turns, warm page cache; the range holds the middle half of the "
        f"ratios. Same results: {same}. When the collection was made: {building['rate']:,.0f} vectors/s added, peak "
        f"{building['peak'] / 1e6:,.0f} MB.",
    ]


def build(place: Path, rows: int, dimensions: int) -> dict[str, float]:
    """Fill the collection, or the rest of it; return what was measured while filling its last part."""
    from vse.index.store import EmbeddedCollection, approximate

    approximate.HNSW_FROM = rows + 1  # no graph: it takes minutes to build, and exact searches do not use it
    record = place.with_name(place.name + ".json")
    if record.exists():
        return json.loads(record.read_bytes())
    place.parent.mkdir(parents=True, exist_ok=True)
    needed, free = 2.5 * rows * dimensions * 4, shutil.disk_usage(place.parent).free
    if free < needed and not place.exists():
        raise SystemExit(f"{place} needs {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB are free: take less --rows")
    if place.exists():
        collection = EmbeddedCollection.open(place, write=True)
    else:
        collection = EmbeddedCollection.create(place, model="random", model_source="none", dimensions=dimensions)
    first = done = collection.info().items
    started = time.perf_counter()
    while done < rows:  # batches start at multiples of BATCH, each with its own seed
        collection.add(entries(done, min(BATCH, rows - done), dimensions))
        done += min(BATCH, rows - done)
        if done // BATCH % 8 == 0:
            print(f"{done:,} of {rows:,} embeddings added", file=sys.stderr)
    adding, peak = time.perf_counter() - started, highest()
    started = time.perf_counter()
    collection.close()
    found = {"rate": (done - first) / adding, "peak": peak, "closing": time.perf_counter() - started}
    record.write_text(json.dumps(found))
    return found


def entries(first: int, count: int, dimensions: int) -> list[Any]:
    """Return files that are only names, numbered from ``first``."""
    from vse.index.types import Entry, MediaFile, Moment

    vectors = directions(count, dimensions, seed=1 + first)
    names = (f"{number // 1000:04}/{number:07}.jpg" for number in range(first, first + count))
    files = (MediaFile("/photographs", name, "image", 1, 1, name, 640, 480) for name in names)
    return [Entry(file, (Moment(vector),)) for file, vector in zip(files, vectors, strict=True)]


def latencies(place: Path, queries: np.ndarray, threads: int) -> dict[str, Any]:
    """Return seconds of both, in turns, and whether they find the same."""
    import faiss

    from vse.index.store import EmbeddedCollection

    faiss.omp_set_num_threads(threads)
    with EmbeddedCollection.open(place) as collection:
        index, ids = flat(collection)
        collection.search(queries[0], K, exact=True), index.search(queries[:1], K)  # warm
        same = True
        times = []
        for number, query in enumerate(queries):
            found, taken = in_turns(
                {
                    "bare": partial(index.search, query[None], K),
                    "ours": partial(collection.search, query, K, exact=True),
                },
                number,
            )
            times.append(taken)
            same &= bool((ids[found["bare"][1][0]] == found["ours"].ids).all())
    return {**compared(times, "ours", "bare"), "same": same}


def first_searches(place: Path, query: np.ndarray) -> Seconds:
    """Return the seconds of opening the collection with a first search, and of a second search."""
    from vse.index.store import EmbeddedCollection

    started = time.perf_counter()
    with EmbeddedCollection.open(place) as collection:
        collection.search(query, K, exact=True)
        opened = time.perf_counter()
        collection.search(query, K, exact=True)
        return opened - started, time.perf_counter() - opened


def flat(collection: Any) -> tuple[Any, np.ndarray]:
    """Return the collection's embeddings in a flat index, written in place so they never exist twice, and the ids."""
    import faiss

    info = collection.info()
    index = faiss.IndexFlatIP(info.dimensions)
    index.codes.resize(info.items * info.dimensions * 4)
    index.ntotal = info.items
    inside = faiss.rev_swig_ptr(index.get_xb(), info.items * info.dimensions).reshape(info.items, info.dimensions)
    ids = np.empty(info.items, np.int64)
    row = 0
    for some, vectors in collection.all_vectors():
        ids[row : row + len(some)], inside[row : row + len(some)] = some, vectors
        row += len(some)
    return index, ids


def memory(place: Path, queries: np.ndarray, name: str) -> int:
    """Return resident bytes of this process after searches; what it read on the way is released first."""
    from vse.index.store import EmbeddedCollection

    with EmbeddedCollection.open(place) as collection:
        if name == "bare":
            index, _ = flat(collection)
            index.search(queries, K)
        else:
            for query in queries:
                collection.search(query, K, exact=True)
        return status("/proc/self/smaps_rollup", "Rss")


def highest() -> int:
    """Return the peak memory of this process."""
    return status("/proc/self/status", "VmHWM")


def status(path: str, name: str) -> int:
    line = next(line for line in Path(path).read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def directions(count: int, dimensions: int, seed: int) -> np.ndarray:
    """Return random unit vectors."""
    vectors = np.random.default_rng(seed).standard_normal((count, dimensions), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def in_turns(runs: dict[str, Callable[[], Any]], round_: int) -> tuple[dict[str, Any], dict[str, Seconds]]:
    """Return each result with its wall and processor seconds; the order alternates between rounds."""
    found, taken = {}, {}
    for name in list(runs)[:: 1 if round_ % 2 else -1]:
        wall, processor = time.perf_counter(), time.process_time()
        found[name] = runs[name]()
        taken[name] = time.perf_counter() - wall, time.process_time() - processor
    return found, taken


def compared(times: list[dict[str, Seconds]], above: str, below: str) -> dict[str, Any]:
    """Return median seconds of both, and their ratios: wall time with quartiles, and processor time."""
    wall = np.array([taken[above][0] / taken[below][0] for taken in times])
    return {
        **{name: statistics.median(taken[name][0] for taken in times) for name in (above, below)},
        "ratio": float(np.median(wall)),
        "range": [float(each) for each in np.percentile(wall, [25, 75])],
        "processor_ratio": statistics.median(taken[above][1] / taken[below][1] for taken in times),
    }


def alone(function: Any, *values: Any) -> Any:
    """Return what ``function`` returns in a new process with its own memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *values).result()

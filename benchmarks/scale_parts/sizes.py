"""Cost of one collection against its size: disk, build time, memory, recall and latency from 10^5 to 10^7 embeddings.

Embeddings are synthetic (:mod:`scale_parts.synthetic`). For each size, four processes in turn:

- write: the cache of a collection is written, block by block, by the classes that write it from the database;
- build: the inverted lists are built and committed to the cache (for every size, although small ones are not due);
- truth: the ten best of each query, from every stored embedding;
- search: the queries, one by one, by the class that searches a collection: approximate, then again, then some exactly.

The database is left out: it holds the same bytes once more. With ``--collection`` a real collection of the size is
filled, settled and searched instead; one of 10^7 takes about 24 GB of disk.
CPU seconds are those of the process, peak memory is the resident set including mapped files; ``anonymous`` is without
them, at the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scale_parts.synthetic import DIMENSIONS, Mixture

PHASES = ("write", "build", "truth", "search")
K, EXACT_QUERIES = 10, 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--storage", choices=("float32", "float16", "int8"), default="float16")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--collection", action="store_true", help="fill a real collection of each size")
    parser.add_argument("--into", type=Path, default=Path("runs/scale"), help="10^7 embeddings take 11 GB")
    parser.add_argument("--json", type=Path, metavar="FILE", help="read and extended, so that sizes can be added")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw what FILE holds")
    parser.add_argument("--phase", choices=(*PHASES, "collection"), help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> None:
    """Measure every size in processes of its own, and print a table."""
    if options.phase:
        print(json.dumps(_phase(options)))
        return
    results = json.loads(options.json.read_bytes()) if options.json and options.json.exists() else {}
    for size in options.sizes:
        options.into.mkdir(parents=True, exist_ok=True)
        row = results.setdefault(f"{options.storage} {size}", {"size": size, "storage": options.storage})
        for phase in ("collection",) if options.collection else PHASES:
            if phase not in row:
                row[phase] = _in_process(options, size, phase)
                print(size, phase, row[phase], file=sys.stderr, flush=True)
                if options.json:
                    options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    print(*lines(results), sep="\n")
    if options.plot:
        draw(results, options.plot)


def _in_process(options: argparse.Namespace, size: int, phase: str) -> dict[str, Any]:
    command = [sys.executable, sys.argv[0], "sizes", "--sizes", str(size), "--phase", phase]
    for name in ("storage", "queries", "seed", "into"):
        command += [f"--{name}", str(getattr(options, name))]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def _phase(options: argparse.Namespace) -> dict[str, Any]:
    started, used = time.perf_counter(), time.process_time()
    (size,) = options.sizes
    measure: Callable[[argparse.Namespace, int], dict[str, Any]] = globals()[f"_{options.phase}"]
    found = measure(options, size)
    status = Path("/proc/self/status").read_text().splitlines()
    (anonymous,) = (int(line.split()[1]) for line in status if line.startswith("RssAnon"))
    return {
        **found,
        "cpu_s": round(time.process_time() - used, 1),
        "wall_s": round(time.perf_counter() - started, 1),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "anonymous_mb": anonymous // 1024,
    }


def _cache(options: argparse.Namespace, size: int) -> Any:
    from vse.index.storage import VectorFormat
    from vse.index.store.cache import VectorCache

    folder = options.into / f"{options.storage}-{size}"
    folder.mkdir(parents=True, exist_ok=True)
    return VectorCache(folder, "items", VectorFormat(DIMENSIONS, options.storage))


def _write(options: argparse.Namespace, size: int) -> dict[str, Any]:
    cache = _cache(options, size)
    return write_cache(cache, Mixture(options.seed).blocks(size), size, options.storage)


def write_cache(cache: Any, blocks: Iterable[Any], size: int, storage: str) -> dict[str, Any]:
    """Write the cache of a collection, as it is written from the database; ids count from 1."""
    from vse.index.storage import encode
    from vse.index.store.cache import CacheHeader
    from vse.index.store.checksums import ID, extended, ids_checksum

    header = CacheHeader(1, size, DIMENSIONS, "items-0000000000000000")
    sums, row, known = np.empty(0, np.uint64), 0, 0
    with cache.path(header, "vectors").open("wb") as vectors, cache.path(header, "ids").open("wb") as column:
        for block in blocks:
            stored, ids = encode(block, storage), np.arange(row + 1, row + len(block) + 1)
            vectors.write(stored.data)
            column.write(ids.astype(ID).data)
            sums, known = extended(sums, stored, row), ids_checksum(ids, known)
            row += len(block)
    cache.commit(replace(header, ids_checksum=known), sums)
    return {"vector_bytes": cache.path(header, "vectors").stat().st_size}


def _build(options: argparse.Namespace, size: int) -> dict[str, Any]:
    return build_lists(_cache(options, size), size)


def build_lists(made: Any, size: int) -> dict[str, Any]:
    """Build inverted lists over a cache, however small, and commit them to it."""
    from vse.index.store import approximate
    from vse.index.store.cache import _index
    from vse.progress import SilentProgress

    header, kind_for = made.header(), approximate.kind_for
    approximate.kind_for = lambda rows: "ivfpq"  # type: ignore[assignment]
    try:
        _index(made, header, SilentProgress())
    finally:
        approximate.kind_for = kind_for
    path = made.path(header, "ivfpq")
    index = approximate.load(path, size, DIMENSIONS)
    lists = approximate.library().extract_index_ivf(index)
    return {"index_bytes": path.stat().st_size, "lists": int(lists.nlist), "probes": int(lists.nprobe)}


def _truth(options: argparse.Namespace, size: int) -> dict[str, Any]:
    from vse.index.storage import decode

    cache = _cache(options, size)
    queries = Mixture(options.seed).queries(options.queries)
    vectors = cache.vectors(cache.header())
    scores = np.full((len(queries), K), -np.inf, np.float32)
    rows = np.full((len(queries), K), -1, np.int64)
    per_read = max(1, 16_384 // vectors.block_rows)
    for block in range(0, -(-size // vectors.block_rows), per_read):
        part = queries @ decode(vectors.read(block, per_read)).T
        first = block * vectors.block_rows
        best = np.argpartition(-part, K, axis=1)[:, :K] if part.shape[1] > K else np.arange(part.shape[1])[None]
        together = np.concatenate([scores, np.take_along_axis(part, best, axis=1)], axis=1)
        places = np.concatenate([rows, first + best], axis=1)
        kept = np.argsort(-together, axis=1, kind="stable")[:, :K]
        scores, rows = np.take_along_axis(together, kept, axis=1), np.take_along_axis(places, kept, axis=1)
    np.save(cache.folder / "truth.npy", rows)
    return {"queries": len(queries), "tenth_cosine": float(scores[:, -1].mean())}


def opened_snapshot(cache: Any) -> Any:
    """Return what searches a cache and its lists."""
    from vse.index.store.searcher import Part, Searcher, Snapshot

    opened = cache.opened()
    base = Part(np.abs(opened.ids), opened.vectors.matrix, None, opened.vectors)
    nothing = Part(np.empty(0, np.int64), np.empty((0, DIMENSIONS), cache.form.dtype))
    snapshot = Snapshot(1, base, nothing, *Searcher(cache)._index(opened.header))
    if snapshot.index is None:
        raise SystemExit("the approximate index is not usable")
    return snapshot


def _search(options: argparse.Namespace, size: int) -> dict[str, Any]:
    cache = _cache(options, size)
    queries, truth = Mixture(options.seed).queries(options.queries), np.load(cache.folder / "truth.npy")
    started = time.perf_counter()
    snapshot = opened_snapshot(cache)
    result: dict[str, Any] = {"open_s": round(time.perf_counter() - started, 2)}
    for name in ("first", "again"):
        result[name], found = _timed(snapshot, queries, exact=False)
    shares = [len(np.intersect1d(ids - 1, true)) / K for ids, true in zip(found, truth, strict=True)]
    result["recall_at_10"] = round(float(np.mean(shares)), 4)
    result["rss_before_exact_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    _timed(snapshot, queries[:1], exact=True)  # reads and verifies every block
    result["exact"], found = _timed(snapshot, queries[:EXACT_QUERIES], exact=True)
    if not all(set(ids - 1) == set(true) for ids, true in zip(found, truth, strict=False)):
        raise SystemExit("the exact search differs from the truth")
    return result


def _timed(snapshot: Any, queries: Any, *, exact: bool) -> tuple[dict[str, float], list[Any]]:
    wall, used, found = [], [], []
    for query in queries:
        start = time.perf_counter(), time.process_time()
        found.append(snapshot.search(query, K, None, exact).ids)
        wall.append(time.perf_counter() - start[0])
        used.append(time.process_time() - start[1])
    figures = {"wall_ms": np.median(wall), "wall_p95_ms": np.quantile(wall, 0.95), "cpu_ms": np.median(used)}
    return {name: round(float(value) * 1e3, 2) for name, value in figures.items()}, found


def _collection(options: argparse.Namespace, size: int) -> dict[str, Any]:
    import shutil

    from vse.index.open import bytes_below
    from vse.index.store import EmbeddedCollection
    from vse.index.types import Entry, MediaFile, Moment

    place = options.into / f"collection-{options.storage}-{size}"
    shutil.rmtree(place, ignore_errors=True)
    mixture, row, started = Mixture(options.seed), 0, time.process_time()
    with EmbeddedCollection.create(
        place, model="synthetic", model_source="external:synthetic", dimensions=DIMENSIONS, storage=options.storage
    ) as collection:
        for block in mixture.blocks(size):
            entries = []
            for vector in block:
                file = MediaFile("/photos", f"{row // 1000:05}/{row:08}.jpg", "image", 1, 1, f"{row:032x}", 640, 480)
                entries.append(Entry(file, (Moment(vector),)))
                row += 1
            collection.add(entries)
        added = time.process_time() - started
        collection.settle()
        settled = time.process_time() - started - added
    queries = mixture.queries(options.queries)
    with EmbeddedCollection.open(place) as collection:
        shares, wall = [], []
        for query in queries:
            start = time.perf_counter()
            hits = collection.search(query, K)
            wall.append(time.perf_counter() - start)
            shares.append((hits, collection.search(query, K, exact=True)) if len(shares) < 50 else None)
        recall = [len(np.intersect1d(a.ids, b.ids)) / K for a, b in filter(None, shares)]
    bytes_used, database = bytes_below(place), sum(path.stat().st_size for path in place.rglob("items.sqlite"))
    return {
        "add_cpu_s": round(added, 1), "settle_cpu_s": round(settled, 1), "rows_per_cpu_s": round(size / added),
        "recall_at_10": float(np.mean(recall)), "wall_ms": round(float(np.median(wall)) * 1e3, 2),
        "bytes": bytes_used, "database_bytes": database, "exact": bool(hits.exact),
    }  # fmt: skip


def lines(results: dict[str, Any]) -> list[str]:
    """Return a Markdown table of the sizes that were measured completely."""
    head = (
        "| embeddings | stored as | vectors | index | lists (visited) | build, CPU | recall@10 | approximate, again "
        "| wall, p50 and p95 | exact | peak RSS: build, search |"
    )
    rows = [head, "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for row in sorted(results.values(), key=lambda row: (row["storage"], row["size"])):
        if not all(phase in row for phase in PHASES):
            continue
        write, build, _, search = (row[phase] for phase in PHASES)
        rows.append(
            f"| {row['size']:,} | {row['storage']} | {write['vector_bytes'] / 1e6:,.0f} MB "
            f"| {build['index_bytes'] / 1e6:,.0f} MB | {build['lists']:,} ({build['probes']:,}) "
            f"| {build['cpu_s']:,.0f} s "
            f"| {search['recall_at_10']:.3f} | {search['first']['cpu_ms']:.1f}, {search['again']['cpu_ms']:.1f} ms "
            f"| {search['again']['wall_ms']:.1f}, {search['again']['wall_p95_ms']:.1f} ms "
            f"| {search['exact']['cpu_ms']:,.0f} ms | {build['peak_rss_mb']:,}, {search['rss_before_exact_mb']:,} MB |"
        )
    return rows


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw CPU time of a search, build time and bytes over the size, all axes logarithmic."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    rows = sorted((row for row in results.values() if all(phase in row for phase in PHASES)), key=lambda r: r["size"])
    sizes = [row["size"] for row in rows]
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    left.plot(sizes, [row["search"]["exact"]["cpu_ms"] for row in rows], "o-", label="exact")
    left.plot(sizes, [row["search"]["again"]["cpu_ms"] for row in rows], "s-", label="IVF-PQ, exact scores")
    for row in rows:
        recall = f"recall@10 {row['search']['recall_at_10']:.3f}"
        left.annotate(recall, (row["size"], row["search"]["again"]["cpu_ms"]), (0, -14), ha="center", fontsize=7,
                      textcoords="offset points")  # fmt: skip
    left.set_ylabel("one search, CPU ms")
    middle.plot(sizes, [row["write"]["cpu_s"] for row in rows], "o-", label="generate and write")
    middle.plot(sizes, [row["build"]["cpu_s"] for row in rows], "s-", label="build IVF-PQ")
    middle.set_ylabel("CPU seconds")
    right.plot(sizes, [row["write"]["vector_bytes"] / 1e6 for row in rows], "o-", label="vectors on disk")
    right.plot(sizes, [row["build"]["index_bytes"] / 1e6 for row in rows], "s-", label="index on disk")
    right.plot(sizes, [row["build"]["peak_rss_mb"] * 1.048576 for row in rows], "^--", label="peak RSS, build")
    right.plot(
        sizes, [row["search"]["rss_before_exact_mb"] * 1.048576 for row in rows], "v--", label="peak RSS, search"
    )
    right.set_ylabel("MB")
    for axes in (left, middle, right):
        axes.set(xscale="log", yscale="log", xlabel="embeddings of 512 dimensions, float16")
        axes.margins(x=0.3, y=0.2)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=90)

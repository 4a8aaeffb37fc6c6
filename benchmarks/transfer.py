"""Import and export embeddings: rows per second and peak memory, for NumPy files, Parquet, shards and Milvus Lite.

    python benchmarks/transfer.py --rows 200000 --dimensions 128
    python benchmarks/transfer.py --rows 1000000 --dimensions 128 --steps start "import shards" "export shards"

Each step runs in its own process, so that the peak is that of the step alone; "start" is a process that imports the
same modules and does nothing. A step reads what the steps before it wrote: "export" needs "import shards" or "import
npy". "per CPU second" leaves out the time in which other work had the cores. From 200,000 rows on, an import ends by
building an approximate index; a line before that says when all rows were committed. The seed is 0.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

STEPS = ("start", "import npy", "import shards", "import again", "export shards", "export npy", "export parquet")
MILVUS = ("import milvus", "export milvus")
SHARD = 100_000


def blocks(rows: int, dimensions: int):  # type: ignore[no-untyped-def]
    """Yield embeddings and metadata in blocks, as a program that streams would."""
    generator = np.random.default_rng(0)
    for start in range(0, rows, 10_000):
        vectors = generator.standard_normal((min(10_000, rows - start), dimensions), np.float32)
        numbers = range(start, start + len(vectors))
        yield (
            vectors,
            [{"id": f"{n // 1000}/{n}", "title": f"Item {n}", "keywords": [f"k{n % 97}"]} for n in numbers],
        )


def write_source(folder: Path, rows: int, dimensions: int) -> None:
    """Write embeddings as ``.npy`` with ``.jsonl`` beside it."""
    matrix = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (rows, dimensions))
    done = 0
    with (folder / "rows.jsonl").open("w") as lines:
        for vectors, described in blocks(rows, dimensions):
            matrix[done : done + len(vectors)] = vectors
            done += len(vectors)
            lines.writelines(json.dumps(row) + "\n" for row in described)


def write_shards(folder: Path, rows: int, dimensions: int) -> None:
    """Write Parquet shards as ``vse embed`` does, with metadata as JSON."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir()
    writer = None
    for number, (vectors, described) in enumerate(blocks(rows, dimensions)):
        table = pyarrow.table(
            {
                "id": [row["id"] for row in described],
                "path": [row["id"] for row in described],
                "metadata": [json.dumps({"title": row["title"], "keywords": row["keywords"]}) for row in described],
                "embedding": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), dimensions),
            }
        )
        if number % (SHARD // 10_000) == 0:
            if writer is not None:
                writer.close()
            writer = pyarrow.parquet.ParquetWriter(folder / f"shard-{number:05}.parquet", table.schema)
        writer.write_table(table)
    writer.close()


def peak_mb() -> float:
    """Return the peak memory of this process; getrusage would count the parent's memory before exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def shown(step: str, rows: int, seconds: float, busy: float, peak: float) -> None:
    rate = f"{seconds:7.1f} s {rows / seconds:>8,.0f} rows/s {rows / busy:>8,.0f} per CPU second"
    print(f"{step:15} {'' if step == 'start' else rate:50}  peak {peak:5.0f} MB", flush=True)


def committed_reporter(rows: int):  # type: ignore[no-untyped-def]
    """Return progress that prints a line when all rows were committed and the approximate index is built next."""
    from vse.progress import SilentProgress

    start, begun = time.perf_counter(), time.process_time()

    class Stages(SilentProgress):
        imported = False

        def start(self, total: int, description: str) -> None:
            if self.imported and total:
                shown("  committed", rows, time.perf_counter() - start, time.process_time() - begun, peak_mb())
            self.imported = description == "importing"

    return Stages()


def run_step(step: str, folder: Path, rows: int, results: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    from vse.index import export_embeddings, import_embeddings, open_collection

    own = folder / ("own.db" if "milvus" in step else "own.vse")
    start, begun = time.perf_counter(), time.process_time()
    if step == "import npy":
        import_embeddings(folder / "npy.vse", [folder / "vectors.npy", folder / "rows.jsonl"])
    elif step.startswith("import"):
        import_embeddings(own, [folder / "shards"], progress=committed_reporter(rows))
    elif step in ("export shards", "export milvus"):
        export_embeddings(open_collection(own), folder / f"out {step}", shard_rows=SHARD)
    elif step != "start":
        out = "out" if step == "export npy" else "out.parquet"
        export_embeddings(open_collection(own), folder / out)
    results.put((time.perf_counter() - start, time.process_time() - begun, peak_mb()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=256)
    parser.add_argument("--steps", nargs="+", choices=(*STEPS, *MILVUS), default=STEPS)


def run(given: argparse.Namespace) -> None:
    """Run the steps and print a line for each."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "import npy" in given.steps:
            write_source(folder, given.rows, given.dimensions)
        write_shards(folder / "shards", given.rows, given.dimensions)
        print(f"{given.rows:,} rows of {given.dimensions} dimensions, {given.rows * given.dimensions * 4 / 1e6:.0f} MB")
        for step in given.steps:
            results = spawn.Queue()
            process = spawn.Process(target=run_step, args=(step, folder, given.rows, results))
            process.start()
            seconds, busy, peak = results.get()
            process.join()
            shown(step, given.rows, seconds, busy, peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    run(parser.parse_args())


if __name__ == "__main__":
    main()

"""Import and export embeddings: rows per second and peak memory, for NumPy and Parquet.

    python benchmarks/transfer.py --rows 100000 --dimensions 256

Each step runs in its own process, so that the peak is that of the step alone; "start" is a process that imports the
same modules and does nothing. The seed is 0.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

STEPS = ("start", "import npy", "import again", "export npy", "export parquet", "import parquet")


def write_source(folder: Path, rows: int, dimensions: int) -> None:
    """Write embeddings and metadata in blocks, as a program that streams would."""
    generator = np.random.default_rng(0)
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (rows, dimensions))
    with (folder / "rows.jsonl").open("w") as lines:
        for start in range(0, rows, 10_000):
            block = generator.standard_normal((min(10_000, rows - start), dimensions), np.float32)
            vectors[start : start + len(block)] = block
            for number in range(start, start + len(block)):
                row = {"id": f"{number // 1000}/{number}", "title": f"Item {number}", "keywords": [f"k{number % 97}"]}
                lines.write(json.dumps(row) + "\n")


def run_step(step: str, folder: Path, results: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    from vse.index import export_embeddings, import_embeddings, open_collection

    pair = [folder / "vectors.npy", folder / "rows.jsonl"]
    start = time.perf_counter()
    if step in ("import npy", "import again"):
        import_embeddings(folder / "own.vse", pair)
    elif step == "export npy":
        export_embeddings(open_collection(folder / "own.vse"), folder / "out")
    elif step == "export parquet":
        export_embeddings(open_collection(folder / "own.vse"), folder / "out.parquet")
    elif step == "import parquet":
        import_embeddings(folder / "copy.vse", [folder / "out.parquet"])
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()  # getrusage would count the parent's memory before exec
    results.put((seconds, int(status.split("VmHWM:")[1].split()[0]) / 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=256)
    given = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_source(folder, given.rows, given.dimensions)
        print(f"{given.rows:,} rows of {given.dimensions} dimensions, {given.rows * given.dimensions * 4 / 1e6:.0f} MB")
        for step in STEPS:
            results = spawn.Queue()
            process = spawn.Process(target=run_step, args=(step, folder, results))
            process.start()
            seconds, peak = results.get()
            process.join()
            rate = "" if step == "start" else f"{seconds:7.1f} s  {given.rows / seconds:>8,.0f} rows/s"
            print(f"{step:15} {rate:28}  peak {peak:5.0f} MB", flush=True)


if __name__ == "__main__":
    main()

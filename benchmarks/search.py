"""Compare searching and indexing with the bare work that they need: ratios within one run.

    python benchmarks/search.py                                  # everything, 1,000,000 × 1,024 for the exact part
    python benchmarks/search.py --parts exact --rows 100000 --dimensions 256
    python benchmarks/search.py --parts words --queries 100
    python benchmarks/search.py --parts approximate --json runs/search/approximate.json

The parts, each described in its file under ``search_parts/``:

- exact: ``Collection.search`` beside ``faiss.IndexFlatIP``, latency and memory;
- approximate: recall and latency of the graph beside the exact search, over embeddings of real captions;
- words: fused search beside search by embedding alone, and the size of the words;
- indexing: images per second beside decoding and backbone alone;
- cold: ``vse search`` from process start to result beside the imports that it needs.

Prints a Markdown table for each part; collections stay in ``--into`` for the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib import import_module
from pathlib import Path
from typing import Any

PARTS = ("exact", "approximate", "words", "indexing", "cold")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rows", type=int, default=1_000_000, help="embeddings of the exact part")
    parser.add_argument("--dimensions", type=int, default=1024, help="of the exact part")
    parser.add_argument("--queries", type=int, default=40, help="of the exact and words parts")
    parser.add_argument("--word-rows", type=int, default=100_000, help="files of the words part")
    parser.add_argument("--photos", type=Path, help="images to index [default: Flickr8k]")
    parser.add_argument("--count", type=int, help="how many of them")
    parser.add_argument("--model", type=Path, help="an exported model for the cold search [default: one is created]")
    parser.add_argument("--rounds", type=int, help="of the indexing and cold parts")
    parser.add_argument("--into", type=Path, default=Path("runs/search"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="the results as JSON")
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"machine": machine()}
    print(results["machine"])
    for name in options.parts:
        part = import_module(f"search_parts.{name}")
        results[name] = part.run(options)
        print("", *part.lines(results[name]), sep="\n", flush=True)
        if options.json is not None:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def machine() -> str:
    """Describe the machine that the numbers depend on."""
    import faiss

    names = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    return f"{processor}, {os.cpu_count()} cores, FAISS {faiss.__version__}, Python {platform.python_version()}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines() if Path(path).exists() else []


if __name__ == "__main__":
    main()

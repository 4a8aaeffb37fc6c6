"""Measure the service: overhead over bare search, load, thumbnails, memory over time, and the page in a browser.

    python benchmarks/service.py --collection photos.vse          # everything, about six minutes
    python benchmarks/service.py --quick                          # 500 generated scenes, small counts
    python benchmarks/service.py --only overhead --json runs/service/overhead.json

The parts, each described in its file under ``service_parts/``, each with its own ``vse serve`` process:

- overhead: one query over HTTP beside the same search in process;
- load: 16 clients for 30 seconds; every query must be answered;
- thumbnails: rendered from files, from memory, and not modified;
- memory: after 1,000 and after 10,000 requests of all kinds; must not grow by 5 %;
- browser: first paint, first image, and from the last key to the first result.

Prints a Markdown table for each part. The exit code is 1 when a request failed or memory grew. Generated material stays
in ``--into`` for the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from contextlib import closing
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from vse.errors import VSEError

PARTS = ("overhead", "load", "thumbnails", "memory", "browser")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collection", type=Path, metavar="INDEX", help="[default: generated scenes]")
    parser.add_argument("--only", choices=PARTS, metavar="NAME", help=f"one part: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small counts, as a smoke test")
    parser.add_argument("--into", type=Path, default=Path("runs/service"), help="where the scenes are created")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the results as JSON")
    options = parser.parse_args()
    if not Path("/proc/self/status").exists():
        parser.error("memory and processor time are read from /proc: run it on Linux")
    if options.collection is None:
        from service_parts.material import scenes_collection

        options.into.mkdir(parents=True, exist_ok=True)
        options.collection = scenes_collection(options.into)
    results: dict[str, Any] = {}
    try:
        results.update(about(options))
    except VSEError as error:
        parser.error(str(error))
    print(*(f"{name}: {value}" for name, value in results.items()), sep="\n", flush=True)
    failures = []
    for name in (options.only,) if options.only else PARTS:
        part = import_module(f"service_parts.{name}")
        results[name] = part.run(options)
        failures += part.failures(results[name])
        print("", *part.lines(results[name]), sep="\n", flush=True)
        if options.json is not None:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps({**results, "failures": failures}, indent=2) + "\n", "utf-8")
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def about(options: argparse.Namespace) -> dict[str, str]:
    """Describe the machine that the numbers depend on."""
    import onnxruntime

    from vse.index.open import open_collection

    with closing(open_collection(str(options.collection))) as collection:
        info = collection.info()
    return {
        "machine": f"{processor()}, {os.cpu_count()} cores, ONNX Runtime {onnxruntime.__version__}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the start",
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "collection": f"{info.items:,} items of {info.files:,} files, {info.dimensions} dimensions",
        "counts": "quick" if options.quick else "full",
    }


def processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines() if line.startswith("model name")]
    return names[0].split(":", 1)[1].strip() if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())

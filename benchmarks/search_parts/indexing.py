"""Compare ``index_folder`` with the least work possible, in images per second: decode, resize, run the image tower.

Two kinds of images, already in the page cache: those of Flickr8k (or ``--photos``), and camera-sized ones of
4000 × 3000 pixels, generated from some of them. Two runtimes: the exported model in ONNX Runtime, and torch eager. The
model is EfficientNet-Lite0 at 224 pixels with a projection and GPO to 512 dimensions.

For each runtime and kind, in turns within one run:

- bare: Pillow and the tower alone; no walk, no digest, no EXIF, no limits, no database. JPEGs are decoded at a reduced
  scale as in the index. In several arrangements (``indexing_bare.py``); the fastest is the limit;
- index: the folder into a new collection, to the last commit and the closed files.

The table also has the processor time per image, all threads together: on a machine with other load it is more
meaningful than the rates.

Options, all optional: ``photos``, ``count``, ``rounds``, ``into``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from search_parts.indexing_bare import ARRANGEMENTS, CORES, SIZE, Towers, bare_onnx, bare_torch
from search_parts.indexing_material import enlarge, make_model, take

COUNT, LARGE_COUNT, ROUNDS = 256, 48, 3
RUNTIMES = ("ONNX Runtime", "torch eager")
DATA = Path(os.environ.get("VSE_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return rates of every contestant by kind of images and runtime."""
    count, rounds = getattr(options, "count", None) or COUNT, getattr(options, "rounds", None) or ROUNDS
    with tempfile.TemporaryDirectory(prefix="vse-indexing-") as temporary:
        place = Path(getattr(options, "into", None) or temporary) / "indexing"
        make_model(place)
        small = take(getattr(options, "photos", None) or DATA / "flickr8k" / "images", place / f"photos-{count}", count)
        large = enlarge(small, place / "large", min(count, LARGE_COUNT))
        result: dict[str, Any] = {"rounds": rounds, "cores": CORES, "kinds": {}}
        for kind, folder in (("photos", small), ("large", large)):
            files = sorted(folder.glob("*.jpg"))
            sizes = [len(file.read_bytes()) for file in files]
            result["kinds"][kind] = {
                "pictures": len(files),
                "bytes": round(statistics.mean(sizes)),
                RUNTIMES[0]: compared(files, bare_onnx(place / "onnx"), place / "onnx", place, rounds),
                RUNTIMES[1]: compared(files, bare_torch(place / "torch"), place / "torch", place, rounds),
            }
    return result


def compared(files: list[Path], towers: Towers, model: Path, place: Path, rounds: int) -> dict[str, Any]:
    """Return images per second of each arrangement and of the index, and the index as a share of the fastest."""
    import vse

    contestants: dict[str, Callable[[], None]] = {
        name: partial(arrange, files, towers) for name, arrange in ARRANGEMENTS.items()
    }
    contestants["index"] = partial(index, vse.load(model), files, place)
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    processor: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, contestant in contestants.items():
            began, spent = time.perf_counter(), time.process_time()
            contestant()
            if number:  # the first time warms sessions, buffers and caches
                rates[name].append(len(files) / (time.perf_counter() - began))
                processor[name].append((time.process_time() - spent) / len(files))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    spent_on = {name: statistics.median(values) for name, values in processor.items()}
    limit = max(ARRANGEMENTS, key=medians.__getitem__)
    parts = [ours / bare for ours, bare in zip(rates["index"], rates[limit], strict=True)]
    return {
        "rates": medians,
        "processor_seconds": spent_on,
        "limit": limit,
        "part": statistics.median(parts),
        "parts": [min(parts), max(parts)],
        "processor_part": min(spent_on[name] for name in ARRANGEMENTS) / spent_on["index"],
    }


def lines(result: dict[str, Any]) -> list[str]:
    """Return a Markdown table of the limits and the index, and every arrangement's rate below it."""
    said = [
        f"Indexing, EfficientNet-Lite0 at {SIZE} pixels, {result['cores']} cores, medians of {result['rounds']} rounds",
        "",
        "| images | runtime | limit, images/s | index, images/s | fraction of the limit (rounds) | by processor time |",
        "|---|---|---:|---:|---:|---:|",
    ]
    details = [""]
    for kind, found in result["kinds"].items():
        name = f"{found['pictures']} {kind}, {found['bytes'] / 1e3:,.0f} kB"
        for runtime in RUNTIMES:
            row = found[runtime]
            least, most = row["parts"]
            said.append(
                f"| {name} | {runtime} | {row['rates'][row['limit']]:.1f} | {row['rates']['index']:.1f} "
                f"| {row['part']:.2f} ({least:.2f}–{most:.2f}) | {row['processor_part']:.2f} |"
            )
            bare = ", ".join(
                f"{each} {rate:.1f} ({row['processor_seconds'][each] * 1e3:.1f})" for each, rate in row["rates"].items()
            )
            details.append(f"{kind}, {runtime}, images/s (processor ms an image): {bare}.")
    return said + details


def index(model: Any, files: list[Path], place: Path) -> None:
    """Index the folder of the files into a new collection."""
    from vse.index.pipeline import index_folder
    from vse.index.store import EmbeddedCollection

    set_all_threads()
    with tempfile.TemporaryDirectory(dir=place) as temporary:
        collection = EmbeddedCollection.create(
            Path(temporary, "index.vse"),
            model=model.fingerprint(),
            model_source="benchmark",
            dimensions=model.embed_size,
        )
        with collection:
            report = index_folder(collection, model, files[0].parent)
    if report.new != len(files):
        raise SystemExit(f"{report.new} of {len(files)} images were indexed: {report.problems[:3]}")


def set_all_threads() -> None:
    """Give torch all threads again, after a bare contestant reduced them."""
    import torch

    torch.set_num_threads(CORES)

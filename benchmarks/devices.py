"""Encode the same images and queries with one model on several devices, in turns, and compare speed and embeddings.

    python benchmarks/devices.py photo --providers cpu,openvino --images ~/Photos
    python benchmarks/devices.py MODEL --providers cpu,cuda --images ~/Photos --count 1000 --batch-size 64

The first device is what the others are compared with. Images are decoded once, before anything is timed, and then
encoded as ``vse index`` does it: several calls at once on the CPU, whole batches elsewhere. Queries are encoded one by
one. The devices take turns in every round, after one warm-up round that also compiles. Prints a Markdown table: ratios
of images and queries per second (median over rounds, with the smallest and largest), the largest difference between
two values of the embeddings, and their mean cosine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import vse
from vse.errors import InputError, VSEError
from vse.inputs.files import kind_of_name
from vse.models.encode import read_pixels

QUERIES = (
    "a dog in the snow",
    "two children play on a beach",
    "a red car",
    "a man in a blue shirt rides a bicycle down a street",
    "sunset over the sea",
    "a birthday cake with candles",
    "people at a table in a restaurant",
    "a black cat",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODEL", help="a model folder, a hub id or a bundled model")
    parser.add_argument("--providers", default="cpu,openvino", metavar="NAME,NAME", help="[default: cpu,openvino]")
    parser.add_argument("--images", type=Path, required=True, metavar="DIR", help="a folder of images")
    parser.add_argument("--count", type=int, default=200, metavar="N", help="this many of them [default: 200]")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="[default: 32]")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="[default: 5]")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of the model [default: all cores]")
    options = parser.parse_args()
    try:
        print(*measure(options), sep="\n")
    except VSEError as error:
        parser.error(str(error))
    return 0


def measure(options: argparse.Namespace) -> list[str]:
    """Return the table."""
    devices = options.providers.split(",")
    models = {name: vse.load(options.model, device=name, threads=options.threads) for name in devices}
    pixels = decoded(options.images, models[devices[0]], options.count)
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in devices}
    images: dict[str, NDArray[Any]] = {}
    texts: dict[str, NDArray[Any]] = {}
    for number in range(options.rounds + 1):
        for name, model in models.items():
            began = time.perf_counter()
            images[name] = encoded(model, pixels, options.batch_size)
            middle = time.perf_counter()
            texts[name] = np.concatenate([model.encode_texts([query]) for query in QUERIES])
            rates[name].append((len(pixels) / (middle - began), len(QUERIES) / (time.perf_counter() - middle)))
            print(f"round {number} of {options.rounds}: {name}", file=sys.stderr)
    first = devices[0]
    said = [
        f"{len(pixels)} images, {len(QUERIES)} queries, batches of {options.batch_size}, {options.rounds} rounds, "
        f"load {os.getloadavg()[0]:.1f} at the end",
        "",
        "| device | images/s | queries/s | images: largest difference, mean cosine | queries: the same |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in devices:
        speeds = [ratio([each[k] for each in rates[name][1:]], [each[k] for each in rates[first][1:]]) for k in (0, 1)]
        compared = [difference(each[name], each[first]) for each in (images, texts)]
        said.append(f"| {name} | {' | '.join([*speeds, *compared])} |")
    return said


def difference(vectors: NDArray[Any], base: NDArray[Any]) -> str:
    """Format the largest difference of a value and the mean cosine of unit vectors."""
    return f"{np.abs(vectors - base).max():.1e}, {(vectors * base).sum(1).mean():.6f}"


def decoded(folder: Path, model: Any, count: int) -> NDArray[np.float32]:
    """Return the pixels of the first readable images of a folder."""
    if model.preprocessing is None:
        raise InputError("this model reads features, not images: use a model that reads images")
    found: list[NDArray[np.float32]] = []
    for path in sorted(path for path in folder.rglob("*") if kind_of_name(path.name) == "image"):
        pixels = read_pixels(path, model.preprocessing)
        if not isinstance(pixels, VSEError):
            found.append(pixels)
        if len(found) == count:
            break
    if not found:
        raise InputError(f"{folder}: no images")
    return np.stack(found)


def encoded(model: Any, pixels: NDArray[np.float32], batch_size: int) -> NDArray[np.float32]:
    """Return the embeddings, computed by as many calls at once as the model asks for."""
    with model.parallel_calls(batch_size) as calls, ThreadPoolExecutor(calls.threads) as pool:
        batches = [pixels[start : start + calls.images] for start in range(0, len(pixels), calls.images)]
        return np.concatenate(list(pool.map(model.embed_images, batches)))


def ratio(rates: list[float], base: list[float]) -> str:
    """Format the ratio of two series of rounds."""
    each = [one / other for one, other in zip(rates, base, strict=True)]
    return f"{statistics.median(each):.2f}× ({min(each):.2f}–{max(each):.2f})"


if __name__ == "__main__":
    sys.exit(main())

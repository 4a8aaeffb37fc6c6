"""Measure thumbnails per second: rendered from files, from the service's memory, and answered with 304.

Six clients send requests, as a browser does to one host. The images come in portions. Each portion is first requested
from a service that has none of its thumbnails, then rendered in this process by Pillow, with as many threads as the
service has; the ratio is of these two. Afterwards all portions are requested again, which memory answers, and again
with the entity tag, which gives 304. Files are in the page cache.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageOps

from service_parts.clients import Request, Stream, drive
from service_parts.figures import counted, spread, with_range
from service_parts.library import pictures, threads
from service_parts.server import Server

if TYPE_CHECKING:
    from vse.index.types import Item

CLIENTS, PICTURES, QUICK_PICTURES, PORTIONS, QUICK_PORTIONS = 6, 1000, 60, 10, 2
SIZE, QUALITY, PAGE = 320, 78, 200
KINDS = {"cold": "made from files", "warm": "from memory", "known": "304, not modified"}
EXPECTED = {"cold": 200, "warm": 200, "known": 304}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return rates, and processor time of the service for each, by kind; the rate of rendering without the service."""
    items = pictures(options.collection, QUICK_PICTURES if options.quick else PICTURES)
    count = QUICK_PORTIONS if options.quick else PORTIONS
    portions = [items[start::count] for start in range(count)]
    bare_rates: list[float] = []
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    processor: dict[str, list[float]] = {kind: [] for kind in KINDS}
    errors: Counter[str] = Counter()
    bare(items)  # reads the files into the page cache
    with Server(options.collection) as server:
        paths = addresses(server, items)
        tags: dict[int, str] = {}
        for kind in KINDS:
            if kind == "known":
                tags = {item.id: str(server.ask(paths[item.id]).headers["ETag"]) for item in items}
            for portion in portions:
                worked = server.processor()
                found = drive(server.address, streams(portion, paths, tags))
                rates[kind].append(len(portion) / found.wall)
                processor[kind].append((server.processor() - worked) / len(portion))
                errors.update(found.unlike(EXPECTED[kind]))
                if kind == "cold":
                    bare_rates.append(bare(portion))
    ratios = [ours / theirs for ours, theirs in zip(rates["cold"], bare_rates, strict=True)]
    return {
        "pictures": len(items),
        "size": SIZE,
        "clients": CLIENTS,
        "portions": count,
        "bare_rate": spread(bare_rates),
        "rates": {kind: spread(values) for kind, values in rates.items()},
        "processor": {kind: statistics.mean(values) for kind, values in processor.items()},
        "ratio": spread(ratios),
        "errors": errors,
    }


def lines(result: dict[str, Any]) -> list[str]:
    """Return a Markdown table with a row for each kind of response."""
    rows = [
        f"| {name} | {with_range(result['rates'][kind], digits=0)} | {1e3 * result['processor'][kind]:.2f} ms |"
        for kind, name in KINDS.items()
    ]
    return [
        f"| {result['pictures']:,} thumbnails of {result['size']} pixels, {result['clients']} clients "
        "| thumbnails/s | processor time of the service for one |",
        "|---|---:|---:|",
        *rows,
        f"| made in process, without the service | {with_range(result['bare_rate'], digits=0)} | |",
        f"| service, made from files / in process | {with_range(result['ratio'])}× | |",
        "",
        f"Medians of {result['portions']} portions, with the middle half.",
    ]


def failures(result: dict[str, Any]) -> list[str]:
    told = counted(result["errors"])
    return [f"thumbnails: expected 200, and 304 for known ones, got {told}"] if told else []


def streams(items: Sequence[Item], paths: dict[int, str], tags: dict[int, str]) -> list[Stream]:
    """Deal the images out to the clients; those with a tag are requested conditionally."""
    requests = [
        Request(paths[item.id], headers=(("If-None-Match", tags[item.id]),) if item.id in tags else ())
        for item in items
    ]
    return [partial(iter, requests[client::CLIENTS]) for client in range(CLIENTS)]


def addresses(server: Server, items: Sequence[Item]) -> dict[int, str]:
    """Return the thumbnail address of each image, as in results: the content hash is part of it."""
    found: dict[int, str] = {}
    for offset in range(0, len(items), PAGE):
        page = json.loads(server.ask(f"/api/v1/items?type=image&k={PAGE}&offset={offset}").body)
        found.update((each["id"], each["thumbnail"]) for each in page["results"])
    return found


def bare(items: Sequence[Item]) -> float:
    """Return thumbnails per second, rendered in this process by Pillow alone."""
    from vse.index.types import full_path

    began = time.perf_counter()
    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(shrink, [full_path(item.file) for item in items]))
    return len(items) / (time.perf_counter() - began)


def shrink(path: str) -> bytes:
    stream = io.BytesIO()
    with Image.open(path) as image:
        image.draft("RGB", (SIZE, SIZE))
        upright = ImageOps.exif_transpose(image).convert("RGB")
    upright.thumbnail((SIZE, SIZE), Image.Resampling.LANCZOS, reducing_gap=2.0)
    upright.save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()

"""Measure the service's memory after 1,000 and after 10,000 requests of all kinds: it must not grow by 5 %.

Four clients send the mix of a day of use: mostly thumbnails, then searches, item details, pages of the newest items,
and now and then an image query. Two caches fill up meanwhile, that of thumbnails and that of queries; the table shows
the steps in between, which distinguish a leak, which never ends, from caches, which do.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from service_parts.clients import Request, drive
from service_parts.figures import counted
from service_parts.library import pictures
from service_parts.server import Server
from service_parts.texts import search_path

CLIENTS, K = 4, 40
EARLY, LATE, STEP = 1000, 10_000, 1000
QUICK_EARLY, QUICK_LATE, QUICK_STEP = 200, 600, 200
MOST_GROWTH = 1.05
SHARES = {"thumbnail": 60, "search": 22, "again": 4, "item": 8, "newest": 3, "picture": 3}
"""In hundredths of the requests; ``again`` is a search for a text that was asked before."""
FIRST, ITEMS, PICTURES = 200_000, 1000, 40
BOUNDARY = "----vse-benchmark"


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return resident bytes after every ``STEP`` requests, and the ratio of the last to the first of both counts."""
    from vse.index.types import full_path

    early, late, step = (QUICK_EARLY, QUICK_LATE, QUICK_STEP) if options.quick else (EARLY, LATE, STEP)
    items = pictures(options.collection, ITEMS)
    ids = [item.id for item in items]
    contents = [Path(full_path(item.file)).read_bytes() for item in items[:PICTURES]]
    errors: Counter[str] = Counter()
    with Server(options.collection) as server:
        resident = {0: server.resident()}
        for done in range(0, late, step):
            requests = mixed(done, step, ids, contents)
            found = drive(server.address, [partial(iter, requests[client::CLIENTS]) for client in range(CLIENTS)])
            resident[done + step] = server.resident()
            errors.update(found.unlike(200))
    return {
        "early": early,
        "late": late,
        "resident": resident,
        "ratio": resident[late] / resident[early],
        "most": MOST_GROWTH,
        "judged": not options.quick,  # in a short run the caches are still filling up
        "errors": errors,
    }


def lines(result: dict[str, Any]) -> list[str]:
    """Return a Markdown table with the memory at each step."""
    resident = {int(count): size for count, size in result["resident"].items()}
    early = resident[result["early"]]
    rows = [f"| {count:,} | {size / 1e6:.1f} MB | {size / early:.3f}× |" for count, size in resident.items()]
    shares = ", ".join(f"{share} % {name}" for name, share in SHARES.items())
    judged = f"must be below {result['most']}×" if result["judged"] else "not judged in a quick run"
    return [
        f"| requests | resident memory of the service | to that after {result['early']:,} |",
        "|---:|---:|---:|",
        *rows,
        "",
        f"After {result['late']:,} requests to after {result['early']:,}: {result['ratio']:.3f}×, {judged}. "
        f"Requests: {shares}.",
    ]


def failures(result: dict[str, Any]) -> list[str]:
    told = counted(result["errors"])
    found = [f"memory: every request must be answered with 200, got {told}"] if told else []
    if result["judged"] and result["ratio"] >= result["most"]:
        found.append(f"memory: grew to {result['ratio']:.3f}× between the counts, expected less than {result['most']}×")
    return found


def mixed(first: int, count: int, ids: list[int], contents: list[bytes]) -> list[Request]:
    """Yield requests ``first`` to ``first + count`` of the mix, the same in every run."""
    keyed = random.Random(first)
    kinds = keyed.choices(list(SHARES), list(SHARES.values()), k=count)
    return [request(kind, number, keyed, ids, contents) for number, kind in enumerate(kinds, first)]


def request(kind: str, number: int, keyed: random.Random, ids: list[int], contents: list[bytes]) -> Request:
    if kind == "search":
        return Request(search_path(FIRST + number, K))
    if kind == "again":
        return Request(search_path(FIRST + keyed.randrange(100), K))
    if kind == "newest":
        return Request(f"/api/v1/items?k={K}&offset={keyed.randrange(max(1, len(ids) - K))}")
    if kind == "picture":
        return upload(keyed.choice(contents))
    item = f"/api/v1/items/{keyed.choice(ids)}"
    return Request(item if kind == "item" else f"{item}/thumbnail")


def upload(content: bytes) -> Request:
    """Return a search with an image, as the page sends it."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="picture"\r\n\r\n'
    body = head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    return Request("/api/v1/search", "POST", (("Content-Type", f"multipart/form-data; boundary={BOUNDARY}"),), body)

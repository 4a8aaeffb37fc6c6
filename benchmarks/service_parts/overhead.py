"""Compare one query at a time over HTTP with the same search in this process, in turns.

- fresh: ``GET /api/v1/search?q=…`` for a new text beside the search in process: both encode it;
- remembered: the same request once more, which the service answers from the cached embedding, beside a search with an
  embedding that was computed before.

The connection is kept alive. A request is timed until its last byte is read; the client does not parse it in that time.
Both sides must find the same items. ``inside`` is the search time that the service itself reports.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from service_parts.figures import milliseconds, spread, with_range
from service_parts.library import open_library
from service_parts.server import Answer, Server
from service_parts.texts import search_path, sentence

QUERIES, QUICK_QUERIES, WARM, K = 500, 40, 20, 40


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return seconds of both sides, their ratio and their difference, for fresh and for remembered texts."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    fresh, remembered = [], []
    with open_library(options.collection) as library, Server(options.collection) as server:
        for number in range(WARM + queries):
            text, asked = sentence(number), partial(server.ask, search_path(number, K))
            first = in_turns(asked, partial(library.search, text, K), number)
            again = in_turns(asked, partial(library.search_with, library.encode(text), K), number)
            if number >= WARM:
                fresh.append(first)
                remembered.append(again)
        items = library.collection.info().items
    return {"queries": queries, "k": K, "items": items, "fresh": compared(fresh), "remembered": compared(remembered)}


def lines(result: dict[str, Any]) -> list[str]:
    """Return a Markdown table with a row for fresh texts and one for remembered ones."""
    rows = [
        f"| {name} | {milliseconds(found['direct'])} | {milliseconds(found['http'])} | {milliseconds(found['inside'])} "
        f"| {with_range(found['ratio'])}× | {with_range(found['difference'], 1e3)} ms |"
        for name, found in (("fresh text", result["fresh"]), ("remembered text", result["remembered"]))
    ]
    return [
        f"| one query, top {result['k']} of {result['items']:,} | in process | HTTP | inside the service "
        "| HTTP / in process | added |",
        "|---|---:|---:|---:|---:|---:|",
        *rows,
        "",
        f"Medians of {result['queries']} queries in turns, with the middle half of the paired ratios and differences. "
        "Same items on both sides.",
    ]


def failures(result: dict[str, Any]) -> list[str]:
    return []


def in_turns(asked: Callable[[], Answer], directly: Callable[[], Any], number: int) -> dict[str, float]:
    """Return seconds of both; the order alternates."""
    contestants: dict[str, Callable[[], Any]] = {"http": asked, "direct": directly}
    taken, found = {}, {}
    for name in list(contestants)[:: 1 if number % 2 else -1]:
        began = time.perf_counter()
        found[name] = contestants[name]()
        taken[name] = time.perf_counter() - began
    answer = json.loads(found["http"].body)
    if [each["id"] for each in answer["results"]] != [each.item.id for each in found["direct"].results]:
        raise SystemExit(f"{answer['query']!r}: the service and the library do not find the same items")
    return {**taken, "inside": answer["milliseconds"] / 1e3}


def compared(times: list[dict[str, float]]) -> dict[str, Any]:
    return {
        **{name: spread([each[name] for each in times]) for name in ("http", "direct", "inside")},
        "ratio": spread([each["http"] / each["direct"] for each in times]),
        "difference": spread([each["http"] - each["direct"] for each in times]),
    }

"""Measure many clients at once, each with new texts.

16 clients keep their connections and send the next request as soon as one is answered, from a separate process. For
comparison, in the same run, the bare search: as many threads as the service has call the search in this process, before
and after the load. Clients and service share the processors, so the processor time of each per query is reported too.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from service_parts.clients import Request, drive
from service_parts.figures import counted
from service_parts.library import open_library, threads
from service_parts.server import Server
from service_parts.texts import search_path, sentence

CLIENTS, SECONDS, QUICK_SECONDS, K, WARM = 16, 30.0, 3.0, 40, 2
FIRST, BARE_FIRST = 100_000, 400_000
"""The numbers of the sentences: other ones than those of the other parts."""


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return queries per second, latencies and errors of the service, and the rate of the bare search."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    with Server(options.collection) as server:
        drive(server.address, [partial(fresh, FIRST - 1 - client, -CLIENTS, WARM) for client in range(CLIENTS)])
        before = bare(options, seconds / 5, BARE_FIRST)
        worked = server.processor()
        found = drive(server.address, [partial(fresh, FIRST + client, CLIENTS) for client in range(CLIENTS)], seconds)
        worked = server.processor() - worked
        after = bare(options, seconds / 5, BARE_FIRST + 100_000)
    if not found.seconds:
        raise SystemExit(f"no query was answered: {found.statuses}")
    answered = len(found.seconds)
    bare_rate = statistics.mean((before, after))
    p50, p99 = (float(each) for each in np.percentile(found.seconds, [50, 99]))
    return {
        "clients": CLIENTS,
        "seconds": found.wall,
        "queries": answered,
        "rate": answered / found.wall,
        "bare_rate": bare_rate,
        "ratio": answered / found.wall / bare_rate,
        "p50": p50,
        "p99": p99,
        "slowest": max(found.seconds),
        "errors": found.unlike(200),
        "server_processor": worked / answered,
        "client_processor": found.processor / answered,
    }


def lines(result: dict[str, Any]) -> list[str]:
    """Return a Markdown table with one row for the service and one for the bare search."""
    return [
        f"| {result['clients']} clients, {result['seconds']:.0f} s, distinct texts | queries/s | p50 | p99 | errors |",
        "|---|---:|---:|---:|---:|",
        f"| service | {result['rate']:.1f} | {1e3 * result['p50']:.0f} ms | {1e3 * result['p99']:.0f} ms "
        f"| {sum(result['errors'].values())} |",
        f"| bare search, same number of threads | {result['bare_rate']:.1f} | | | |",
        f"| service / bare | {result['ratio']:.2f}× | | | |",
        "",
        f"{result['queries']:,} queries, the slowest {1e3 * result['slowest']:.0f} ms. Processor time for a query: "
        f"service {1e3 * result['server_processor']:.2f} ms, clients {1e3 * result['client_processor']:.2f} ms.",
    ]


def failures(result: dict[str, Any]) -> list[str]:
    told = counted(result["errors"])
    return [f"load: every query must be answered with 200, got {told}"] if told else []


def fresh(first: int, step: int, count: int | None = None) -> Iterator[Request]:
    """Yield searches for every ``step``-th sentence."""
    numbers = itertools.islice(itertools.count(first, step), count)
    return (Request(search_path(number, K)) for number in numbers)


def bare(options: argparse.Namespace, seconds: float, first: int) -> float:
    """Return searches per second in this process, with as many threads as the service has."""
    count = threads()
    with open_library(options.collection) as library, ThreadPoolExecutor(count) as pool:
        library.search(sentence(first - 1), K)  # what is loaded once
        began = time.perf_counter()

        def searching(thread: int) -> int:
            for number in itertools.count():
                if time.perf_counter() >= began + seconds:
                    break
                library.search(sentence(first + thread + count * number), K)
            return number

        done = sum(pool.map(searching, range(count)))
        return done / (time.perf_counter() - began)

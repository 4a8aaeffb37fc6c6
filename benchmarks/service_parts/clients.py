"""Run concurrent clients in a separate process, so that they share no interpreter with what they measure."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NamedTuple

from service_parts.server import connect


class Request(NamedTuple):
    """A path with its query, and for an upload a body with the headers that describe it."""

    path: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


Stream = Callable[[], Iterator[Request]]
"""What one client sends, one after the other. It travels to another process, so it is a partial of a function."""


@dataclass(frozen=True)
class Driven:
    """What the clients saw: seconds of each answered request, counts by status, the time from the first request to the
    last response, and the processor time of the clients themselves.
    """

    seconds: list[float]
    statuses: dict[str, int]
    wall: float
    processor: float

    def unlike(self, expected: int) -> dict[str, int]:
        """Return the unexpected responses, and the missing ones."""
        return {status: count for status, count in self.statuses.items() if status != str(expected)}


def drive(address: str, streams: Sequence[Stream], seconds: float | None = None) -> Driven:
    """Let one client per stream send requests until it ends, or until this many seconds have passed."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_drive, address, streams, seconds).result()


def _drive(address: str, streams: Sequence[Stream], seconds: float | None) -> Driven:
    taken: list[float] = []
    statuses: Counter[str] = Counter()
    together = threading.Barrier(len(streams) + 1)

    def ask(stream: Stream) -> None:
        connection = connect(address)
        connection.connect()
        together.wait()
        until = None if seconds is None else time.perf_counter() + seconds
        for request in stream():
            began = time.perf_counter()
            if until is not None and began >= until:
                break
            try:
                connection.request(request.method, request.path, request.body, dict(request.headers))
                answer = connection.getresponse()
                answer.read()
                statuses[str(answer.status)] += 1
                if answer.status < http.client.BAD_REQUEST:  # a rejection is fast and does not count
                    taken.append(time.perf_counter() - began)
            except (OSError, http.client.HTTPException) as error:
                statuses[type(error).__name__] += 1
                connection.close()  # the next request reconnects
        connection.close()

    with ThreadPoolExecutor(len(streams)) as threads:
        asked = [threads.submit(ask, stream) for stream in streams]
        together.wait()
        began, worked = time.perf_counter(), time.process_time()
        for each in asked:
            each.result()
        return Driven(taken, dict(statuses), time.perf_counter() - began, time.process_time() - worked)

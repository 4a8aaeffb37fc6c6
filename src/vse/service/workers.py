"""Who computes when: a few requests at once, some waiting, and none for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from vse.service.problems import ProblemError
from vse.service.settings import Limits

T = TypeVar("T")


class Workers:
    """Runs functions in threads, admitting no more than the limits allow.

    A thread cannot be stopped from outside. A function that takes too long is answered with 503 at once, and keeps its
    place among ``waiting`` until it has ended; one that has not begun by then never does. So a service that is
    overloaded refuses instead of piling up work.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.clients: Counter[str] = Counter()
        self.admitted = 0
        self.stuck = False
        self._jobs: set[Future[Any]] = set()
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="vse-serve")

    @asynccontextmanager
    async def admission(self, client: str) -> AsyncIterator[None]:
        """A place for one request of this client, or 429 or 503."""
        if self.admitted >= self.limits.waiting:
            raise ProblemError(503, "too many requests are waiting: try again soon", {"Retry-After": "1"})
        if self.clients[client] >= self.limits.per_client:
            raise ProblemError(429, f"{self.limits.per_client} of your requests are under way", {"Retry-After": "1"})
        self._enter(client)
        try:
            yield
        finally:
            self._leave(client)

    async def run(self, client: str, function: Callable[[], T]) -> T:
        """``function()`` in a thread, within the time that a request may take."""
        async with self.admission(client):
            job = self._pool.submit(function)
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)
            done = asyncio.wrap_future(job)
            await asyncio.wait([done], timeout=self.limits.seconds)
            if done.done():
                return done.result()
            if not job.cancel():
                self._enter(client)
                done.add_done_callback(lambda late: self._late(client, late))
            detail = f"took longer than {self.limits.seconds:g} s: ask for less, or try again"
            raise ProblemError(503, detail, {"Retry-After": "5"})

    def close(self, seconds: float = 1.0) -> bool:
        """Begin nothing more, and wait for what is under way; False when it takes longer than ``seconds``."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.stuck = bool(wait(self._jobs, seconds).not_done)
        return not self.stuck

    def _enter(self, client: str) -> None:
        self.admitted += 1
        self.clients[client] += 1

    def _leave(self, client: str) -> None:
        self.admitted -= 1
        self.clients[client] -= 1
        if not self.clients[client]:
            del self.clients[client]

    def _late(self, client: str, done: asyncio.Future[T]) -> None:
        self._leave(client)
        if not done.cancelled():
            done.exception()  # nobody waits for it any more, and asyncio would complain

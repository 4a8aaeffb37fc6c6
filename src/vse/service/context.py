"""What a route gets: the running service, and bounded pools of threads to compute a response in."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

from fastapi import Depends, Request
from starlette.datastructures import State

from vse.index.rerank import Reranker
from vse.inputs.decoding import decoding_deadline
from vse.service.media import ServedRoots, serve_only
from vse.service.middleware import HEAD, Metrics, host_name
from vse.service.problems import NOT_LOCAL_TYPE, ProblemError
from vse.service.settings import PREFIX, Limits, ServiceSettings, is_local
from vse.service.state import LRU, LoadedCollection, Reloader

T = TypeVar("T")
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers of a proxy, behind which the client may be anywhere."""
DECODING_SHARE = 0.8
"""Of a request's timeout, for decoding."""
PAIR_SCORES = 20_000
"""Scores of a re-ranker that are cached for each collection."""
NO_ORIGINALS = "original files are given to clients on this machine only: 'vse serve --originals' allows others"


Lane = Literal["search", "media", "upload", "rerank"]
"""What a request does: search and browse; show files; search by an uploaded image; re-rank results by their images."""


class Workers:
    """Thread pools that admit only as many requests as the limits allow.

    Each lane has threads and limits of its own, so that uploads, thumbnails and re-ranking never take the place of a
    text search. A thread cannot be killed. A function that exceeds the timeout gets 503 at once but occupies its slot
    until it returns; one still queued is cancelled. An overloaded service therefore rejects requests instead of
    queueing them. What foreign files need runs in processes that can be killed (:mod:`vse.inputs.decoding`), so the
    slots of such requests are free again in time.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.stuck = False
        self._jobs: set[Future[Any]] = set()
        threads: dict[Lane, int] = {
            "search": limits.threads,
            "media": limits.media_threads,
            "upload": limits.upload_threads,
            "rerank": limits.rerank_threads,
        }
        self._lanes = {name: _Lane(name, count) for name, count in threads.items()}

    @property
    def admitted(self) -> int:
        """Requests computed or waiting."""
        return sum(lane.clients.total() for lane in self._lanes.values())

    @property
    def clients(self) -> Counter[str]:
        """The same by address."""
        return sum((lane.clients for lane in self._lanes.values()), Counter())

    async def run(self, client: str, function: Callable[[], T], lane: Lane = "search") -> T:
        """Run ``function`` in a thread and return its result.

        Args:
            client: The address that the request counts for.
            function: What to compute.
            lane: Whose threads compute it.

        Raises:
            ProblemError: 429 or 503 if the limits are reached, 503 on timeout.
        """
        used = self._lanes[lane]
        async with self._admission(client, used):
            job = used.pool.submit(function)
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)
            done = asyncio.wrap_future(job)
            await asyncio.wait([done], timeout=self.limits.seconds)
            if done.done():
                return done.result()
            if not job.cancel():
                used.clients[client] += 1
                done.add_done_callback(lambda late: self._finish_late(client, used, late))
            detail = f"the request took longer than {self.limits.seconds:g} s: ask for less, or try again"
            raise ProblemError(503, detail, {"Retry-After": "5"})

    def close(self, seconds: float = 1.0) -> bool:
        """Start nothing more and wait for running functions.

        Args:
            seconds: How long to wait.

        Returns:
            Whether all of them finished in time.
        """
        for lane in self._lanes.values():
            lane.pool.shutdown(wait=False, cancel_futures=True)
        self.stuck = bool(wait(self._jobs, seconds).not_done)
        if not self.stuck:
            for lane in self._lanes.values():
                lane.pool.shutdown(wait=True)  # at once: the threads have nothing to do
        return not self.stuck

    @asynccontextmanager
    async def _admission(self, client: str, lane: _Lane) -> AsyncIterator[None]:
        if lane.clients.total() >= self.limits.waiting:
            raise ProblemError(503, "too many requests are waiting: try again soon", {"Retry-After": "1"})
        if lane.clients[client] >= self.limits.per_client:
            detail = f"{self.limits.per_client} of your requests are in progress: wait for one to finish"
            raise ProblemError(429, detail, {"Retry-After": "1"})
        lane.clients[client] += 1
        try:
            yield
        finally:
            lane.leave(client)

    def _finish_late(self, client: str, lane: _Lane, done: asyncio.Future[T]) -> None:
        lane.leave(client)
        if not done.cancelled():
            done.exception()  # mark it as retrieved, or asyncio logs it


class _Lane:
    """Threads, and the requests that were admitted to them by address."""

    def __init__(self, name: str, threads: int) -> None:
        self.clients: Counter[str] = Counter()
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=f"vse-{name}")

    def leave(self, client: str) -> None:
        self.clients[client] -= 1
        if not self.clients[client]:
            del self.clients[client]


@dataclass(frozen=True)
class Service:
    """A collection that is served. Those of one application share everything but ``reloader``, ``roots`` and ``name``.

    Attributes:
        reloader: The open collection.
        settings: Host names, key and limits.
        workers: Where responses are computed.
        thumbnails: Thumbnails and previews.
        metrics: The metrics of the application.
        roots: The folders whose files are shown.
        name: Name of the collection, in ``/collections/{name}/…``.
        reranker: Orders the best results again where a client asks for it; None if there is none.
        pair_scores: Its scores by text, item and content, so that the next page needs no second computation.
    """

    reloader: Reloader
    settings: ServiceSettings
    workers: Workers
    thumbnails: LRU[str, bytes]
    metrics: Metrics
    roots: ServedRoots
    name: str
    reranker: Reranker | None = None
    pair_scores: LRU[tuple[str, int, str], float] = field(default_factory=lambda: LRU(PAIR_SCORES, lambda _: 1))


@dataclass(frozen=True)
class Context:
    """The service as one request sees it.

    Attributes:
        service: The running service.
        client: The address that the request counts for.
        state: What the middleware shares with the request log.
        head: Whether it is a HEAD request.
        local: Whether the service listens on this machine alone and the client is on it, too.
        services: All collections by name, the first one first.
        prefix: Path of the collection's routes, as the client asked for it.
    """

    service: Service
    client: str
    state: State
    head: bool
    local: bool
    services: Mapping[str, Service]
    prefix: str

    @property
    def originals(self) -> bool:
        """Whether the client may have original files, and see the folders that were indexed."""
        return self.local or self.service.settings.originals

    def require_originals(self) -> None:
        """Raise a problem (403) unless the client may have original files."""
        if not self.originals:
            raise ProblemError(403, NO_ORIGINALS, kind=NOT_LOCAL_TYPE)

    async def compute(self, function: Callable[[LoadedCollection], T], lane: Lane = "search") -> T:
        """Run ``function`` on the current collection, in a worker thread of the lane and within the limits.

        What it decodes ends before the request times out, so that its thread is free again.
        """
        seconds = DECODING_SHARE * self.service.settings.limits.seconds

        def run() -> T:
            with self.service.reloader.borrow() as loaded, decoding_deadline(seconds):
                return function(loaded)

        context = copy_context()  # the roots of the collection
        return await self.service.workers.run(self.client, lambda: context.run(run), lane)

    def log_query(self, text: str) -> None:
        """Set the query that the request log shows. Needed for queries in a body; those in a URL are logged as is."""
        self.state.query = text


async def _context(request: Request) -> Context:  # FastAPI would run a plain function in a thread
    services: Mapping[str, Service] = request.app.state.services
    name = request.path_params.get("collection")
    service = services.get(name) if name is not None else next(iter(services.values()))
    if service is None:
        raise ProblemError(404, f"no collection is called {str(name)[:60]!r}: {PREFIX}/collections lists them")
    serve_only(service.roots)
    client = request.client.host if request.client is not None else ""
    return Context(
        service=service,
        client=client,
        state=request.state,
        head=bool(request.scope.get(HEAD)),
        local=_is_on_this_machine(service.settings, client, request),
        services=services,
        prefix=PREFIX if name is None else f"{PREFIX}/collections/{quote(name, safe='')}",
    )


def _is_on_this_machine(settings: ServiceSettings, client: str, request: Request) -> bool:
    """A proxy on this machine connects from a loopback address, too, but names its client or another host."""
    hosts = (settings.host, client, host_name(request.headers.get("host", "")))
    return all(map(is_local, hosts)) and not any(name in request.headers for name in FORWARDED)


Ctx = Annotated[Context, Depends(_context)]

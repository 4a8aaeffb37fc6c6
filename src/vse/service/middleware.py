"""Headers of every answer, which tell browsers what a page of ours may do: nothing that it does not need."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import traceback
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vse.service.problems import problem_response

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "media-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "private, no-cache",
}


class SecurityHeaders:
    """Adds :data:`HEADERS`, unless an answer has its own.

    There is no CORS header, so that no other site reads an answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, with_headers)


HEAD = "vse.head"
"""In the scope of a request, that only its headers are wanted: who would send a long body may leave it out."""


class HeadsAsGets:
    """Lets the application answer GET, and keeps the body back."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def bodiless(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        inner = {**scope, "method": "GET", HEAD: True}
        await self.app(inner, receive, bodiless)
        if "route" in inner:
            scope["route"] = inner["route"]  # by which the layers outside count and log


REFUSED = "this service does not answer under that host name: 'vse serve --name NAME' adds one"


class AllowedHosts:
    """Answers 421 unless the request is for one of ``names``; an empty set allows all."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.names and host_of(Headers(scope=scope).get("host", "")) not in self.names:
            await problem_response(421, REFUSED)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def host_of(header: str) -> str:
    """The name in a Host header, without the port and the brackets of an IPv6 address."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rsplit(":", 1)[0] if name.count(":") == 1 else name


FOREIGN = ("cross-site", "same-site")
"""What browsers say of pages elsewhere; another port of the same host is ``same-site``. Programs say nothing."""


class OwnPages:
    """Answers 403 to browsers on behalf of other pages, which could not read the answer, but have it computed.

    A link that leads to the page itself is welcome.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        foreign = scope["type"] == "http" and Headers(scope=scope).get("sec-fetch-site") in FOREIGN
        if foreign and not (scope["method"] in ("GET", "HEAD") and scope["path"] == "/"):
            detail = "asked by a page of another site: open the page of this service instead"
            await problem_response(403, detail, {"Connection": "close"})(scope, receive, send)
            return
        await self.app(scope, receive, send)


SERVICE = "vse.service"


class JsonLines(logging.Formatter):
    """One line for each record; those of the service are JSON already."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == SERVICE:
            return record.getMessage()
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(*, requests: bool) -> None:
    """Write errors, and requests if they are wanted, to stderr, unless the program has decided otherwise already."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger(SERVICE).setLevel(logging.INFO if requests else logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # its warnings are about what strangers send


LOGGER = logging.getLogger(SERVICE)
BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Figures:
    """What ``/metrics`` shows. Each application has its own, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        names = ("method", "route", "status")
        self.requests = Counter("vse_requests", "Requests answered.", names, registry=self.registry)
        self.seconds = Histogram(
            "vse_request_seconds", "Time to answer a request.", ("route",), buckets=BUCKETS, registry=self.registry
        )
        self.under_way = Gauge("vse_requests_under_way", "Requests being answered.", registry=self.registry)
        self.items = Gauge("vse_collection_items", "Vectors in the collection.", registry=self.registry)
        self.files = Gauge("vse_collection_files", "Files in the collection.", registry=self.registry)


class Records:
    """Counts and logs requests by their route, never by their path: ids and queries would make figures without end."""

    def __init__(self, app: ASGIApp, figures: Figures, *, log_queries: bool) -> None:
        self.app, self.figures, self.log_queries = app, figures, log_queries

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, sent = time.perf_counter(), 500, 0

        async def watched(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            sent += len(message.get("body", b""))
            await send(message)

        self.figures.under_way.inc()
        try:
            await self.app(scope, receive, watched)
        finally:
            self.figures.under_way.dec()
            self._record(scope, status, sent, time.perf_counter() - began)

    def _record(self, scope: Scope, status: int, sent: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or _mounted(scope["path"])
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"
        self.figures.requests.labels(method, route, str(status)).inc()
        self.figures.seconds.labels(route).observe(seconds)
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": method,
            "route": route,
            "status": status,
            "milliseconds": round(1000 * seconds, 1),
            "bytes": sent,
        }
        if self.log_queries:
            line["query"] = scope.get("state", {}).get("asked") or scope["query_string"].decode("ascii", "replace")
        LOGGER.info(json.dumps(line))


def _mounted(path: str) -> str:
    """What stands for a path without a route: all files of the page are one, and all that is unknown."""
    return "/static" if path.startswith("/static/") else "other"


DETAIL = "something went wrong that was not foreseen: the log of the service names the place"
STOPPING = "the service is stopping, and this has taken too long"


class BrokenOffError(Exception):
    """An answer cannot be finished."""


class Failures:
    """Answers 500 to an exception, and logs its type and where it arose.

    Its message stays out of both, since it may hold what was asked for. An answer that has begun is broken off: what is
    raised instead lets the server close the connection. What is cancelled when the service stops is 503.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise
            if not begun:
                await problem_response(503, STOPPING, {"Connection": "close"})(scope, receive, send)
        except Exception as error:
            if scope["type"] != "http":
                raise
            LOGGER.error(_line(error))
            if begun:
                raise BrokenOffError from None
            await problem_response(500, DETAIL)(scope, receive, send)


def _line(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": time, "error": type(error).__name__, "places": places})

"""Middleware around every request: hosts, origins, HEAD, security headers, errors, metrics and the request log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vse.index.open import bytes_below, collection_lag
from vse.index.types import Collection
from vse.service.problems import problem_response
from vse.service.settings import ONE_OF_SEVERAL, PREFIX

LOGGER = logging.getLogger("vse.service")

CONTENT_SECURITY_POLICY = "; ".join(
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
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "private, no-cache",
}


class SecurityHeaders:
    """Adds :data:`HEADERS` unless the response sets its own. Sends no CORS header: other sites can read nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


WRONG_HOST = "unknown host name: 'vse serve --name NAME' adds one"
OTHER_SITES = ("cross-site", "same-site")
"""Values of Sec-Fetch-Site for other pages. Another port of the same host is ``same-site``. Programs send no header."""


class AllowedHosts:
    """Responds 421 unless the request is for one of ``names``; an empty set allows all.

    Starlette's TrustedHostMiddleware responds 400 in plain text, where the API promises 421 as a problem.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.names and host_name(Headers(scope=scope).get("host", "")) not in self.names:
            await problem_response(421, WRONG_HOST)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def host_name(header: str) -> str:
    """Return the name in a Host header, without the port and the brackets of an IPv6 address."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rsplit(":", 1)[0] if name.count(":") == 1 else name


class SameOrigin:
    """Responds 403 to requests that another site's page makes: it could not read the response, but it costs work.

    Links from other sites to the page itself are allowed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        foreign = scope["type"] == "http" and Headers(scope=scope).get("sec-fetch-site") in OTHER_SITES
        if foreign and not (scope["method"] in ("GET", "HEAD") and scope["path"] == "/"):
            detail = "request from a page of another site: open the page of this service instead"
            await problem_response(403, detail, {"Connection": "close"})(scope, receive, send)
            return
        await self.app(scope, receive, send)


HEAD = "vse.head"
"""Scope key of HEAD requests: a route with a long body may leave it out."""


class HeadAsGet:
    """Handles HEAD as GET and drops the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        inner = {**scope, "method": "GET", HEAD: True}
        await self.app(inner, receive, send_without_body)
        for name in ("route", "path_params"):  # the request log and the metrics need them
            if name in inner:
                scope[name] = inner[name]


UNEXPECTED = "unexpected error: the log of the service names the place"
STOPPING = "the service is stopping, and this request took too long to finish"


class AbortedResponseError(Exception):
    """A response failed after it had started."""


class CatchErrors:
    """Responds 500 to an exception, and logs its type and traceback.

    Its message is neither logged nor sent, since it may contain the query. A response that has started is aborted: the
    exception raised here makes the server close the connection. A request cancelled at shutdown gets 503.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise
            if not started:
                await problem_response(503, STOPPING, {"Connection": "close"})(scope, receive, send)
        except Exception as error:
            if scope["type"] != "http":
                raise
            LOGGER.error(_error_line(error, scope))
            if started:
                raise AbortedResponseError from None
            await problem_response(500, UNEXPECTED)(scope, receive, send)


def _error_line(error: Exception, scope: Scope) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    request_id = scope.get("state", {}).get(REQUEST_ID)
    return json.dumps({"time": _now(), "request_id": request_id, "error": type(error).__name__, "places": places})


REQUEST_ID = "vse_request_id"
"""Key of the request's id in its state."""
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id_of(headers: Headers) -> str:
    """Return the id that a client or proxy gave the request, if it is safe to log, or a new one."""
    given = headers.get("x-request-id", "")
    return given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)


BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """The Prometheus metrics of ``/metrics``. One registry per application: several may run in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self.requests = Counter("vse_requests", "Requests served.", labels, registry=self.registry)
        self.seconds = Histogram(
            "vse_request_seconds", "Time to serve a request.", ("route",), buckets=BUCKETS, registry=self.registry
        )
        self.in_progress = Gauge("vse_requests_under_way", "Requests in progress.", registry=self.registry)
        self.items = self._gauge("items", "Embeddings in the collection.")
        self.files = self._gauge("files", "Files in the collection.")
        self.bytes = self._gauge("bytes", "Size of the collection on disk.")
        self.changed = self._gauge("changed_seconds", "Seconds since the collection was last changed.")
        self.pending = self._gauge("cache_lag", "Committed changes that the search cache lacks.")

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vse_collection_{name}", text, ("collection",), registry=self.registry)

    def describe(self, name: str, collection: Collection) -> None:
        """Set the gauges of a collection. One on a server has neither size nor lag."""
        info, lag, size = collection.info(), collection_lag(collection), bytes_below(Path(collection.info().where))
        self.items.labels(name).set(info.items)
        self.files.labels(name).set(info.files)
        if size is not None:
            self.bytes.labels(name).set(size)
        if lag is not None:
            self.pending.labels(name).set(lag.pending)
            if lag.changed is not None:
                self.changed.labels(name).set(max(0.0, time.time() - lag.changed))


class RequestLog:
    """Counts and logs requests by route, not by path: ids and queries would create unbounded numbers of series."""

    def __init__(self, app: ASGIApp, metrics: Metrics, *, log_queries: bool, key: str | None = None) -> None:
        self.app, self.metrics, self.log_queries, self.key = app, metrics, log_queries, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, sent = time.perf_counter(), 500, 0
        request_id = request_id_of(Headers(scope=scope))
        scope.setdefault("state", {})[REQUEST_ID] = request_id

        async def watched_send(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            sent += len(message.get("body", b""))
            await send(message)

        self.metrics.in_progress.inc()
        try:
            await self.app(scope, receive, watched_send)
        finally:
            self.metrics.in_progress.dec()
            self._record(scope, status, sent, time.perf_counter() - start)

    def _record(self, scope: Scope, status: int, sent: int, seconds: float) -> None:
        route = _route(scope)
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        line = {
            "time": _now(),
            "request_id": scope["state"][REQUEST_ID],
            "method": method,
            "route": route,
            "status": status,
            "milliseconds": round(1000 * seconds, 1),
            "bytes": sent,
        }
        if self.log_queries:
            line["query"] = self._query(scope)
        LOGGER.info(json.dumps(line))

    def _query(self, scope: Scope) -> str:
        """The query without secrets: no parameter that is called like one, and the key nowhere in the others.

        A request that reached no route, such as one without the key, asked for nothing.
        """
        text = scope.get("state", {}).get("query")
        if text is None:
            given = parse_qsl(scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)
            if "route" not in scope:
                given = []
            text = urlencode([(self._masked(name), self._masked(value)) for name, value in given if not SECRET(name)])
        return self._masked(text)

    def _masked(self, text: str) -> str:
        return text.replace(self.key, MASK) if self.key else text


MASK = "***"
SECRET = re.compile("key|token|auth|secret|passw", re.IGNORECASE).search
"""Names of parameters whose values are not logged; no parameter of the API is called so."""


def _route(scope: Scope) -> str:
    """The path of the route with its parameters as placeholders; FastAPI's own may lack the prefix of its router."""
    found: str = getattr(scope.get("route"), "path", None) or _unrouted(scope["path"])
    if not found.startswith("/") or found.startswith(PREFIX) or not scope["path"].startswith(f"{PREFIX}/"):
        return found
    return f"{ONE_OF_SEVERAL if 'collection' in scope.get('path_params', {}) else PREFIX}{found}"


def _unrouted(path: str) -> str:
    """The label of a path without a route: one for all static files, one for everything unknown."""
    return "/static" if path.startswith("/static/") else "other"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

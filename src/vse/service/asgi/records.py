"""A line of JSON for every request, and the figures for Prometheus. What is asked for is in neither unless wanted."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vse.service.logs import SERVICE

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

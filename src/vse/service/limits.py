"""Limits on request bodies and on connections: their size, duration, number and encoding."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h11
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from vse.service.middleware import HEADERS
from vse.service.problems import ProblemError, problem_response
from vse.service.settings import Limits

CHARSETS = ("utf-8", "utf8", "us-ascii")
PUBLIC_PATHS = ("/api/v1/session",)
MAX_PUBLIC_BODY = 16_384
"""Bytes of a body that can be sent without a key."""
CLOSE = {"Connection": "close"}
BAD_HTTP = {
    400: "malformed HTTP request",
    431: "URL and headers are too long: shorten them",
    501: "unsupported transfer encoding",
}


class BodyLimits:
    """Middleware that limits request bodies.

    413 for too many bytes, declared or not; 408 for bodies that arrive too slowly; 429 for too many uploads of one
    client and 503 for too many of all, since a body occupies memory or a file before anything is computed from it. Form
    fields are decoded with the declared charset, and some of Python's codecs take quadratic time: other charsets than
    UTF-8 get 415. Nothing beyond a limit is read, and the connection is closed after the response.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self._uploads: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        declared = headers.get("content-length", "0")
        if declared == "0" and "transfer-encoding" not in headers:
            await self.app(scope, receive, send)
            return
        max_bytes = MAX_PUBLIC_BODY if scope["path"] in PUBLIC_PATHS else self.limits.body
        try:
            if not declared.isdecimal() or int(declared[:20]) > max_bytes:
                raise _too_large(max_bytes)
            _check_charset(headers.get("content-type", ""))
            with self._slot(scope["client"][0] if scope.get("client") else ""):
                await self.app(scope, self._limited(receive, max_bytes), send)
        except ProblemError as error:  # raised before the application started
            await problem_response(error.status_code, str(error.detail), error.headers)(scope, receive, send)

    def _limited(self, receive: Receive, max_bytes: int) -> Receive:
        deadline = asyncio.get_running_loop().time() + self.limits.receive_seconds
        received, complete = 0, False

        async def limited() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()  # waits for the client to disconnect
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                detail = f"the request body took longer than {self.limits.receive_seconds:g} s to arrive"
                raise ProblemError(408, detail, CLOSE) from None
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > max_bytes:
                raise _too_large(max_bytes)
            return message

        return limited

    @contextmanager
    def _slot(self, client: str) -> Iterator[None]:
        limits = self.limits
        if self._uploads[client] >= limits.bodies_per_client:
            detail = f"{limits.bodies_per_client} of your uploads are in progress: wait for one to finish"
            raise ProblemError(429, detail, {**CLOSE, "Retry-After": "1"})
        if self._uploads.total() >= limits.bodies:
            raise ProblemError(503, "too many uploads are in progress: try again soon", {**CLOSE, "Retry-After": "1"})
        self._uploads[client] += 1
        try:
            yield
        finally:
            self._uploads[client] -= 1
            if not self._uploads[client]:
                del self._uploads[client]


def _too_large(max_bytes: int) -> ProblemError:
    return ProblemError(413, f"the request is larger than {max_bytes:,} bytes: send a smaller image", CLOSE)


def _check_charset(content_type: str) -> None:
    """Parsed as the form parser does, so that both see the same charset."""
    _, options = parse_options_header(content_type)
    charset = options.get(b"charset", b"utf-8").decode("latin-1").lower()
    if charset not in CHARSETS:
        raise ProblemError(415, f"charset {charset[:60]!r}: expected UTF-8", CLOSE)


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with timeouts for headers and for unread responses, and connection limits.

    uvicorn itself has a keep-alive timeout only, counts connections of all clients together, and responds to malformed
    HTTP in plain text; here that is a problem like any other error.
    """

    def __init__(self, limits: Limits, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self._header_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections or self._client_has_too_many():
            transport.abort()
        else:
            self._start_header_timer(self._limits.header_seconds)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_header_timer()

    def on_response_complete(self) -> None:
        # Before super(): the next request may have arrived already, and then stops the timer.
        self._start_header_timer(max(self._limits.header_seconds, float(self.timeout_keep_alive)))
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Called when the client does not read the response, which occupies memory until it does."""
        super().pause_writing()
        self._send_timer = self.loop.call_later(self._limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_send_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        self._stop_send_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Called from within the handler of h11's error, which holds the status."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status = getattr(sys.exc_info()[1], "error_status_hint", 400)
            response = problem_response(status, BAD_HTTP.get(status, msg), {**HEADERS, **CLOSE})
            head = h11.Response(status_code=status, headers=response.raw_headers)
            for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _client_has_too_many(self) -> bool:
        addresses = [client[0] for each in self.connections if (client := getattr(each, "client", None)) is not None]
        return self.client is not None and addresses.count(self.client[0]) > self._limits.connections_per_client

    def _start_header_timer(self, seconds: float) -> None:
        self._stop_header_timer()
        # Not close(), which waits until the client has read what was sent.
        self._header_timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

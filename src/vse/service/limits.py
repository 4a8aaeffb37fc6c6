"""Bodies that are too large, too slow, too many at once, or in a strange encoding."""

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
SMALL = ("/api/v1/session",)
MOST_OF_SMALL = 16_384
"""Bytes of a body that needs no key."""
CLOSING = {"Connection": "close"}


class BodyLimits:
    """Answers 413 to bodies with too many bytes, announced or not, and 408 when they take too long.

    Whoever has too many of them under way gets 429, and 503 when all have: a body is in memory, or in a file, before
    anything is computed from it. Nothing beyond the limits is read, and the connection is closed with the answer:
    whoever goes on sending talks to nobody. Fields of a form are decoded as the request says, and some of Python's
    codecs take the square of the length: other than UTF-8 is 415.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        announced = headers.get("content-length", "0")
        if announced == "0" and "transfer-encoding" not in headers:
            await self.app(scope, receive, send)
            return
        most = MOST_OF_SMALL if scope["path"] in SMALL else self.limits.body
        try:
            if not announced.isdecimal() or int(announced[:20]) > most:
                raise _too_large(most)
            _check_charset(headers.get("content-type", ""))
            with self._place(scope["client"][0] if scope.get("client") else ""):
                await self.app(scope, self._limited(receive, most), send)
        except ProblemError as error:  # before the application has seen it
            await problem_response(error.status_code, str(error.detail), error.headers)(scope, receive, send)

    def _limited(self, receive: Receive, most: int) -> Receive:
        deadline = asyncio.get_running_loop().time() + self.limits.receive_seconds
        received, complete = 0, False

        async def limited() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()  # waits for the client to leave
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                detail = f"the request took longer than {self.limits.receive_seconds:g} s to arrive"
                raise ProblemError(408, detail, CLOSING) from None
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > most:
                raise _too_large(most)
            return message

        return limited

    @contextmanager
    def _place(self, client: str) -> Iterator[None]:
        limits = self.limits
        if self._under_way[client] >= limits.bodies_per_client:
            detail = f"{limits.bodies_per_client} of your uploads are under way"
            raise ProblemError(429, detail, {**CLOSING, "Retry-After": "1"})
        if self._under_way.total() >= limits.bodies:
            raise ProblemError(503, "too many uploads are under way", {**CLOSING, "Retry-After": "1"})
        self._under_way[client] += 1
        try:
            yield
        finally:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]


def _too_large(most: int) -> ProblemError:
    return ProblemError(413, f"the request is larger than {most:,} bytes: send a smaller picture", CLOSING)


def _check_charset(content_type: str) -> None:
    """Read by the parser that the form is read by, so that both see the same."""
    _, options = parse_options_header(content_type)
    charset = options.get(b"charset", b"utf-8").decode("latin-1").lower()
    if charset not in CHARSETS:
        raise ProblemError(415, f"a body in {charset[:60]!r}: expected UTF-8", CLOSING)


NO_HTTP = {
    400: "this is no HTTP request that can be understood",
    431: "the address and the headers of the request are too long: shorten them",
    501: "this encoding of a body is not supported",
}


class PatientProtocol(H11Protocol):
    """The protocol of the server. A client is hung up on whose headers do not arrive in time, or who does not read what
    was sent, and so is one too many.

    What is no HTTP does not reach the application. It is answered with a problem too, and the connection closed.
    """

    def __init__(self, limits: Limits, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self._waiting: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections or self._is_one_too_many():
            transport.abort()
        else:
            self._wait(self._limits.header_seconds)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        # First of all: the next request may have arrived already, and stops the waiting.
        self._wait(max(self._limits.header_seconds, float(self.timeout_keep_alive)))
        super().on_response_complete()

    def pause_writing(self) -> None:
        """What was sent is not read: others wait for the memory that it takes."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_sending_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_sending_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Called where the bytes of a client make no sense; what is wrong is known to the error under way."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status = getattr(sys.exc_info()[1], "error_status_hint", 400)
            answer = problem_response(status, NO_HTTP.get(status, msg), {**HEADERS, "Connection": "close"})
            head = h11.Response(status_code=status, headers=answer.raw_headers)
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        # Not close, which waits until what was sent has been read.
        self._waiting = self.loop.call_later(seconds, self.transport.abort)

    def _is_one_too_many(self) -> bool:
        addresses = [client[0] for each in self.connections if (client := getattr(each, "client", None)) is not None]
        return self.client is not None and addresses.count(self.client[0]) > self._limits.connections_per_client

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _stop_sending_timer(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

"""HTTP on one connection, with an end to its patience."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from vse.service.asgi.headers import HEADERS
from vse.service.problems import problem_response
from vse.service.settings import Limits

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

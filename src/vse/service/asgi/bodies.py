"""Bodies that are too large, too slow, too many at once, or in a strange encoding."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

"""What nobody foresaw: an answer for the client, and a line for whoever mends it."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vse.service.logs import SERVICE
from vse.service.problems import problem_response

LOGGER = logging.getLogger(SERVICE)
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

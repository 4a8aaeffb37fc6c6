"""What every part of the interface needs, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from starlette.datastructures import State

from vse.service.asgi.heads import HEAD
from vse.service.asgi.records import Figures
from vse.service.engine import Engine
from vse.service.remembered import Remembered
from vse.service.serving import Serving
from vse.service.settings import ServiceSettings
from vse.service.workers import Workers

T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """The parts of a running service."""

    engine: Engine
    settings: ServiceSettings
    workers: Workers
    renditions: Remembered[str, bytes]
    figures: Figures


@dataclass(frozen=True)
class Context:
    """The service, for one request. ``head`` says that only the headers of the answer are wanted."""

    service: Service
    client: str
    state: State
    head: bool

    async def compute(self, answer: Callable[[Serving], T]) -> T:
        """``answer`` of what is served, in a thread, as far as the limits allow."""
        return await self.service.workers.run(self.client, lambda: self._lent(answer))

    def asked(self, words: str) -> None:
        """Keep what a body asked for, for a log that wants it; what an address asks for is in the address."""
        self.state.asked = words

    def _lent(self, answer: Callable[[Serving], T]) -> T:
        with self.service.engine.lend() as serving:
            return answer(serving)


async def _context(request: Request) -> Context:  # a plain function would be called in a thread
    client = request.client
    head = bool(request.scope.get(HEAD))
    return Context(request.app.state.service, client.host if client is not None else "", request.state, head)


Ctx = Annotated[Context, Depends(_context)]

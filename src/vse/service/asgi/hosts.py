"""Requests under a name that is not ours are refused: a foreign page may have its own name lead to this machine."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from vse.service.problems import problem_response

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

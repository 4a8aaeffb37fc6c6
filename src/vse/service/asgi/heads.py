"""HEAD is GET without the body, for every address."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

"""Requests that a page of another site has its visitor's browser make are refused."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from vse.service.problems import problem_response

FOREIGN = ("cross-site", "same-site")
"""What browsers say of pages elsewhere; another port of the same host is ``same-site``. Programs say nothing."""


class OwnPages:
    """Answers 403 to browsers on behalf of other pages, which could not read the answer, but have it computed.

    A link that leads to the page itself is welcome.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        foreign = scope["type"] == "http" and Headers(scope=scope).get("sec-fetch-site") in FOREIGN
        if foreign and not (scope["method"] in ("GET", "HEAD") and scope["path"] == "/"):
            detail = "asked by a page of another site: open the page of this service instead"
            await problem_response(403, detail, {"Connection": "close"})(scope, receive, send)
            return
        await self.app(scope, receive, send)

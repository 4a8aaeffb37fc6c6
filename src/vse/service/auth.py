"""The key that clients have to know: in a header for programs, in a cookie for the page."""

from __future__ import annotations

import hashlib
import hmac

from fastapi import APIRouter, Request, Response
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from vse.service.problems import ProblemError, problem_response, responses
from vse.service.routes.results import PREFIX
from vse.service.schemas import KeyModel
from vse.service.state import Ctx

OPEN = ("/healthz", "/api/v1/session", "/")
"""What needs no key: the page itself shows nothing of the collection until it has one."""


class RequiresKey:
    """Answers 401 to requests that do not carry the key, unless there is none."""

    def __init__(self, app: ASGIApp, key: str | None) -> None:
        self.app, self.key = app, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        open_to_all = self.key is None or scope["type"] != "http" or _is_open(scope["path"])
        if open_to_all or carries(Headers(scope=scope), self.key or ""):
            await self.app(scope, receive, send)
        else:
            detail = "a key is needed: send it as 'Authorization: Bearer KEY'"
            await problem_response(401, detail, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


def carries(headers: Headers, key: str) -> bool:
    """Whether the request knows the key; compared in a time that does not tell where they differ."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and same(given.strip(), key):
        return True
    # Not the parser of the standard library: it stops at the first cookie that it does not like, whoever set it.
    return same(cookie_parser(headers.get("cookie", "")).get(cookie_name(key), ""), cookie_value(key))


def cookie_name(key: str) -> str:
    """Cookies do not know ports: services with other keys on the same host have other names for theirs."""
    return f"vse_session_{cookie_value(key)[:8]}"


def cookie_value(key: str) -> str:
    """What the page's cookie holds: proof of the key, from which the key cannot be had."""
    return hmac.new(key.encode(), b"vse page session", hashlib.sha256).hexdigest()


def same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith("/static/")


router = APIRouter(prefix=PREFIX, tags=["session"])
DAYS = 30


@router.post(
    "/session",
    status_code=204,
    responses=responses(400, 401, 403, 408, 413, 415, 421, 422, 429, 503),
    summary="Open the page with the key",
)
async def open_session(context: Ctx, request: Request, given: KeyModel) -> Response:
    key = context.service.settings.key
    if key is None:
        return Response(status_code=204)
    if not same(given.key, key):
        raise ProblemError(401, "that is not the key")
    answer = Response(status_code=204)
    answer.set_cookie(
        cookie_name(key),
        cookie_value(key),
        max_age=DAYS * 86400,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer

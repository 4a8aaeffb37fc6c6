"""The API key: a bearer token for programs, a session cookie for the page."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable

from cachetools import TTLCache
from fastapi import APIRouter, Request, Response
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from vse.service.context import Ctx
from vse.service.problems import ProblemError, problem_response, responses
from vse.service.schemas import KeyModel
from vse.service.settings import PREFIX

PUBLIC_PATHS = ("/healthz", "/api/v1/session", "/")
"""Paths that need no key. The page itself shows nothing of the collection until it has one."""
SESSION_DAYS = 30
GUESSES, GUESS_SECONDS, CLIENTS = 10, 60, 4096
"""Wrong keys of one client, after which it has to wait so long; clients that are remembered."""


class RequireKey:
    """Middleware that responds 401 to requests without the key. No key is required if it is None.

    A wrong key counts as a guess, and after too many of them the response is 429. The right one always passes: a
    program behind the same proxy as somebody who guesses must go on.
    """

    def __init__(self, app: ASGIApp, key: str | None) -> None:
        self.app, self.key = app, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        public = self.key is None or scope["type"] != "http" or _is_public(scope["path"])
        if public or has_key(Headers(scope=scope), self.key or ""):
            await self.app(scope, receive, send)
            return
        guesses: Guesses = scope["app"].state.guesses
        client = (scope.get("client") or ("",))[0]
        try:
            if _offers_key(Headers(scope=scope), self.key or ""):
                guesses.check(client)
                guesses.count(client)
            raise ProblemError(
                401, "missing or wrong key: send it as 'Authorization: Bearer KEY'", {"WWW-Authenticate": "Bearer"}
            )
        except ProblemError as problem:
            await problem_response(problem.status_code, problem.detail, problem.headers)(scope, receive, send)


def has_key(headers: Headers, key: str) -> bool:
    """Return whether the request carries ``key``, as a bearer token or as the session cookie."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and _equal(token.strip(), key):
        return True
    # http.cookies stops at the first cookie it cannot parse, and other sites on the host may have set one.
    return _equal(cookie_parser(headers.get("cookie", "")).get(cookie_name(key), ""), cookie_value(key))


def _offers_key(headers: Headers, key: str) -> bool:
    """Return whether the request carries a key at all, right or wrong; a cookie of another key has another name."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    offered = scheme.lower() == "bearer" and bool(token.strip())
    return offered or cookie_name(key) in cookie_parser(headers.get("cookie", ""))


def cookie_name(key: str) -> str:
    """Return the cookie's name, which depends on the key: cookies of one host are shared by all its ports."""
    return f"vse_session_{cookie_value(key)[:8]}"


def cookie_value(key: str) -> str:
    """Return a proof of the key from which the key cannot be recovered."""
    return hmac.new(key.encode(), b"vse page session", hashlib.sha256).hexdigest()


def _equal(given: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


class Guesses:
    """Counts wrong keys by client, and refuses further ones for a while.

    Sessions that are open stay so. The counts of as many clients are kept as :data:`CLIENTS`; a client that tries less
    often than once in :data:`GUESS_SECONDS` starts anew.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._wrong: TTLCache[str, int] = TTLCache(CLIENTS, GUESS_SECONDS, timer=clock)

    def count(self, client: str) -> None:
        """Count a wrong key."""
        self._wrong[client] = self._wrong.get(client, 0) + 1

    def check(self, client: str) -> None:
        """Raise a problem (429) after too many wrong keys."""
        if self._wrong.get(client, 0) >= GUESSES:
            detail = f"{GUESSES} wrong keys: wait {GUESS_SECONDS} s before the next"
            raise ProblemError(429, detail, {"Retry-After": str(GUESS_SECONDS)})


def _is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith("/static/")


router = APIRouter(prefix=PREFIX, tags=["session"])


@router.post(
    "/session",
    status_code=204,
    responses=responses(400, 401, 403, 408, 413, 415, 421, 422, 429, 503),
    summary="Start a session of the page with the key",
)
async def open_session(context: Ctx, request: Request, given: KeyModel) -> Response:
    key = context.service.settings.key
    if key is None:
        return Response(status_code=204)
    guesses: Guesses = request.app.state.guesses
    guesses.check(context.client)
    if not _equal(given.key, key):
        guesses.count(context.client)
        raise ProblemError(401, "wrong key")
    response = Response(status_code=204)
    response.set_cookie(
        cookie_name(key),
        cookie_value(key),
        max_age=SESSION_DAYS * 86400,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response

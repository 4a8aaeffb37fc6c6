"""``/session``: a person types the key once, and the page carries a cookie from then on."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from vse.service.api.results import PREFIX
from vse.service.asgi.keys import cookie_name, cookie_value, same
from vse.service.context import Ctx
from vse.service.problems import ProblemError, responses
from vse.service.schemas import KeyModel

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

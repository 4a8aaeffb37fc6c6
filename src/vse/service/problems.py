"""Errors as ``application/problem+json`` (RFC 9457): a status, and one line that says what was wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import PurePath
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from vse.errors import InputError, VSEError

MEDIA_TYPE = "application/problem+json"
NOTHING = "there is nothing at this address: /openapi.json lists what there is"
_WAY = re.compile(r"(?<![\w/.])/(?:[^\s/'\"]+/)+")


class Problem(BaseModel):
    """What a client gets instead of an answer."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


class ProblemError(HTTPException):
    """Raised where a request cannot be answered; ``headers`` go with the answer.

    A kind of what Starlette raises itself: anything else that is raised while a body is read, FastAPI takes for a bad
    body.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail, dict(headers or {}))


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer; errors are never kept by a cache."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail)
    kept = {"Cache-Control": "no-store", **(headers or {})}
    return JSONResponse(body.model_dump(), status, headers=kept, media_type=MEDIA_TYPE)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How these errors are described in the OpenAPI document."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def install(app: FastAPI) -> None:
    """Let every error of the application leave as a problem."""

    @app.exception_handler(HTTPException)
    async def _refused(_: Request, error: HTTPException) -> JSONResponse:
        unknown = error.status_code == HTTPStatus.NOT_FOUND and error.detail == HTTPStatus.NOT_FOUND.phrase
        return problem_response(error.status_code, NOTHING if unknown else str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def _wrong_parameters(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(422, "; ".join(_told(each) for each in error.errors()[:3]))

    @app.exception_handler(InputError)
    async def _wrong_input(request: Request, error: InputError) -> JSONResponse:
        return problem_response(422, discreet(str(error), _where(request)))

    @app.exception_handler(VSEError)
    async def _failed(request: Request, error: VSEError) -> JSONResponse:
        return problem_response(503, discreet(str(error), _where(request)), {"Retry-After": "1"})


def discreet(text: str, where: str) -> str:
    """An error without the ways to places on this machine: of ``/home/anna/photos.vse`` the last name stays.

    ``where`` is that of the collection, which may hold spaces; of other ways that do a part may stay.
    """
    return _WAY.sub("", text.replace(where, PurePath(where).name))


def _where(request: Request) -> str:
    where: str = request.app.state.service.engine.where
    return where


def _told(error: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"][1:])  # the first says in which part of the request
    given = error.get("input")
    shown = f", got {str(given)[:60]!r}" if isinstance(given, (str, int, float)) else ""
    return f"{place or 'request'}: {error['msg']}{shown}"

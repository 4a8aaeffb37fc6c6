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
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from vse.errors import InputError, VSEError

MEDIA_TYPE = "application/problem+json"
UNTYPED = "about:blank"
NO_EVIDENCE_TYPE = "urn:vse:problem:no-evidence"
NO_CONFIDENCE_TYPE = "urn:vse:problem:no-confidence"
NO_RELEVANCE_TYPE = "urn:vse:problem:no-relevance"
NOT_LOCAL_TYPE = "urn:vse:problem:not-local"
NO_MODEL_TYPE = "urn:vse:problem:no-model"
NO_RERANKER_TYPE = "urn:vse:problem:no-reranker"
NO_DESKTOP_TYPE = "urn:vse:problem:no-desktop"
UNKNOWN_PATH = "unknown path: /openapi.json lists the endpoints"
_FOLDERS = re.compile(r"(?<![\w/.])/(?:[^\s/'\"]+/)+")


class Problem(BaseModel):
    """The body of an error response."""

    type: str = Field(UNTYPED, description="identifies the kind of problem, if the status alone does not")
    title: str
    status: int
    detail: str


class ProblemError(HTTPException):
    """An error response to raise from a route.

    Derives from Starlette's HTTPException: FastAPI reports anything else raised while a body is read as a bad body.

    Args:
        status: The HTTP status.
        detail: One line: the value, what was expected, how to fix it.
        headers: Headers of the response.
        kind: The ``type`` of the problem: a URI where the status does not tell, such as :data:`NO_EVIDENCE_TYPE`.
    """

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, *, kind: str = UNTYPED
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.kind = kind


def problem_response(
    status: int, detail: str, headers: Mapping[str, str] | None = None, *, kind: str = UNTYPED
) -> JSONResponse:
    """Return an error response that no cache stores."""
    body = Problem(type=kind, title=HTTPStatus(status).phrase, status=status, detail=detail)
    all_headers = {"Cache-Control": "no-store", **(headers or {})}
    return JSONResponse(body.model_dump(), status, headers=all_headers, media_type=MEDIA_TYPE)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of error responses with these statuses."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def install(app: FastAPI) -> None:
    """Make ``app`` return every error as a problem."""

    @app.exception_handler(HTTPException)
    async def _http_error(_: Request, error: HTTPException) -> JSONResponse:
        unknown = error.status_code == HTTPStatus.NOT_FOUND and error.detail == HTTPStatus.NOT_FOUND.phrase
        detail = UNKNOWN_PATH if unknown else str(error.detail)
        return problem_response(error.status_code, detail, error.headers, kind=getattr(error, "kind", UNTYPED))

    @app.exception_handler(RequestValidationError)
    async def _invalid_parameters(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(422, "; ".join(_describe(each) for each in error.errors()[:3]))

    @app.exception_handler(InputError)
    async def _invalid_input(request: Request, error: InputError) -> JSONResponse:
        return problem_response(422, _without_folders(str(error), request))

    @app.exception_handler(VSEError)
    async def _unavailable(request: Request, error: VSEError) -> JSONResponse:
        return problem_response(503, _without_folders(str(error), request), {"Retry-After": "1"})


def hide_folders(text: str, where: str) -> str:
    """Return an error text without the folders of this machine: ``/home/anna/photos.vse`` becomes ``photos.vse``.

    Args:
        text: The error.
        where: The path of the collection, which may contain spaces. Of other paths with spaces a part may remain.
    """
    return _FOLDERS.sub("", text.replace(where, PurePath(where).name))


def _without_folders(text: str, request: Request) -> str:
    for service in request.app.state.services.values():
        text = hide_folders(text, service.reloader.where)
    return text


def _describe(error: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"][1:])  # the first names the part of the request
    given = error.get("input")
    shown = f", got {str(given)[:60]!r}" if isinstance(given, (str, int, float)) else ""
    return f"{place or 'request'}: {error['msg']}{shown}"

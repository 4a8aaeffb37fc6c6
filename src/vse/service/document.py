"""The OpenAPI document: what FastAPI finds out by itself, and how problems look."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from vse.service.problems import Problem


class DocumentedAPI(FastAPI):
    """FastAPI, whose document holds the schema that all errors refer to."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            super().openapi()["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        return super().openapi()


def operation_id(route: APIRoute) -> str:
    """The name of the function, which generated clients are called by: it stays when an address changes."""
    return route.name

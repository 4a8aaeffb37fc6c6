"""The application: interface, page, and the layers around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.middleware import Middleware

from vse._version import __version__
from vse.service import auth, problems
from vse.service.auth import RequiresKey
from vse.service.limits import BodyLimits
from vse.service.media import rendition_cache
from vse.service.middleware import AllowedHosts, Failures, Figures, HeadsAsGets, OwnPages, Records, SecurityHeaders
from vse.service.problems import Problem
from vse.service.routes import collection, evidence, items, search
from vse.service.settings import ServiceSettings
from vse.service.state import Engine, Service
from vse.service.workers import Workers


class DocumentedAPI(FastAPI):
    """FastAPI, whose document holds the schema that all errors refer to."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            super().openapi()["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        return super().openapi()


def operation_id(route: APIRoute) -> str:
    """The name of the function, which generated clients are called by: it stays when an address changes."""
    return route.name


STATIC = Path(__file__).with_name("static")
ROUTERS = (
    search.router,
    items.router,
    evidence.router,
    collection.router,
    auth.router,
    collection.operation_router,
)


def create_app(engine: Engine, settings: ServiceSettings) -> FastAPI:
    """The service over what ``engine`` serves; closing the application closes the engine."""
    limits, figures = settings.limits, Figures()
    service = Service(engine, settings, Workers(limits), rendition_cache(), figures)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        if service.workers.close():
            engine.close()

    app = DocumentedAPI(
        title="vse",
        version=__version__,
        summary="Search pictures and clips with words and pictures",
        docs_url=None,  # both pages would load their code from elsewhere
        redoc_url=None,
        generate_unique_id_function=operation_id,
        lifespan=life,
        middleware=[  # the first is the outermost
            Middleware(Records, figures=figures, log_queries=settings.log_queries),
            Middleware(SecurityHeaders),
            Middleware(Failures),
            Middleware(AllowedHosts, names=settings.allowed_hosts),
            Middleware(OwnPages),
            Middleware(RequiresKey, key=settings.key),
            Middleware(BodyLimits, limits=limits),
            Middleware(HeadsAsGets),
        ],
    )
    app.state.service = service
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app

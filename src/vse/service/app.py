"""The FastAPI application: routes, middleware and the page."""

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
from vse.service.auth import RequireKey
from vse.service.context import Service, Workers
from vse.service.limits import BodyLimits
from vse.service.media import ServedRoots, serving, thumbnail_cache
from vse.service.middleware import (
    AllowedHosts,
    CatchErrors,
    HeadAsGet,
    Metrics,
    RequestLog,
    SameOrigin,
    SecurityHeaders,
)
from vse.service.problems import Problem
from vse.service.routes import collection, evidence, files, items, search
from vse.service.settings import ServiceSettings
from vse.service.state import Reloader

STATIC = Path(__file__).with_name("static")
ROUTERS = (
    search.router,
    items.router,
    files.router,
    evidence.router,
    collection.router,
    auth.router,
    collection.operation_router,
)


def create_app(reloader: Reloader, settings: ServiceSettings) -> FastAPI:
    """Return the application that serves the collection of ``reloader``.

    Args:
        reloader: The open collection. Shutting the application down closes it.
        settings: Host names, key and limits.

    Example::

        reloader = Reloader(lambda: load_collection("photos.vse"))
        app = create_app(reloader, ServiceSettings())
    """
    limits, metrics = settings.limits, Metrics()
    service = Service(
        reloader=reloader,
        settings=settings,
        workers=Workers(limits),
        thumbnails=thumbnail_cache(),
        metrics=metrics,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with serving(ServedRoots(reloader.where, settings.roots)):
            yield
        if service.workers.close():
            reloader.close()

    app = _API(
        title="vse",
        version=__version__,
        summary="Search images and videos by text and by image",
        docs_url=None,  # both documentation pages load scripts from a CDN
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        lifespan=lifespan,
        middleware=[  # outermost first
            Middleware(RequestLog, metrics=metrics, log_queries=settings.log_queries, key=settings.key),
            Middleware(SecurityHeaders),
            Middleware(CatchErrors),
            Middleware(AllowedHosts, names=settings.allowed_hosts),
            Middleware(SameOrigin),
            Middleware(RequireKey, key=settings.key),
            Middleware(BodyLimits, limits=limits),
            Middleware(HeadAsGet),
        ],
    )
    app.state.service = service
    app.state.guesses = auth.Guesses()
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


class _API(FastAPI):
    """FastAPI whose OpenAPI document includes the ``Problem`` schema that every error response refers to."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            super().openapi()["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        return super().openapi()


def _operation_id(route: APIRoute) -> str:
    """The function name: generated clients keep their method names when a URL changes."""
    return route.name

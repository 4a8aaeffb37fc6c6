"""The FastAPI application: routes, middleware and the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.middleware import Middleware

from vse._version import __version__
from vse.errors import InputError
from vse.index.rerank import Reranker
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
from vse.service.routes import collection, evidence, files, items, search, vectors
from vse.service.settings import MAX_COLLECTIONS, ONE_OF_SEVERAL, PREFIX, ServiceSettings
from vse.service.state import Reloader

STATIC = Path(__file__).with_name("static")
ROUTERS = (
    search.router,
    items.router,
    files.router,
    evidence.router,
    collection.router,
    vectors.router,
)
"""The routes of a collection."""


def create_app(
    reloaders: Reloader | Sequence[Reloader], settings: ServiceSettings, *, reranker: Reranker | None = None
) -> FastAPI:
    """Return the application that serves one collection, or several.

    Args:
        reloaders: The open collections. Paths without a name of a collection are about the first. Shutting the
            application down closes them.
        settings: Host names, key and limits.
        reranker: Orders the best results of a search again where a client asks for it.

    Raises:
        InputError: There are more than :data:`MAX_COLLECTIONS`.

    Example::

        reloader = Reloader(lambda: load_collection("photos.vse"))
        app = create_app(reloader, ServiceSettings())
    """
    limits, metrics = settings.limits, Metrics()
    opened = [reloaders] if isinstance(reloaders, Reloader) else list(reloaders)
    if not 1 <= len(opened) <= MAX_COLLECTIONS:
        raise InputError(f"{len(opened)} collections: expected 1 to {MAX_COLLECTIONS}")
    workers, thumbnails = Workers(limits), thumbnail_cache()
    services: dict[str, Service] = {}
    for reloader in opened:
        name = _unique(collection.collection_name(reloader.where), services)
        services[name] = Service(
            reloader=reloader,
            settings=settings,
            workers=workers,
            thumbnails=thumbnails,
            metrics=metrics,
            roots=ServedRoots(reloader.where, settings.roots),
            name=name,
            reranker=reranker,
        )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as stack:
            for service in services.values():
                stack.enter_context(serving(service.roots))
            yield
        if workers.close():
            for reloader in opened:
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
    app.state.services = services
    app.state.service = next(iter(services.values()))
    app.state.guesses = auth.Guesses()
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX)
    for router in (auth.router, collection.operation_router):
        app.include_router(router)
    app.include_router(collection.service_router, prefix=PREFIX)
    for router in ROUTERS:
        app.include_router(router, prefix=ONE_OF_SEVERAL)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


class _API(FastAPI):
    """FastAPI whose OpenAPI document includes what it cannot see itself.

    These are the ``Problem`` schema that every error response refers to, and the name of a collection in a path, which
    the context of a request reads.
    """

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            document["components"]["schemas"]["Problem"] = Problem.model_json_schema()
            for path, operations in document["paths"].items():
                if path.startswith(ONE_OF_SEVERAL):
                    for operation in operations.values():
                        operation["parameters"] = [COLLECTION_PARAMETER, *operation.get("parameters", [])]
        return super().openapi()


COLLECTION_PARAMETER = {
    "name": "collection",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1},
    "description": "the name of a collection, see /collections",
}


def _operation_id(route: APIRoute) -> str:
    """The function name: generated clients keep their method names when a URL changes."""
    return f"{route.name}_of_collection" if route.path.startswith(ONE_OF_SEVERAL) else route.name


def _unique(name: str, taken: Container[str]) -> str:
    """Return a name for a collection in paths: without a slash, and unlike the others."""
    plain = name.replace("/", "_").strip(".") or "collection"
    found, number = plain, 2
    while found in taken:
        found, number = f"{plain}-{number}", number + 1
    return found

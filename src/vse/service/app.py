"""The application: interface, page, and the layers around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware import Middleware

from vse._version import __version__
from vse.service import problems
from vse.service.api import collection, evidence, health, items, search, session
from vse.service.asgi.bodies import BodyLimits
from vse.service.asgi.failures import Failures
from vse.service.asgi.headers import SecurityHeaders
from vse.service.asgi.heads import HeadsAsGets
from vse.service.asgi.hosts import AllowedHosts
from vse.service.asgi.keys import RequiresKey
from vse.service.asgi.origins import OwnPages
from vse.service.asgi.records import Figures, Records
from vse.service.context import Service
from vse.service.document import DocumentedAPI, operation_id
from vse.service.engine import Engine
from vse.service.renditions import rendition_cache
from vse.service.settings import ServiceSettings
from vse.service.workers import Workers

STATIC = Path(__file__).with_name("static")


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
    for module in (search, items, evidence, collection, session, health):
        app.include_router(module.router)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app

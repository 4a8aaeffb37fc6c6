"""``/healthz`` and ``/metrics``: for whoever looks after the service."""

from __future__ import annotations

from fastapi import APIRouter, Response

from vse.service.context import Ctx
from vse.service.problems import responses
from vse.service.schemas import HealthModel

router = APIRouter(tags=["operation"])


@router.get("/healthz", responses=responses(403, 421, 503), summary="Whether the collection can be asked")
def healthz(context: Ctx) -> HealthModel:
    with context.service.engine.lend() as serving:  # in a thread, but none of the workers: busy is not ill
        serving.collection.info()  # an index that cannot be read is 503
    return HealthModel()


@router.get(
    "/metrics",
    responses={200: {"content": {"text/plain": {}}}, **responses(401, 403, 421, 503)},
    response_class=Response,
    summary="Figures for Prometheus",
)
def metrics(context: Ctx) -> Response:
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    figures = context.service.figures
    with context.service.engine.lend() as serving:
        info = serving.collection.info()
    figures.items.set(info.items)
    figures.files.set(info.files)
    return Response(generate_latest(figures.registry), media_type=CONTENT_TYPE_LATEST)

"""``/collection``, ``/collections``, ``/model``, ``/healthz`` and ``/metrics``: what is served, and how it runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import APIRouter, Response

from vse.errors import VSEError
from vse.index.relevance import GOOD, STRONG, WEAK
from vse.index.types import readable
from vse.models.curves import PoolingCurve
from vse.models.protocols import Capabilities
from vse.service.context import Context, Ctx, Service
from vse.service.files import can_reveal
from vse.service.problems import responses
from vse.service.schemas import (
    CapabilitiesModel,
    CollectionModel,
    CollectionsModel,
    CurveModel,
    CurveSizeModel,
    CurvesModel,
    FilesModel,
    FolderModel,
    GradesModel,
    HealthModel,
    ModelModel,
    NameModel,
    ServedCollectionModel,
)
from vse.service.settings import MAX_EXPORT, PREFIX
from vse.service.state import LoadedCollection

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_FOLDERS = 200
NO_CAPABILITIES = Capabilities(images=False, texts=False, videos=False, evidence=False, features=False)
ERRORS = responses(401, 403, 404, 421, 429, 503)

router = APIRouter(tags=["collection"])
service_router = APIRouter(tags=["collection"])
operation_router = APIRouter(tags=["operation"])


@router.get("/collection", responses=ERRORS, summary="Describe the collection")
async def collection(context: Ctx) -> CollectionModel:
    return await context.compute(lambda loaded: _overview(context, loaded))


@service_router.get("/collections", responses=responses(401, 403, 421, 429, 503), summary="List the collections")
async def collections(context: Ctx) -> CollectionsModel:
    def describe() -> CollectionsModel:
        return CollectionsModel(collections=[_served(service) for service in context.services.values()])

    return await context.service.workers.run(context.client, describe)


@router.get("/model/curves", responses=ERRORS, summary="Get the learned pooling curves of the model")
async def model_curves(context: Ctx) -> CurvesModel:
    return await context.compute(curves)


@operation_router.get("/healthz", responses=responses(403, 421, 503), summary="Check that the collections can be read")
def healthz(context: Ctx) -> HealthModel:
    for service in context.services.values():
        with service.reloader.borrow() as loaded:  # not in a worker thread: a busy service is healthy
            loaded.collection.info()
    return HealthModel()


@operation_router.get(
    "/metrics",
    responses={200: {"content": {"text/plain": {}}}, **responses(401, 403, 421, 503)},
    response_class=Response,
    summary="Get metrics for Prometheus",
)
def metrics(context: Ctx) -> Response:
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    metrics = context.service.metrics
    for service in context.services.values():
        with service.reloader.borrow() as loaded:
            metrics.describe(service.name, loaded.collection)
    return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _overview(context: Context, loaded: LoadedCollection) -> CollectionModel:
    info = loaded.collection.info()
    abilities = NO_CAPABILITIES if loaded.model is None else loaded.model.capabilities
    facets = loaded.facets(info.changes, MAX_FOLDERS)
    return CollectionModel(
        name=context.service.name,
        collections=len(context.services),
        files=info.files,
        items=info.items,
        captions=info.captions,
        images=facets.images,
        videos=facets.videos,
        folders=[FolderModel(path=readable(each.path), files=each.files) for each in facets.folders],
        places=[NameModel(name=readable(each.name), files=each.files) for each in facets.places],
        cameras=[NameModel(name=readable(each.name), files=each.files) for each in facets.cameras],
        first=facets.first,
        last=facets.last,
        external=loaded.model is None,
        model=ModelModel(
            name=info.model if loaded.model is None else collection_name(info.model_source),
            fingerprint=info.model,
            dimensions=info.dimensions,
            capabilities=CapabilitiesModel(
                **abilities._asdict(),
                confidence=loaded.coefficients is not None,
                relevance=loaded.relevance is not None,
                rerank=context.service.reranker is not None,
            ),
        ),
        searches_text=abilities.texts,
        grades=None if loaded.relevance is None else GradesModel(strong=STRONG, good=GOOD, weak=WEAK),
        original_files=FilesModel(
            original=context.originals,
            roots=context.originals,
            reveal=context.local and can_reveal(),
            lists=True,
            archives=context.originals,
            max_export=MAX_EXPORT,
        ),
    )


def collection_name(where: str) -> str:
    """Return the last part of a path: clients need not know the folders of this machine."""
    return readable(PurePath(where).name or where)


def _served(service: Service) -> ServedCollectionModel:
    files: int | None = None
    with suppress(VSEError), service.reloader.borrow() as loaded:
        files = loaded.collection.info().files
    url = f"{PREFIX}/collections/{quote(service.name, safe='')}"
    return ServedCollectionModel(name=service.name, files=files, url=url)


def curves(loaded: LoadedCollection) -> CurvesModel:
    """Return the pooling curves of the collection's model, grouped by tower."""
    found = () if loaded.model is None else loaded.model.pooling_curves()
    return CurvesModel(curves=list(_by_tower(found)))


def _by_tower(curves: Iterable[PoolingCurve]) -> Iterable[CurveModel]:
    """Group the curves of each pooling, from the smallest set size to the largest."""
    groups: dict[tuple[str, str], list[PoolingCurve]] = {}
    for curve in curves:
        groups.setdefault((curve.tower, curve.pooling), []).append(curve)
    for members in groups.values():
        drawn = sorted((curve for curve in members if curve.coefficients), key=lambda curve: curve.size or 0)
        nearest = drawn[-1].nearest if drawn else None
        yield CurveModel(
            tower=members[0].tower,
            pooling=members[0].pooling,
            sizes=[CurveSizeModel(size=len(c.coefficients), weights=list(c.coefficients)) for c in drawn],
            resembles=nearest.label if nearest else None,
            note=members[0].note,
        )

"""``/collection`` and ``/model``: what can be searched, and by which model."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Response

from vse.errors import InputError
from vse.index.types import readable
from vse.models.curves import CURVES_FILE, PoolingCurve, curves_of, read_curves
from vse.service.problems import responses
from vse.service.routes.results import PREFIX
from vse.service.schemas import (
    CollectionModel,
    CurveModel,
    CurveSizeModel,
    CurvesModel,
    FolderModel,
    HealthModel,
    ModelModel,
)
from vse.service.state import Ctx, Serving

if TYPE_CHECKING:
    from collections.abc import Iterable


MOST_FOLDERS = 200


def overview(serving: Serving) -> CollectionModel:
    """Counts, folders and dates, as of now."""
    info = serving.collection.info()
    facets = serving.facets(info.changes, MOST_FOLDERS)
    return CollectionModel(
        name=_name(info.where),
        files=info.files,
        items=info.items,
        captions=info.captions,
        images=facets.images,
        videos=facets.videos,
        folders=[FolderModel(path=readable(each.path), files=each.files) for each in facets.folders],
        first=facets.first,
        last=facets.last,
        model=ModelModel(name=_name(info.model_source), fingerprint=info.model, dimensions=info.dimensions),
        searches_text=serving.model.tokenizer is not None,
    )


def curves(serving: Serving) -> CurvesModel:
    """What the poolings have learned: as saved with the model, or read from it where torch runs it."""
    return CurvesModel(curves=list(_by_tower(_found(serving))))


def _found(serving: Serving) -> Iterable[PoolingCurve]:
    model: Any = serving.model
    if hasattr(model, "image_encoder"):
        return curves_of(model)
    saved = Path(serving.source).expanduser() / CURVES_FILE
    try:
        return read_curves(saved)
    except InputError:  # a model from the hub, or one that was exported without them
        return ()


def _by_tower(found: Iterable[PoolingCurve]) -> Iterable[CurveModel]:
    """The curves of one pooling together, from the smallest set to the largest."""
    groups: dict[tuple[str, str], list[PoolingCurve]] = {}
    for curve in found:
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


def _name(address: str) -> str:
    """The last part of a path: where it lies is nobody's business who only searches."""
    return readable(PurePath(address).name or address)


router = APIRouter(prefix=PREFIX, tags=["collection"])
ERRORS = responses(401, 403, 421, 429, 503)


@router.get("/collection", responses=ERRORS, summary="What the collection holds")
async def collection(context: Ctx) -> CollectionModel:
    return await context.compute(overview)


@router.get("/model/curves", responses=ERRORS, summary="What the poolings of the model have learned")
async def model_curves(context: Ctx) -> CurvesModel:
    return await context.compute(curves)


operation_router = APIRouter(tags=["operation"])


@operation_router.get("/healthz", responses=responses(403, 421, 503), summary="Whether the collection can be asked")
def healthz(context: Ctx) -> HealthModel:
    with context.service.engine.lend() as serving:  # in a thread, but none of the workers: busy is not ill
        serving.collection.info()  # an index that cannot be read is 503
    return HealthModel()


@operation_router.get(
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

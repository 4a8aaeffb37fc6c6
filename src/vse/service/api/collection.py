"""``/collection`` and ``/model``: what can be searched, and by which model."""

from __future__ import annotations

from fastapi import APIRouter

from vse.service.api.results import PREFIX
from vse.service.context import Ctx
from vse.service.overview import curves, overview
from vse.service.problems import responses
from vse.service.schemas import CollectionModel, CurvesModel

router = APIRouter(prefix=PREFIX, tags=["collection"])
ERRORS = responses(401, 403, 421, 429, 503)


@router.get("/collection", responses=ERRORS, summary="What the collection holds")
async def collection(context: Ctx) -> CollectionModel:
    return await context.compute(overview)


@router.get("/model/curves", responses=ERRORS, summary="What the poolings of the model have learned")
async def model_curves(context: Ctx) -> CurvesModel:
    return await context.compute(curves)

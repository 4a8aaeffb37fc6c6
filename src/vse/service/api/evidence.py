"""``/items/{id}/evidence``: what in a picture or a clip speaks for a query."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as Parameter

from vse.service.api.items import ERRORS, ItemId
from vse.service.api.results import PREFIX
from vse.service.context import Ctx
from vse.service.evidence import explain
from vse.service.problems import responses
from vse.service.schemas import ClipEvidenceModel, PictureEvidenceModel
from vse.service.serving import Serving

router = APIRouter(prefix=PREFIX, tags=["items"])


@router.get(
    "/items/{item_id}/evidence", responses={**ERRORS, **responses(409)}, summary="What in it speaks for a query"
)
async def evidence(
    context: Ctx,
    item_id: ItemId,
    query: Annotated[str, Parameter(max_length=64, description="the query_id of an answer")],
) -> PictureEvidenceModel | ClipEvidenceModel:
    def answer(serving: Serving) -> PictureEvidenceModel | ClipEvidenceModel:
        question = serving.question(query)
        return explain(
            serving.model, serving.item(item_id), question.found.vector, context.service.settings.limits.seconds
        )

    return await context.compute(answer)

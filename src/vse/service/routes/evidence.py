"""``/items/{id}/evidence``: what in a picture or a clip speaks for a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter
from fastapi import Query as Parameter

from vse.errors import InputError
from vse.index.evidence import evidence as cell_evidence
from vse.index.evidence import frame_evidence, moment_frames, seen
from vse.index.scan.describe import digest_of
from vse.index.types import Item, Vectors, full_path
from vse.inputs.images import ImageLimits
from vse.inputs.video.file import VideoLimits
from vse.service.media import open_media, reachable
from vse.service.problems import ProblemError, responses
from vse.service.routes.items import ERRORS, ItemId
from vse.service.routes.results import PREFIX
from vse.service.schemas import ClipEvidenceModel, FrameModel, PictureEvidenceModel, SeenModel
from vse.service.state import Ctx, Serving

if TYPE_CHECKING:
    from vse.index.query import Model


CHANGED = "the file has changed since it was indexed: its evidence would be that of another picture"


def explain(model: Model, item: Item, vector: Vectors, seconds: float) -> PictureEvidenceModel | ClipEvidenceModel:
    """The parts that add up to the score; 409 when the file is no longer the one that was indexed.

    Reading a clip may take ``seconds``. Its size and time of change tell whether it is the same: its digest would take
    longer than its frames.
    """
    return _clip(model, item, vector, seconds) if item.file.kind == "video" else _picture(model, item, vector)


def _picture(model: Model, item: Item, vector: Vectors) -> PictureEvidenceModel:
    opened = open_media(item.file)
    with opened.stream:
        content = opened.read(ImageLimits().max_bytes)
    if digest_of(content) != item.file.digest:
        raise ProblemError(409, CHANGED)
    if model.preprocessing is None:
        raise InputError("this model takes sets of features, not pictures")
    cells = cell_evidence(model, content, vector)
    height, width = item.file.height, item.file.width
    top, left, rows, columns = seen((height, width), model.preprocessing)
    return PictureEvidenceModel(
        score=float(cells.sum()),
        grid=(cells.shape[0], cells.shape[1]),
        cells=[[round(float(cell), 6) for cell in row] for row in cells],
        seen=SeenModel(top=top / height, left=left / width, height=rows / height, width=columns / width),
    )


def _clip(model: Model, item: Item, vector: Vectors, seconds: float) -> ClipEvidenceModel:
    opened = open_media(item.file)
    with opened.stream:
        if not opened.is_as_indexed(item.file):
            raise ProblemError(409, CHANGED)
        path = reachable(opened, full_path(item.file))
        window = moment_frames(path, item.start or 0.0, VideoLimits(max_time=seconds))
    shares = frame_evidence(model, window, vector)
    pairs = zip(window.times, shares.tolist(), strict=True)
    return ClipEvidenceModel(
        score=float(shares.sum()), frames=[FrameModel(at=round(at, 3), share=round(share, 6)) for at, share in pairs]
    )


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

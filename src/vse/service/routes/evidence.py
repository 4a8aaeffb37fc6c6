"""``/items/{id}/evidence``: which cells of an image, or frames of a video, contribute to a score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from fastapi import APIRouter
from fastapi import Query as Parameter

from vse.index.evidence import SPREAD, BoxEvidence, frame_evidence, image_evidence, moment_frames, seen
from vse.index.scan.describe import digest, digest_of
from vse.index.types import Item, Vectors
from vse.inputs.images import BadImageError, ImageLimits
from vse.inputs.video.file import VideoLimits
from vse.models.protocols import NO_EVIDENCE
from vse.service.context import Ctx
from vse.service.media import open_media
from vse.service.problems import NO_EVIDENCE_TYPE, ProblemError, responses
from vse.service.routes.items import ERRORS, ItemId
from vse.service.schemas import BoxModel, ClipEvidenceModel, FrameModel, PictureEvidenceModel, SeenModel
from vse.service.state import LoadedCollection

if TYPE_CHECKING:
    from vse.index.query import Model

WORDS_ALONE = "the model knows no word of this query, which was searched in the texts of files: there is no evidence"
CHANGED = "the file has changed since it was indexed: index it again to see its evidence"

router = APIRouter(tags=["items"])


@router.get(
    "/items/{item_id}/evidence", responses={**ERRORS, **responses(409)}, summary="Explain why an item matches a query"
)
async def evidence(
    context: Ctx,
    item_id: ItemId,
    query: Annotated[str, Parameter(max_length=64, description="the query_id of a search response")],
) -> PictureEvidenceModel | ClipEvidenceModel:
    seconds = context.service.settings.limits.seconds

    def explain(loaded: LoadedCollection) -> PictureEvidenceModel | ClipEvidenceModel:
        encoded, item = loaded.query(query).encoded, loaded.item(item_id)
        model, vector = loaded.require_model(), encoded.vector
        if encoded.words_alone:
            raise ProblemError(422, WORDS_ALONE, kind=NO_EVIDENCE_TYPE)
        if item.file.kind == "video":
            return _explain_video(model, item, vector, seconds)
        return _explain_image(model, item, vector)

    return await context.compute(explain, "media")


def _explain_image(model: Model, item: Item, vector: Vectors) -> PictureEvidenceModel:
    if model.preprocessing is None or not model.capabilities.evidence:
        raise ProblemError(422, NO_EVIDENCE, kind=NO_EVIDENCE_TYPE)
    opened = open_media(item.file)
    with opened.stream:
        source = opened.source(item.file, ImageLimits().max_bytes)
        if (digest_of(source) if isinstance(source, bytes) else digest(source)) != item.file.digest:
            raise ProblemError(409, CHANGED)
        try:
            found = image_evidence(model, source, vector)
        except BadImageError as error:
            raise ProblemError(404, f"the image cannot be read any more ({error.reason})") from None
    cells = found.density(SPREAD, SPREAD) if isinstance(found, BoxEvidence) else found
    pairs = zip(*map(np.ndarray.tolist, found), strict=True) if isinstance(found, BoxEvidence) else ()
    height, width = item.file.height, item.file.width
    top, left, rows, columns = seen((height, width), model.preprocessing)
    return PictureEvidenceModel(
        score=float(cells.sum()),
        grid=(cells.shape[0], cells.shape[1]),
        cells=[[round(float(cell), 6) for cell in row] for row in cells],
        boxes=[
            BoxModel(left=left, top=top, right=right, bottom=bottom, share=round(share, 6))
            for (left, top, right, bottom), share in pairs
        ],
        seen=SeenModel(top=top / height, left=left / width, height=rows / height, width=columns / width),
    )


def _explain_video(model: Model, item: Item, vector: Vectors, seconds: float) -> ClipEvidenceModel:
    """Checks size and modification time only: computing the digest would take longer than decoding the frames."""
    opened = open_media(item.file)
    with opened.stream:
        if not opened.is_as_indexed(item.file):
            raise ProblemError(409, CHANGED)
        window = moment_frames(opened.path(item.file), item.start or 0.0, VideoLimits(max_time=seconds))
    shares = frame_evidence(model, window, vector)
    pairs = zip(window.times, shares.tolist(), strict=True)
    return ClipEvidenceModel(
        score=float(shares.sum()), frames=[FrameModel(at=round(at, 3), share=round(share, 6)) for at, share in pairs]
    )

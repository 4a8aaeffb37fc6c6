"""``/items``: what is in the collection, and how it looks."""

from __future__ import annotations

import mimetypes
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Header, Path
from fastapi import Query as Parameter
from fastapi.responses import Response
from pydantic import BeforeValidator, Field

from vse.index.query import HIGHEST_ID
from vse.index.scan.describe import digest_of
from vse.index.types import Item, full_path
from vse.inputs.images import BadImageError, ImageLimits, read_image
from vse.service.media import PREVIEW, OpenFile, ThumbnailSize, Wanted, is_available, names, open_media, shrink, stream
from vse.service.problems import ProblemError, responses
from vse.service.routes.results import (
    PREFIX,
    FilterParameters,
    as_json,
    item_result,
    place_of,
    thumbnail_address,
    version_of,
)
from vse.service.schemas import ItemModel, PageModel
from vse.service.settings import MOST_OFFSET, MOST_RESULTS
from vse.service.state import Context, Ctx, Serving

router = APIRouter(prefix=PREFIX, tags=["items"])
ERRORS = responses(401, 403, 404, 421, 422, 429, 503)
ItemId = Annotated[int, Path(ge=1, le=HIGHEST_ID, description="the id of a result")]
_DIGITS = {str(side): side for side in get_args(ThumbnailSize)}
Side = Annotated[ThumbnailSize, BeforeValidator(lambda given: _DIGITS.get(given, given))]
"""A choice of numbers does not take the digits of an address for one."""
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "Not Modified"}}
JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}}, **NOT_MODIFIED}
KEPT = "private, max-age=31536000, immutable"
ASKED_AGAIN = "private, no-cache"


class BrowseParameters(FilterParameters):
    """What may be shown, and which page of it."""

    k: int = Field(40, ge=1, le=MOST_RESULTS, description="files on a page")
    offset: int = Field(0, ge=0, le=MOST_OFFSET, description="files before the page")


@router.get("/items", response_model=PageModel, responses=ERRORS, summary="The files of the collection, newest first")
async def browse(context: Ctx, parameters: Annotated[BrowseParameters, Parameter()]) -> Response:
    where = parameters.to_filter()

    def answer(serving: Serving) -> Response:
        found = serving.collection.recent(parameters.k + 1, offset=parameters.offset, where=where)
        results = [item_result(item) for item in found[: parameters.k]]
        return as_json(PageModel(offset=parameters.offset, more=len(found) > parameters.k, results=results))

    return await context.compute(answer)


@router.get("/items/{item_id}", responses=ERRORS, summary="All that is known of an item")
async def item(context: Ctx, item_id: ItemId) -> ItemModel:
    return await context.compute(lambda serving: _described(serving.item(item_id)))


@router.get(
    "/items/{item_id}/thumbnail", responses={**JPEG, **ERRORS}, response_class=Response, summary="A small picture"
)
async def thumbnail(
    context: Ctx,
    item_id: ItemId,
    size: Side = 320,
    v: Annotated[str, Parameter(max_length=64, description="the content this was made from")] = "",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    return await context.compute(lambda serving: _picture(context, serving.item(item_id), size, v, if_none_match))


@router.get(
    "/items/{item_id}/preview", responses={**JPEG, **ERRORS}, response_class=Response, summary="A large picture"
)
async def preview(context: Ctx, item_id: ItemId, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    return await context.compute(lambda serving: _picture(context, serving.item(item_id), PREVIEW, "", if_none_match))


@router.get(
    "/items/{item_id}/media",
    responses={
        200: {"content": {"video/*": {}}},
        206: {"description": "Partial Content"},
        **NOT_MODIFIED,
        **ERRORS,
        **responses(416),
    },
    response_class=Response,
    summary="The clip itself, whole or in part",
)
async def media(
    context: Ctx,
    item_id: ItemId,
    range_header: Annotated[str | None, Header(alias="Range")] = None,
    if_range: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    def answer(serving: Serving) -> Response:
        found = serving.item(item_id)
        if found.file.kind != "video":
            raise ProblemError(404, "this is a picture: its preview can be shown")
        kind = mimetypes.guess_type(found.file.path)[0] or ""
        kind = kind if kind.startswith("video/") else "application/octet-stream"
        wanted = Wanted(range_header, if_range, if_none_match, head=context.head)
        return stream(open_media(found.file), wanted, {"Cache-Control": ASKED_AGAIN}, kind)

    return await context.compute(answer)


def _described(found: Item) -> ItemModel:
    file, address = found.file, f"{PREFIX}/items/{found.id}"
    folder, name = place_of(file)
    return ItemModel(
        id=found.id, name=name, folder=folder, kind=file.kind, size=file.size, modified=file.modified / 1e9,
        taken=file.taken, width=file.width, height=file.height, latitude=file.latitude, longitude=file.longitude,
        duration=file.duration, captions=list(file.captions), start=found.start, end=found.end,
        available=is_available(file), thumbnail=thumbnail_address(found), preview=f"{address}/preview",
        media=f"{address}/media" if file.kind == "video" else None,
    )  # fmt: skip


def _picture(context: Context, found: Item, side: int, version: str, known: str | None) -> Response:
    """A rendition. Its entity tag is the digest of what was indexed, and whoever has that is told so without decoding.

    A file that has changed since is shown as it is now, without a tag, and nobody keeps it: the addresses that the
    collection gives name the old content until it is indexed again.
    """
    moment = "" if found.start is None else f"-{found.start:.3f}"
    tag = f'"{found.file.digest[:32]}{moment}-{side}"'
    kept = KEPT if version == version_of(found) else ASKED_AGAIN
    opened = open_media(found.file)
    with opened.stream:
        same = opened.is_as_indexed(found.file)
        if same and names(known, tag):
            return Response(status_code=304, headers={"ETag": tag, "Cache-Control": kept})
        content = context.service.renditions.get(tag) if same else None
        if content is None:
            content, same = _made(found, opened, side, context.service.settings.limits.seconds)
            if same:
                context.service.renditions.put(tag, content)
    headers = {"ETag": tag, "Cache-Control": kept} if same else {"Cache-Control": "no-store"}
    return Response(content, headers=headers, media_type="image/jpeg")


def _made(found: Item, opened: OpenFile, side: int, seconds: float) -> tuple[bytes, bool]:
    """A rendition of what lies there now, and whether that is what was indexed; a clip may take ``seconds``."""
    if found.file.kind == "video":
        from vse.service.media import frame_at

        middle = 0.0 if found.start is None or found.end is None else (found.start + found.end) / 2
        frame = frame_at(opened, full_path(found.file), middle, seconds)
        return shrink(frame, side), opened.is_as_indexed(found.file)  # the digest of a clip takes too long
    limits = ImageLimits()
    content = opened.read(limits.max_bytes)
    try:
        pixels = read_image(content, limits=limits, at_least=(side, side))
    except BadImageError as error:
        raise ProblemError(404, f"the picture cannot be read any more ({error.reason})") from None
    return shrink(pixels, side), digest_of(content) == found.file.digest

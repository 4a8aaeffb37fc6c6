"""``/items``: the files of the collection, their thumbnails and their videos."""

from __future__ import annotations

import mimetypes
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Header, Path
from fastapi import Query as Parameter
from fastapi.responses import Response
from pydantic import BeforeValidator, Field

from vse.index.query import HIGHEST_ID
from vse.index.types import Item, readable
from vse.service.context import Context, Ctx
from vse.service.media import (
    PREVIEW,
    MediaRequest,
    ThumbnailSize,
    is_available,
    make_thumbnail,
    matches,
    open_media,
    stream,
)
from vse.service.problems import ProblemError, responses
from vse.service.routes.results import (
    FilterParameters,
    PageParameters,
    continued,
    iso_date,
    item_result,
    json_response,
    known_total,
    next_cursor,
    split_path,
    thumbnail_url,
    version_of,
)
from vse.service.schemas import ItemModel, PageModel
from vse.service.state import LoadedCollection

ERRORS = responses(401, 403, 404, 421, 422, 429, 503)
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "Not Modified"}}
JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}}, **NOT_MODIFIED}
CACHE_FOREVER = "private, max-age=31536000, immutable"
REVALIDATE = "private, no-cache"

ItemId = Annotated[int, Path(ge=1, le=HIGHEST_ID, description="the id of a result")]
_SIDES = {str(side): side for side in get_args(ThumbnailSize)}
Side = Annotated[ThumbnailSize, BeforeValidator(lambda given: _SIDES.get(given, given))]
"""A Literal of numbers does not accept the digits of a URL."""

router = APIRouter(tags=["items"])


class BrowseParameters(PageParameters, FilterParameters):
    """A filter, and a page of what it leaves."""

    sort: Literal["date"] = Field("date", description="files come newest first")


@router.get("/items", response_model=PageModel, responses=ERRORS, summary="List the files, newest first")
async def browse(context: Ctx, parameters: Annotated[BrowseParameters, Parameter()]) -> Response:
    page = continued(parameters)
    where = page.to_filter()

    def list_page(loaded: LoadedCollection) -> Response:
        found = loaded.collection.recent(page.k + 1, offset=page.offset, where=where)
        results = [item_result(context, item) for item in found[: page.k]]
        more = len(found) > page.k
        total = loaded.collection.info().files if where.empty else known_total(page.offset, len(results), more)
        return json_response(
            PageModel(offset=page.offset, more=more, total=total, cursor=next_cursor(page, more), results=results)
        )

    return await context.compute(list_page)


@router.get("/items/{item_id}", responses=ERRORS, summary="Get the details of an item")
async def item(context: Ctx, item_id: ItemId) -> ItemModel:
    return await context.compute(lambda loaded: _details(context, loaded.item(item_id)))


@router.get(
    "/items/{item_id}/thumbnail", responses={**JPEG, **ERRORS}, response_class=Response, summary="Get a small image"
)
async def thumbnail(
    context: Ctx,
    item_id: ItemId,
    size: Side = 320,
    v: Annotated[str, Parameter(max_length=64, description="version of the content")] = "",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    return await context.compute(lambda loaded: _image(context, loaded.item(item_id), size, v, if_none_match), "media")


@router.get(
    "/items/{item_id}/preview", responses={**JPEG, **ERRORS}, response_class=Response, summary="Get a large image"
)
async def preview(context: Ctx, item_id: ItemId, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    return await context.compute(
        lambda loaded: _image(context, loaded.item(item_id), PREVIEW, "", if_none_match), "media"
    )


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
    summary="Get a video file, whole or a byte range",
)
async def media(
    context: Ctx,
    item_id: ItemId,
    range_header: Annotated[str | None, Header(alias="Range")] = None,
    if_range: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    request = MediaRequest(range_header, if_range, if_none_match, head=context.head)

    def open_video(loaded: LoadedCollection) -> Response:
        file = loaded.item(item_id).file
        if file.kind != "video":
            raise ProblemError(404, f"item {item_id} is an image: get its preview instead")
        media_type = mimetypes.guess_type(file.path)[0] or ""
        media_type = media_type if media_type.startswith("video/") else "application/octet-stream"
        return stream(open_media(file), request, {"Cache-Control": REVALIDATE}, media_type)

    return await context.compute(open_video)


def _details(context: Context, item: Item) -> ItemModel:
    file, url = item.file, f"{context.prefix}/items/{item.id}"
    folder, name = split_path(file)
    available = is_available(file)
    return ItemModel(
        id=item.id,
        name=name,
        folder=folder,
        path=readable(file.path),
        root=readable(file.root) if context.originals else None,
        kind=file.kind,
        size=file.size,
        modified=file.modified / 1e9,
        taken=file.taken,
        date=iso_date(file.taken),
        width=file.width,
        height=file.height,
        latitude=file.latitude,
        longitude=file.longitude,
        duration=file.duration,
        captions=list(file.captions),
        camera=file.camera,
        place=file.place,
        title=file.title,
        description=file.description,
        keywords=list(file.keywords),
        ocr=file.ocr,
        start=item.start,
        end=item.end,
        available=available,
        missing=not available,
        thumbnail=thumbnail_url(context, item),
        preview=f"{url}/preview",
        media=f"{url}/media" if file.kind == "video" else None,
        original=f"{url}/original" if context.originals else None,
    )


def _image(context: Context, item: Item, side: int, version: str, if_none_match: str | None) -> Response:
    """A thumbnail or preview. Its entity tag is the digest of the indexed content, so 304 needs no decoding.

    A file that has changed is shown as it is now, without a tag and not to be cached: until it is indexed again, the
    URLs of the collection name the old content.
    """
    segment = "" if item.start is None else f"-{item.start:.3f}"
    tag = f'"{item.file.digest[:32]}{segment}-{side}"'
    cache_control = CACHE_FOREVER if version == version_of(item) else REVALIDATE
    cache = context.service.thumbnails
    opened = open_media(item.file)
    with opened.stream:
        unchanged = opened.is_as_indexed(item.file)
        if unchanged and matches(if_none_match, tag):
            return Response(status_code=304, headers={"ETag": tag, "Cache-Control": cache_control})
        content = cache.get(tag) if unchanged else None
        if content is None:
            content, unchanged = make_thumbnail(item, opened, side, context.service.settings.limits.seconds)
            if unchanged:
                cache.put(tag, content)
    headers = {"ETag": tag, "Cache-Control": cache_control} if unchanged else {"Cache-Control": "no-store"}
    return Response(content, headers=headers, media_type="image/jpeg")

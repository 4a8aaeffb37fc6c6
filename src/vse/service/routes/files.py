"""``/items/{id}/original``, ``/items/{id}/reveal`` and ``/export``: original files, alone, in a folder or together."""

from __future__ import annotations

import mimetypes
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Request
from fastapi import Query as Parameter
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from vse.errors import InputError
from vse.index.types import Item, MediaFile, readable
from vse.service import files
from vse.service.context import Context, Ctx
from vse.service.media import MediaRequest, is_missing, open_media, stream
from vse.service.problems import NOT_LOCAL_TYPE, ProblemError, responses
from vse.service.routes.items import ERRORS, NOT_MODIFIED, REVALIDATE, ItemId
from vse.service.routes.results import iso_date, split_path
from vse.service.settings import MAX_EXPORT, MAX_JSON_ID
from vse.service.state import LoadedCollection

NOT_HERE = "folders are shown on the machine of the service only, if it listens on a loopback address"
OTHER_PAGE = "request from a page of another site: open the page of this service instead"
POST_ERRORS = {**ERRORS, **responses(400, 408, 413, 415)}
Format = Literal["csv", "json", "paths", "zip"]
MEDIA_TYPES: dict[Format, str] = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "paths": "text/plain; charset=utf-8",
    "zip": "application/zip",
}
ENDINGS: dict[Format, str] = {"csv": "csv", "json": "json", "paths": "txt", "zip": "zip"}
LISTS = {"csv": files.csv_list, "json": files.json_list, "paths": files.path_list}

router = APIRouter(tags=["files"])


class ExportModel(BaseModel):
    """Which items to export, and how."""

    model_config = ConfigDict(extra="forbid")

    ids: list[Annotated[int, Field(ge=1, le=MAX_JSON_ID)]] = Field(min_length=1, max_length=MAX_EXPORT)
    format: Format = Field(
        "csv", description="a list (csv, json, or paths, one per line), or the files in a zip archive"
    )


@router.get(
    "/items/{item_id}/original",
    responses={
        200: {"content": {"image/*": {}, "video/*": {}, "application/octet-stream": {}}},
        206: {"description": "Partial Content"},
        **NOT_MODIFIED,
        **ERRORS,
        **responses(416),
    },
    response_class=Response,
    summary="Get the original file, whole or a byte range",
)
async def original(
    context: Ctx,
    item_id: ItemId,
    download: Annotated[bool, Parameter(description="save it instead of showing it")] = False,
    range_header: Annotated[str | None, Header(alias="Range")] = None,
    if_range: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    context.require_originals()
    request = MediaRequest(range_header, if_range, if_none_match, head=context.head)

    def open_original(loaded: LoadedCollection) -> Response:
        file = loaded.item(item_id).file
        headers = {
            "Cache-Control": REVALIDATE,
            "Content-Disposition": files.disposition(split_path(file)[1], attachment=download),
        }
        return stream(open_media(file), request, headers, _media_type(file))

    return await context.compute(open_original)


@router.post(
    "/items/{item_id}/reveal",
    status_code=204,
    responses=POST_ERRORS,
    summary="Show the file in the file manager of the service's machine",
)
async def reveal(context: Ctx, request: Request, item_id: ItemId) -> Response:
    if not context.local:
        raise ProblemError(403, NOT_HERE, kind=NOT_LOCAL_TYPE)
    # Browsers without Sec-Fetch-Site, which the middleware checks, send the origin of the page at least.
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise ProblemError(403, OTHER_PAGE)
    await context.compute(lambda loaded: files.reveal(loaded.item(item_id).file))
    return Response(status_code=204)


@router.post(
    "/export",
    responses={
        200: {"content": {kind.partition(";")[0]: {} for kind in MEDIA_TYPES.values()}},
        **POST_ERRORS,
    },
    response_class=Response,
    summary="Export items as a list, or their files as an archive",
)
async def export(context: Ctx, wanted: ExportModel) -> Response:
    if wanted.format == "zip":
        context.require_originals()
    max_bytes = context.service.settings.limits.archive

    def prepare(loaded: LoadedCollection) -> Response:
        items = _items(loaded, list(dict.fromkeys(wanted.ids)))
        name = files.disposition(f"export.{ENDINGS[wanted.format]}", attachment=True)
        headers = {"Cache-Control": "no-store", "Content-Disposition": name}
        media_type = MEDIA_TYPES[wanted.format]
        if wanted.format == "zip":
            archive = files.plan_archive(items, max_bytes)
            return files.ArchiveResponse(archive, headers, media_type)
        text = LISTS[wanted.format]([_listed(context, item) for item in items])
        return Response(text, headers=headers, media_type=media_type)

    return await context.compute(prepare)


def _items(loaded: LoadedCollection, ids: list[int]) -> list[Item]:
    try:
        return loaded.collection.items(ids)
    except InputError:
        for item_id in ids:
            loaded.item(item_id)  # 404 with the id that does not exist
        raise


def _listed(context: Context, item: Item) -> files.Listed:
    return files.Listed(
        id=item.id,
        path=readable(item.file.path),
        root=readable(item.file.root) if context.originals else None,
        kind=item.file.kind,
        date=iso_date(item.file.taken),
        start=item.start,
        end=item.end,
        missing=is_missing(item.file),
    )


def _media_type(file: MediaFile) -> str:
    """Images and videos by their name; a script inside an SVG must never run on the page's origin."""
    found = mimetypes.guess_type(file.path)[0] or ""
    shown = found.startswith(("image/", "video/")) and "svg" not in found
    return found if shown else "application/octet-stream"

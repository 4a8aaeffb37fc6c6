"""What the endpoints share: filter and page parameters, cursors, and items as JSON results."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, TypeVar

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from vse.index.filters import Filter, read_filter
from vse.index.results import Result
from vse.index.types import Item, MediaFile, readable
from vse.service.context import Context
from vse.service.media import is_missing
from vse.service.problems import ProblemError
from vse.service.schemas import Kind, ResultModel
from vse.service.settings import MAX_CURSOR, MAX_OFFSET, MAX_PARTS, MAX_RESULTS


class FilterParameters(BaseModel):
    """Which files may be found."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    folder: str | None = Field(None, max_length=1000, description="only files in and below this folder")
    type: Kind | None = Field(None, description="image or video")
    after: str | None = Field(None, max_length=10, description="taken then or later: 2024, 2024-05 or 2024-05-31")
    before: str | None = Field(None, max_length=10, description="taken before then")
    near: str | None = Field(None, max_length=60, description="latitude,longitude in degrees")
    within: float | None = Field(None, gt=0, le=20_000, description="kilometres around 'near', 10 by default")
    name: str | None = Field(None, max_length=200, description="words of the file name; a last * is any ending")
    camera: str | None = Field(None, max_length=200, description="words of the camera's name")
    place: str | None = Field(None, max_length=200, description="words of the place's name")
    words: list[Annotated[str, Field(max_length=200)]] = Field(
        [], max_length=MAX_PARTS, description="exact words in any text of the file"
    )

    def to_filter(self) -> Filter:
        """Return the filter of the index.

        Raises:
            InputError: The values are invalid or contradict each other.
        """
        found = read_filter(
            self.type,
            self.after,
            self.before,
            self.near,
            self.within,
            name=self.name or None,
            camera=self.camera or None,
            place=self.place or None,
            words=tuple(self.words),
        )
        return replace(found, folder=self.folder) if self.folder else found


def item_result(context: Context, item: Item, found: Result | None = None) -> ResultModel:
    """Return an item as a result. Bytes of a file name that are not Unicode become replacement characters.

    Args:
        context: The request: it decides whether roots are shown.
        item: The item.
        found: The item as a search found it; None if the files are listed without a query.
    """
    folder, name = split_path(item.file)
    return ResultModel(
        id=item.id,
        name=name,
        folder=folder,
        path=readable(item.file.path),
        root=readable(item.file.root) if context.originals else None,
        kind=item.file.kind,
        score=None if found is None else found.score,
        confidence=None if found is None else found.confidence,
        relevance=None if found is None else found.relevance,
        grade=None if found is None else found.grade,
        rerank_score=None if found is None else found.rerank_score,
        start=item.start,
        end=item.end,
        taken=item.file.taken,
        date=iso_date(item.file.taken),
        modified=item.file.modified / 1e9,
        width=item.file.width,
        height=item.file.height,
        group=[] if found is None else list(found.group),
        matched=[] if found is None else list(found.matched),
        moments=1 if found is None else found.moments,
        missing=is_missing(item.file),
        thumbnail=thumbnail_url(context, item),
    )


def iso_date(taken: float | None) -> str | None:
    """Return a time as in ``MediaFile.taken`` in ISO 8601: local time, so without a zone."""
    if taken is None:
        return None
    try:
        return (datetime(1970, 1, 1) + timedelta(seconds=taken)).isoformat(timespec="seconds")
    except OverflowError:  # beyond the years 1 to 9999
        return None


def thumbnail_url(context: Context, item: Item) -> str:
    """Return a URL that changes with the content, so that browsers can cache the thumbnail forever."""
    return f"{context.prefix}/items/{item.id}/thumbnail?v={version_of(item)}"


def version_of(item: Item) -> str:
    """Return what identifies the content in a URL."""
    return item.file.digest[:16]


def split_path(file: MediaFile) -> tuple[str, str]:
    """Return the folder below the root, and the file name."""
    folder, _, name = readable(file.path).rpartition("/")
    return folder, name


def json_response(model: BaseModel) -> Response:
    """Return ``model`` serialized in the calling thread: FastAPI would validate it again, on the event loop."""
    return Response(model.model_dump_json(), media_type="application/json")


CURSOR = "the cursor of a response, to continue it; replaces everything but k"
Paged = TypeVar("Paged", bound="PageParameters")


class PageParameters(BaseModel):
    """Which part of the results to return."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    k: int = Field(40, ge=1, le=MAX_RESULTS, description="results per page")
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="results before the page")
    cursor: str | None = Field(None, min_length=1, max_length=MAX_CURSOR, description=CURSOR)


def continued(parameters: Paged) -> Paged:
    """Return the parameters of the page that a cursor leads to, or ``parameters`` without one.

    Raises:
        ProblemError: 422 for other parameters beside a cursor, or a cursor that is none of this route.
    """
    if parameters.cursor is None:
        return parameters
    given = parameters.model_fields_set - {"cursor", "k"}
    if given:
        raise ProblemError(422, f"'cursor' continues a page: omit {', '.join(sorted(given))}")
    try:
        text = parameters.cursor + "=" * (-len(parameters.cursor) % 4)
        values = json.loads(base64.b64decode(text, b"-_", validate=True))
        if "k" in parameters.model_fields_set:
            values["k"] = parameters.k
        found = type(parameters).model_validate(values, strict=False)
    except (ValueError, TypeError, RecursionError):
        raise ProblemError(422, "cursor: expected one of an earlier response of the same route") from None
    if found.cursor is not None:
        raise ProblemError(422, "cursor: expected one of an earlier response of the same route")
    return found


def next_cursor(parameters: PageParameters, more: bool, **changes: str | None) -> str | None:
    """Return the cursor of the page after ``parameters``; None if there is none, or if it would be too far.

    ``changes`` replace parameters; None removes one.
    """
    offset = parameters.offset + parameters.k
    if not more or offset > MAX_OFFSET:
        return None
    values = parameters.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"image"})
    values = {name: value for name, value in {**values, **changes, "offset": offset}.items() if value is not None}
    return base64.urlsafe_b64encode(json.dumps(values).encode()).rstrip(b"=").decode()


def known_total(offset: int, results: int, more: bool) -> int | None:
    """Return how many results there are in all, if the page is the last one; None if nobody has counted them."""
    return offset + results if not more and (results or not offset) else None

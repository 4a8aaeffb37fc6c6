"""From what a search finds to what the interface gives."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from vse.index.filters import Filter, read_filter
from vse.index.types import Item, MediaFile, readable
from vse.service.schemas import Kind, ResultModel

PREFIX = "/api/v1"


def as_json(answer: BaseModel) -> Response:
    """The answer, written in the thread that made it: FastAPI would check it again, and write it where others wait."""
    return Response(answer.model_dump_json(), media_type="application/json")


def item_result(
    item: Item, score: float | None = None, confidence: float | None = None, group: tuple[int, ...] = ()
) -> ResultModel:
    """An item as a result; names that are not Unicode are shown with replacement characters."""
    folder, name = place_of(item.file)
    return ResultModel(
        id=item.id,
        name=name,
        folder=folder,
        kind=item.file.kind,
        score=score,
        confidence=confidence,
        start=item.start,
        end=item.end,
        taken=item.file.taken,
        width=item.file.width,
        height=item.file.height,
        group=list(group),
        thumbnail=thumbnail_address(item),
    )


def thumbnail_address(item: Item) -> str:
    """An address that changes with the content, so that a browser may keep what it leads to."""
    return f"{PREFIX}/items/{item.id}/thumbnail?v={version_of(item)}"


def version_of(item: Item) -> str:
    """What stands for the content in an address."""
    return item.file.digest[:16]


def place_of(file: MediaFile) -> tuple[str, str]:
    """The folder below the root, and the name."""
    folder, _, name = readable(file.path).rpartition("/")
    return folder, name


class FilterParameters(BaseModel):
    """What may be found."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    folder: str | None = Field(None, max_length=1000, description="only below this folder of the collection")
    type: Kind | None = Field(None, description="image or video")
    after: str | None = Field(None, max_length=10, description="taken then or later: 2024, 2024-05 or 2024-05-31")
    before: str | None = Field(None, max_length=10, description="taken before then")
    near: str | None = Field(None, max_length=60, description="latitude,longitude in degrees")
    within: float | None = Field(None, gt=0, le=20_000, description="kilometres around 'near', 10 by default")

    def to_filter(self) -> Filter:
        """As the index understands it; what does not go together is an InputError."""
        found = read_filter(self.type, self.after, self.before, self.near, self.within)
        return replace(found, folder=self.folder) if self.folder else found

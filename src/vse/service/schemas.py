"""What the interface gives, as the OpenAPI document describes it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Kind = Literal["image", "video"]


class ResultModel(BaseModel):
    """One picture, or some seconds of a clip."""

    id: int
    name: str
    folder: str
    kind: Kind
    score: float | None = Field(description="the cosine with the query; null where nothing was searched for")
    confidence: float | None = Field(description="how likely it is a match, from 0 to 1, calibrated")
    start: float | None = Field(description="seconds into the clip; null for a picture")
    end: float | None
    taken: float | None = Field(description="local time of capture, in seconds since 1970 as if it were UTC")
    width: int
    height: int
    group: list[int] = Field(description="ids of results that look the same, when these are joined")
    thumbnail: str


class PageModel(BaseModel):
    """Results ``offset + 1`` and following; ``more`` says whether another page follows."""

    offset: int
    more: bool
    results: list[ResultModel]


class SearchModel(PageModel):
    """``query_id`` stands for this query in later requests; ``exact`` says whether every vector was compared.

    A text of which the model knows no word finds nothing, and has no ``query_id``.
    """

    query: str
    query_id: str | None
    exact: bool
    unknown: list[str] = Field(description="words that the model does not know")
    cut: list[str] = Field(description="texts of which the model read the beginning only")
    milliseconds: float


class CaptionModel(BaseModel):
    """A caption, and the item it belongs to."""

    caption: str
    id: int
    score: float


class CaptionsModel(BaseModel):
    """The captions that fit a query best, ``offset + 1`` and following."""

    query: str
    query_id: str
    offset: int
    more: bool
    unknown: list[str]
    cut: list[str]
    results: list[CaptionModel]


class ItemModel(BaseModel):
    """All that is known of a file and the moment that was asked for."""

    id: int
    name: str
    folder: str
    kind: Kind
    size: int
    modified: float
    taken: float | None
    width: int
    height: int
    latitude: float | None
    longitude: float | None
    duration: float | None
    captions: list[str]
    start: float | None
    end: float | None
    available: bool = Field(description="whether the file can be opened now")
    thumbnail: str
    preview: str
    media: str | None = Field(description="where a clip can be played from; null for a picture")


class SeenModel(BaseModel):
    """The part of a picture that reaches the model, in parts of its height and width."""

    top: float
    left: float
    height: float
    width: float


class PictureEvidenceModel(BaseModel):
    """What each cell adds to the score; all of them add up to it."""

    kind: Literal["image"] = "image"
    score: float
    grid: tuple[int, int]
    cells: list[list[float]]
    seen: SeenModel


class FrameModel(BaseModel):
    """What the frame at this second adds to the score."""

    at: float
    share: float


class ClipEvidenceModel(BaseModel):
    """What each frame of a moment adds to the score; all of them add up to it."""

    kind: Literal["video"] = "video"
    score: float
    frames: list[FrameModel]


class FolderModel(BaseModel):
    """A folder below an indexed one, and how many files lie in and below it."""

    path: str
    files: int


class ModelModel(BaseModel):
    """The model whose vectors a collection holds."""

    name: str
    fingerprint: str
    dimensions: int


class CollectionModel(BaseModel):
    """What the collection holds."""

    name: str
    files: int
    items: int
    captions: int
    images: int
    videos: int
    folders: list[FolderModel]
    first: float | None
    last: float | None
    model: ModelModel
    searches_text: bool


class CurveSizeModel(BaseModel):
    """The weight of each rank in a set of this size."""

    size: int
    weights: list[float]


class CurveModel(BaseModel):
    """What one pooling has learned, for sets of some sizes, ascending; none, and a note, where it does not sort."""

    tower: Literal["image", "text"]
    pooling: str
    sizes: list[CurveSizeModel]
    resembles: str | None = Field(description="the simple pooling that the last curve is nearest to")
    note: str | None


class CurvesModel(BaseModel):
    """The curves of both towers; empty where the model was saved without them."""

    curves: list[CurveModel]


class HealthModel(BaseModel):
    """The service answers."""

    status: Literal["ok"] = "ok"


class KeyModel(BaseModel):
    """The key, typed by a person."""

    key: str = Field(max_length=1000)

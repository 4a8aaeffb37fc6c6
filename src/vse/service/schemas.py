"""JSON responses. Class names are part of the OpenAPI document, and so of generated clients: they do not change."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Kind = Literal["image", "video"]


class ResultModel(BaseModel):
    """An image, or a segment of a video."""

    id: int
    name: str
    folder: str
    kind: Kind
    score: float | None = Field(description="cosine similarity to the query; null without a query")
    confidence: float | None = Field(
        description="calibrated probability of a match, from 0 to 1; null without a query, or if the model has none"
    )
    start: float | None = Field(description="start of the segment in seconds; null for an image")
    end: float | None
    taken: float | None = Field(description="local time of capture, in seconds since 1970 as if it were UTC")
    width: int
    height: int
    group: list[int] = Field(description="ids of near-duplicates, if they are grouped")
    thumbnail: str


class PageModel(BaseModel):
    """A page of results. ``more`` tells whether another page follows."""

    offset: int
    more: bool
    results: list[ResultModel]


class SearchModel(PageModel):
    """A page of search results.

    Later requests can refer to the query by ``query_id``. ``exact`` tells whether every embedding was compared. A text
    of unknown words only has no results and no ``query_id``.
    """

    query: str
    query_id: str | None
    exact: bool
    unknown: list[str] = Field(description="words that the model does not know")
    cut: list[str] = Field(description="texts that were truncated to what the model reads")
    milliseconds: float


class CaptionModel(BaseModel):
    """A caption, and the id of its item."""

    caption: str
    id: int
    score: float


class CaptionsModel(BaseModel):
    """A page of captions, best match first."""

    query: str
    query_id: str
    offset: int
    more: bool
    unknown: list[str]
    cut: list[str]
    results: list[CaptionModel]


class ItemModel(BaseModel):
    """The details of an item and its file."""

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
    media: str | None = Field(description="URL of the video file; null for an image")


class SeenModel(BaseModel):
    """The part of an image that the model sees, as fractions of its height and width."""

    top: float
    left: float
    height: float
    width: float


class PictureEvidenceModel(BaseModel):
    """The contribution of each image cell; they add up to the score."""

    kind: Literal["image"] = "image"
    score: float
    grid: tuple[int, int]
    cells: list[list[float]]
    seen: SeenModel


class FrameModel(BaseModel):
    """The contribution of the frame at this second."""

    at: float
    share: float


class ClipEvidenceModel(BaseModel):
    """The contribution of each frame of a segment; they add up to the score."""

    kind: Literal["video"] = "video"
    score: float
    frames: list[FrameModel]


class FolderModel(BaseModel):
    """A folder, and the number of files in and below it."""

    path: str
    files: int


class CapabilitiesModel(BaseModel):
    """What the model can do."""

    images: bool = Field(description="takes images")
    texts: bool = Field(description="takes texts")
    videos: bool = Field(description="encodes video files")
    evidence: bool = Field(description="has evidence for images; videos always have it")
    features: bool = Field(description="takes precomputed features")
    confidence: bool = Field(description="results have a confidence, and min_confidence is accepted")


class ModelModel(BaseModel):
    """The model that the embeddings come from."""

    name: str
    fingerprint: str
    dimensions: int
    capabilities: CapabilitiesModel


class CollectionModel(BaseModel):
    """Counts, folders, dates and model of the collection."""

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
    """The learned weights of one pooling for several set sizes; empty, with a note, for a pooling without ranks."""

    tower: Literal["image", "text"]
    pooling: str
    sizes: list[CurveSizeModel]
    resembles: str | None = Field(description="the simple pooling that the last curve resembles most")
    note: str | None


class CurvesModel(BaseModel):
    """The curves of both towers; empty if the model was saved without them."""

    curves: list[CurveModel]


class HealthModel(BaseModel):
    """The service is up."""

    status: Literal["ok"] = "ok"


class KeyModel(BaseModel):
    """The API key, as typed into the page."""

    key: str = Field(max_length=1000)

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
    path: str = Field(description="path below the indexed folder")
    root: str | None = Field(description="the indexed folder; null unless the client is on the service's machine")
    kind: Kind
    score: float | None = Field(description="cosine similarity to the query; null without a query")
    confidence: float | None = Field(
        description="calibrated probability of a match, from 0 to 1; null without a query, or if the model has none"
    )
    relevance: float | None = Field(
        None, description="calibrated probability that it fits the query; null without a text query, or if unknown"
    )
    grade: Literal["strong", "good", "weak"] | None = Field(
        None, description="the relevance in a word; null below weak, and without relevance"
    )
    rerank_score: float | None = Field(None, description="score of the re-ranker; null where nothing was re-ranked")
    start: float | None = Field(description="start of the segment in seconds; null for an image")
    end: float | None
    taken: float | None = Field(description="local time of capture, in seconds since 1970 as if it were UTC")
    date: str | None = Field(description="the same in ISO 8601, such as 2024-05-31T18:02:00: local time, no zone")
    modified: float = Field(description="last change of the file, in seconds since 1970; orders files without a date")
    width: int
    height: int
    matched: list[str] = Field([], description="texts of the file that hold words of the query: name, caption, place …")
    group: list[int] = Field(description="ids of near-duplicates, if they are grouped")
    moments: int = Field(1, description="matching moments of the same video that it stands for")
    missing: bool = Field(description="whether the file is gone: it was moved or deleted after indexing")
    thumbnail: str


class PageModel(BaseModel):
    """A page of results. ``more`` tells whether another page follows."""

    offset: int
    more: bool
    total: int | None = Field(None, description="results on all pages; null where nobody has counted them")
    cursor: str | None = Field(None, description="continues with the next page; null on the last one")
    results: list[ResultModel]


class EmptyReasonModel(BaseModel):
    """Which condition leaves no result, and how many there would be without it (at most 256 are counted)."""

    condition: str = Field(description="relevance, confidence, exclude, the name of a filter, filters, or collection")
    without: int


class RerankingModel(BaseModel):
    """How results were re-ranked; unless it is complete, time was up and the rest has the order of the first stage."""

    model: str
    depth: int
    scored: int
    unreadable: int
    complete: bool


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
    notes: list[str] = Field([], description="what should be said about the query, as 'code: words'")
    empty_reason: EmptyReasonModel | None = Field(None, description="why there is no result at all")
    reranking: RerankingModel | None = Field(None, description="how results were re-ranked, if they were")
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
    path: str = Field(description="path below the indexed folder")
    root: str | None = Field(description="the indexed folder; null unless the client is on the service's machine")
    kind: Kind
    size: int
    modified: float
    taken: float | None
    date: str | None = Field(description="taken in ISO 8601: local time, no zone")
    width: int
    height: int
    latitude: float | None
    longitude: float | None
    duration: float | None
    captions: list[str]
    camera: str | None = Field(None, description="make and model")
    place: str | None = Field(None, description="name of the place, as 'Munich, Bavaria, Germany'")
    title: str | None = None
    description: str | None = None
    keywords: list[str] = []
    ocr: str | None = Field(None, description="text in the image; empty if there is none, null if it was not read")
    start: float | None
    end: float | None
    available: bool = Field(description="whether the file can be opened now")
    missing: bool = Field(description="the opposite of available")
    thumbnail: str
    preview: str
    media: str | None = Field(description="URL of the video file; null for an image")
    original: str | None = Field(description="URL of the original file; null if the client may not have it")


class SeenModel(BaseModel):
    """The part of an image that the model sees, as fractions of its height and width."""

    top: float
    left: float
    height: float
    width: float


class BoxModel(BaseModel):
    """The contribution of a window of an image; its sides are shares of the part that the model sees."""

    left: float
    top: float
    right: float
    bottom: float
    share: float


class PictureEvidenceModel(BaseModel):
    """The contribution of each image cell; they add up to the score.

    A model that weighs windows also tells their contributions, ``boxes``; ``cells`` are these spread over their areas.
    """

    kind: Literal["image"] = "image"
    score: float
    grid: tuple[int, int]
    cells: list[list[float]]
    boxes: list[BoxModel] = []
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


class NameModel(BaseModel):
    """A place or camera, and the number of its files."""

    name: str
    files: int


class CapabilitiesModel(BaseModel):
    """What the model can do."""

    images: bool = Field(description="takes images")
    texts: bool = Field(description="takes texts")
    videos: bool = Field(description="encodes video files")
    evidence: bool = Field(description="has evidence for images; videos always have it")
    features: bool = Field(description="takes precomputed features")
    confidence: bool = Field(description="results have a confidence, and min_confidence is accepted")
    relevance: bool = Field(False, description="results have a relevance, and min_relevance is accepted")
    rerank: bool = Field(False, description="the service has a re-ranker, and rerank=true is accepted")


class ModelModel(BaseModel):
    """The model that the embeddings come from."""

    name: str
    fingerprint: str
    dimensions: int
    capabilities: CapabilitiesModel


class FilesModel(BaseModel):
    """What the client of this response may do with the files."""

    original: bool = Field(description="open and download original files")
    roots: bool = Field(description="see the indexed folders in results")
    reveal: bool = Field(description="show a file in the file manager of the service's machine")
    lists: bool = Field(description="export a list of items")
    archives: bool = Field(description="export files as a ZIP archive")
    max_export: int = Field(description="items per export")


class GradesModel(BaseModel):
    """The smallest relevance of each grade. Below weak, a result counts as not matching."""

    strong: float
    good: float
    weak: float


class CollectionModel(BaseModel):
    """Counts, folders, dates and model of the collection."""

    name: str
    collections: int = Field(1, description="number of collections of this service")
    files: int
    items: int
    captions: int
    images: int
    videos: int
    folders: list[FolderModel]
    places: list[NameModel] = Field(description="place names with the most files first; empty on Milvus")
    cameras: list[NameModel] = Field(description="cameras with the most files first; empty on Milvus")
    first: float | None
    last: float | None
    external: bool = Field(False, description="embeddings are computed elsewhere: search by vectors and items")
    model: ModelModel
    searches_text: bool
    grades: GradesModel | None = Field(description="null if the model has no relevance")
    original_files: FilesModel


class ServedCollectionModel(BaseModel):
    """A collection of this service; ``files`` is null if it cannot be read at the moment."""

    name: str
    files: int | None
    url: str = Field(description="path of its routes")


class CollectionsModel(BaseModel):
    """The collections of this service, the default one first."""

    collections: list[ServedCollectionModel]


class EmbeddingsModel(BaseModel):
    """Unit embeddings, one for each input, in order."""

    model: str = Field(description="fingerprint of the model")
    dimensions: int
    embeddings: list[list[float]]
    unknown: list[str] = Field([], description="words that the model does not know")
    cut: list[str] = Field([], description="texts that were truncated to what the model reads")


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

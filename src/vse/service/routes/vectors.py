"""``/search/vector`` and ``/embed``: vectors as queries, and texts and images as vectors."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Response, UploadFile
from pydantic import BaseModel, ConfigDict, Field

from vse.index.query import Query, encode_query, vector_query
from vse.service.context import Ctx
from vse.service.problems import responses
from vse.service.routes.results import FilterParameters, json_response
from vse.service.routes.search import ERRORS, SearchParameters, Text, check_images, search_page
from vse.service.schemas import EmbeddingsModel, SearchModel
from vse.service.settings import MAX_DIMENSIONS, MAX_IMAGES, MAX_OFFSET, MAX_RESULTS, MAX_TEXTS
from vse.service.state import LoadedCollection

POST_ERRORS = {**ERRORS, **responses(400, 408, 415)}

router = APIRouter(tags=["vectors"])


class VectorSearchModel(FilterParameters):
    """A vector to search for, a filter, and a page of the results."""

    vector: list[Annotated[float, Field(allow_inf_nan=False)]] = Field(
        min_length=1,
        max_length=MAX_DIMENSIONS,
        description="as many numbers as an embedding has, of any length",
    )
    k: int = Field(40, ge=1, le=MAX_RESULTS, description="results per page")
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="results before the page")
    min_confidence: float | None = Field(None, ge=0, le=1, description="as in /search")
    group: bool = Field(False, description="group near-duplicates")


class TextsModel(BaseModel):
    """Texts to encode."""

    model_config = ConfigDict(extra="forbid")

    texts: list[Text] = Field(min_length=1, max_length=MAX_TEXTS)


class ImagesForm(BaseModel):
    """Images to encode."""

    model_config = ConfigDict(extra="forbid")

    image: list[UploadFile] = Field(min_length=1, max_length=MAX_IMAGES)


@router.post(
    "/search/vector", response_model=SearchModel, responses=POST_ERRORS, summary="Search by a vector of your own"
)
async def search_by_vector(context: Ctx, wanted: VectorSearchModel) -> Response:
    """GET /search continues it, by the ``cursor`` or ``query_id`` of the response."""
    values: dict[str, Any] = wanted.model_dump(exclude={"vector"}, exclude_unset=True)

    def search_vector(loaded: LoadedCollection) -> Response:
        cached = loaded.remember(vector_query(wanted.vector, loaded.collection))
        found = search_page(context, loaded, SearchParameters(query=cached.id, **values))
        context.log_query(found.query)
        return json_response(found)

    return await context.compute(search_vector)


@router.post("/embed", response_model=EmbeddingsModel, responses=POST_ERRORS, summary="Encode texts")
async def embed(context: Ctx, wanted: TextsModel) -> Response:
    return await context.compute(lambda loaded: _embeddings(loaded, [Query(texts=(text,)) for text in wanted.texts]))


@router.post("/embed/images", response_model=EmbeddingsModel, responses=POST_ERRORS, summary="Encode uploaded images")
async def embed_images(
    context: Ctx, parameters: Annotated[ImagesForm, Form(media_type="multipart/form-data")]
) -> Response:
    limits = context.service.settings.limits

    def encode(loaded: LoadedCollection) -> Response:
        loaded.require_model()
        contents = tuple(upload.file.read() for upload in parameters.image)
        check_images(contents, limits)
        return _embeddings(loaded, [Query(images=(content,)) for content in contents])

    return await context.compute(encode, "upload")


def _embeddings(loaded: LoadedCollection, queries: list[Query]) -> Response:
    model = loaded.require_model()
    encoded = [encode_query(query, model) for query in queries]
    return json_response(
        EmbeddingsModel(
            model=loaded.collection.info().model,
            dimensions=len(encoded[0].vector),
            embeddings=[each.vector.tolist() for each in encoded],
            unknown=list(dict.fromkeys(word for each in encoded for word in each.unknown)),
            cut=[text for each in encoded for text in each.cut],
        )
    )

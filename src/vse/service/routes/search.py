"""``/search`` and ``/captions``: the images, videos or captions that match a query best."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Form, Response, UploadFile
from fastapi import Query as Parameter
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from vse.errors import InputError
from vse.index.caption_search import search_captions_encoded
from vse.index.duplicates import NEAR
from vse.index.fusion import encode_known
from vse.index.item_search import Sort, search_encoded
from vse.index.judging import NO_CONFIDENCE, NO_RELEVANCE
from vse.index.query import HIGHEST_ID, MAX_CHARACTERS, Query, UnknownWordsError
from vse.index.rerank import DEPTH, check_reranking, middle_frame, search_reranked
from vse.index.results import SearchResults
from vse.index.types import Item
from vse.inputs.decoding import count_pixels
from vse.inputs.images import ImageLimits
from vse.service.context import Context, Ctx, Lane
from vse.service.media import open_media
from vse.service.problems import NO_CONFIDENCE_TYPE, NO_RELEVANCE_TYPE, NO_RERANKER_TYPE, ProblemError, responses
from vse.service.routes.results import (
    FilterParameters,
    PageParameters,
    continued,
    item_result,
    json_response,
    known_total,
    next_cursor,
)
from vse.service.schemas import CaptionModel, CaptionsModel, EmptyReasonModel, RerankingModel, SearchModel
from vse.service.settings import (
    MAX_IMAGES,
    MAX_OFFSET,
    MAX_PARTS,
    MAX_RERANKED,
    MAX_RESULTS,
    RERANKING_SHARE,
    Limits,
)
from vse.service.state import CachedQuery, LoadedCollection

EMPTY_QUERY = "empty query: give 'q', 'like', 'query' or an image"
MIN_CONFIDENCE = "omit results with a lower confidence; an error if the model has none (see /collection)"
MIN_RELEVANCE = "omit results with a lower relevance; an error if the model has none (see /collection)"
NO_RERANKER = "this service has no re-ranker: leave out rerank, or start it with 'vse serve --rerank MODEL'"
QUERY_PARTS = dict.fromkeys(("q", "not", "like", "weight"))
"""What the id of a query stands for in a cursor."""
ERRORS = responses(401, 403, 404, 413, 421, 422, 429, 503)

Text = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Id = Annotated[int, Field(ge=1, le=HIGHEST_ID)]

router = APIRouter(tags=["search"])


class QueryParameters(BaseModel):
    """A query: its parts, or the id of an earlier one."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    q: list[Text] = Field([], max_length=MAX_PARTS, description="text to search for")
    exclude: list[Text] = Field([], alias="not", max_length=MAX_PARTS, description="text to exclude")
    like: list[Id] = Field([], max_length=MAX_PARTS, description="ids of items to find similar ones to")
    weight: list[Weight] = Field(
        [], max_length=3 * MAX_PARTS, description="weight of each query part: one for each q, image and like, in order"
    )
    query: str | None = Field(None, max_length=64, description="the query_id of an earlier response, instead of parts")

    def encode(self, loaded: LoadedCollection, images: tuple[bytes, ...] = ()) -> CachedQuery:
        """Return the query encoded.

        Raises:
            ProblemError: 422 if the query is empty or gives both an id and parts, 404 if an id is unknown.
        """
        if self.query is not None:
            if self.q or self.exclude or self.like or self.weight or images:
                raise ProblemError(422, "'query' replaces a whole query: omit q, not, like, weight and image")
            return loaded.query(self.query)
        if not (self.q or self.like or images):
            raise ProblemError(422, EMPTY_QUERY)
        return loaded.encode(self.to_query(images))

    def to_query(self, images: tuple[bytes, ...] = ()) -> Query:
        """Return the parts as a query."""
        weights = tuple(self.weight) or None
        return Query(tuple(self.q), images, tuple(self.exclude), tuple(self.like), weights)


class SearchParameters(QueryParameters, PageParameters, FilterParameters):
    """A query, a filter, and a page of the results."""

    min_confidence: float | None = Field(None, ge=0, le=1, description=MIN_CONFIDENCE)
    min_relevance: float | None = Field(None, ge=0, le=1, description=MIN_RELEVANCE)
    group: bool = Field(False, description="group near-duplicates")
    all_moments: bool = Field(False, description="list every moment of a video, not only its best one")
    sort: Sort = Field("relevance", description="relevance, or date: the best 1,000 results, newest first")
    rerank: bool = Field(False, description="order the best results again with the service's re-ranker, if it has one")
    depth: int = Field(DEPTH, ge=1, le=MAX_RERANKED, description="results that are re-ranked")


class PictureSearchParameters(SearchParameters):
    """A search with uploaded images."""

    image: list[UploadFile] = Field(min_length=1, max_length=MAX_IMAGES, description="images to find similar ones to")


class CaptionParameters(QueryParameters):
    """A query, and a page of the captions."""

    k: int = Field(10, ge=1, le=MAX_RESULTS, description="captions per page")
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="captions before the page")


@router.get("/search", response_model=SearchModel, responses=ERRORS, summary="Search by text, or by items")
async def search(context: Ctx, parameters: Annotated[SearchParameters, Parameter()]) -> Response:
    page = continued(parameters)
    lane: Lane = "rerank" if page.rerank else "search"
    return await context.compute(lambda loaded: json_response(search_page(context, loaded, page)), lane)


@router.post(
    "/search",
    response_model=SearchModel,
    responses={**ERRORS, **responses(400, 408, 415)},
    summary="Search by uploaded images, with or without text",
)
async def search_with_pictures(
    context: Ctx, parameters: Annotated[PictureSearchParameters, Form(media_type="multipart/form-data")]
) -> Response:
    if parameters.cursor is not None:
        raise ProblemError(422, "cursor: GET /search continues a search, without its images")
    limits = context.service.settings.limits

    def search_images(loaded: LoadedCollection) -> Response:
        contents = tuple(upload.file.read() for upload in parameters.image)  # in the worker: few are in memory at once
        check_images(contents, limits)
        found = search_page(context, loaded, parameters, contents)
        context.log_query(found.query)
        return json_response(found)

    return await context.compute(search_images, "upload")


@router.get("/captions", responses=ERRORS, summary="Search the captions")
async def captions(context: Ctx, parameters: Annotated[CaptionParameters, Parameter()]) -> CaptionsModel:
    def search_captions(loaded: LoadedCollection) -> CaptionsModel:
        cached = parameters.encode(loaded)
        if cached.encoded.words_alone:
            raise UnknownWordsError(cached.encoded.text, cached.encoded.unknown)
        found = search_captions_encoded(loaded.collection, cached.encoded, parameters.k, offset=parameters.offset)
        return CaptionsModel(
            query=found.query,
            query_id=cached.id,
            offset=found.offset,
            more=found.more,
            unknown=list(found.unknown),
            cut=list(found.cut),
            results=[CaptionModel(caption=each.caption, id=each.id, score=each.score) for each in found.captions],
        )

    return await context.compute(search_captions)


def check_images(contents: tuple[bytes, ...], limits: Limits) -> None:
    """Reject by their headers what is not an image, and too many pixels in total, before decoding anything."""
    each = ImageLimits(max_bytes=limits.body, max_pixels=sys.maxsize)
    pixels = sum(count_pixels(content, f"image {number}", each) for number, content in enumerate(contents, 1))
    if pixels > limits.pixels:
        raise ProblemError(422, f"images of {pixels:,} pixels in total: send at most {limits.pixels:,}")


def search_page(
    context: Context, loaded: LoadedCollection, parameters: SearchParameters, images: tuple[bytes, ...] = ()
) -> SearchModel:
    start = time.perf_counter()
    if parameters.min_confidence is not None and loaded.coefficients is None:
        raise ProblemError(422, NO_CONFIDENCE, kind=NO_CONFIDENCE_TYPE)
    if parameters.min_relevance is not None and loaded.relevance is None:
        raise ProblemError(422, NO_RELEVANCE, kind=NO_RELEVANCE_TYPE)
    where = parameters.to_filter()
    cached, dropped = _encode_known_words(loaded, parameters, images)
    if cached is None:
        return _no_results(parameters, dropped, start)
    find = partial(
        search_encoded,
        loaded.collection,
        cached.encoded,
        where=where,
        cutoff=parameters.min_confidence,
        min_relevance=parameters.min_relevance,
        group_duplicates=NEAR if parameters.group else None,
        group_videos=not parameters.all_moments,
        sort=parameters.sort,
        coefficients=loaded.coefficients,
        relevance=loaded.relevance,
    )
    found = _page(context, find, cached.encoded.texts, parameters)
    reason = found.empty_reason
    return SearchModel(
        query=found.query,
        query_id=cached.id,
        exact=found.exact,
        offset=found.offset,
        more=found.more,
        total=known_total(found.offset, len(found.results), found.more),
        cursor=next_cursor(parameters, found.more, **{**QUERY_PARTS, "query": cached.id}),
        unknown=list(dict.fromkeys((*found.unknown, *dropped))),
        cut=list(found.cut),
        notes=list(found.notes),
        empty_reason=None if reason is None else EmptyReasonModel(condition=reason.condition, without=reason.without),
        reranking=None if found.reranking is None else RerankingModel(**asdict(found.reranking)),
        milliseconds=_milliseconds_since(start),
        results=[item_result(context, result.item, result) for result in found.results],
    )


def _page(
    context: Context, find: Callable[..., SearchResults], texts: tuple[str, ...], parameters: SearchParameters
) -> SearchResults:
    """Return a page of results, re-ranked if the client asks for it."""
    if not parameters.rerank:
        return find(parameters.k, offset=parameters.offset)
    reranker = context.service.reranker
    if reranker is None:
        raise ProblemError(422, NO_RERANKER, kind=NO_RERANKER_TYPE)
    seconds = RERANKING_SHARE * context.service.settings.limits.seconds
    check_reranking(parameters.depth, seconds, texts, parameters.sort)
    return search_reranked(
        lambda size, skip: find(size, offset=skip),
        reranker,
        texts,
        k=parameters.k,
        offset=parameters.offset,
        depth=parameters.depth,
        seconds=seconds,
        read=_served_source,
        known=context.service.pair_scores,
    )


def _served_source(item: Item) -> bytes | NDArray[np.uint8]:
    """Return the content of an image, or the middle frame of a moment, of a file that the service may show."""
    try:
        opened = open_media(item.file)
        with opened.stream:
            if item.start is None:
                return opened.read(ImageLimits().max_bytes)
            return middle_frame(opened.path(item.file), item)
    except ProblemError as error:
        raise InputError(str(error.detail)) from None


def _encode_known_words(
    loaded: LoadedCollection, parameters: SearchParameters, images: tuple[bytes, ...]
) -> tuple[CachedQuery | None, tuple[str, ...]]:
    """The encoded query, and the unknown words that were dropped from it.

    A text of unknown words only is not an error, since the user may still be typing. If it was to be excluded, it is
    dropped; if it was to be found, there are no results and no query. Words that files know are searched there.
    """
    try:
        return parameters.encode(loaded, images), ()
    except UnknownWordsError:
        pass
    try:
        return loaded.remember(encode_known(parameters.to_query(images), loaded.model, loaded.collection)), ()
    except UnknownWordsError as error:
        if error.text in parameters.q:
            return None, error.words
        rest = parameters.model_copy(update={"exclude": [text for text in parameters.exclude if text != error.text]})
        cached, dropped = _encode_known_words(loaded, rest, images)
        return cached, (*error.words, *dropped)


def _no_results(parameters: SearchParameters, unknown: tuple[str, ...], start: float) -> SearchModel:
    return SearchModel(
        query=", ".join(parameters.q),
        query_id=None,
        exact=True,
        offset=parameters.offset,
        more=False,
        total=0,
        cursor=None,
        unknown=list(unknown),
        cut=[],
        notes=[],
        empty_reason=None,
        reranking=None,
        milliseconds=_milliseconds_since(start),
        results=[],
    )


def _milliseconds_since(start: float) -> float:
    return round(1000 * (time.perf_counter() - start), 2)

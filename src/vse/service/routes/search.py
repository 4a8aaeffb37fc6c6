"""``/search`` and ``/captions``: the best pictures, moments or sentences for a query."""

from __future__ import annotations

import sys
import time
from typing import Annotated

from fastapi import APIRouter, Form, Response, UploadFile
from fastapi import Query as Parameter
from pydantic import BaseModel, ConfigDict, Field

from vse.index.caption_search import search_captions_with
from vse.index.duplicates import NEAR
from vse.index.query import HIGHEST_ID, MAX_CHARACTERS, Query, UnknownWordsError
from vse.index.search import search_with
from vse.inputs.images import ImageLimits, check_image
from vse.service.problems import ProblemError, responses
from vse.service.routes.results import PREFIX, FilterParameters, as_json, item_result
from vse.service.schemas import CaptionModel, CaptionsModel, SearchModel
from vse.service.settings import MOST_OFFSET, MOST_PARTS, MOST_PICTURES, MOST_RESULTS, Limits
from vse.service.state import Ctx, Question, Serving

Text = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Id = Annotated[int, Field(ge=1, le=HIGHEST_ID)]
NOTHING = "nothing to search for: give 'q', 'like', 'query' or an image"


class QueryParameters(BaseModel):
    """What is looked for. ``query`` stands for one that was asked before, alone."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    q: list[Text] = Field([], max_length=MOST_PARTS, description="what is wanted, in words")
    exclude: list[Text] = Field([], alias="not", max_length=MOST_PARTS, description="what is not wanted, in words")
    like: list[Id] = Field([], max_length=MOST_PARTS, description="ids of items like which others are wanted")
    weight: list[Weight] = Field([], max_length=3 * MOST_PARTS, description="one for each q, image and like, in order")
    query: str | None = Field(None, max_length=64, description="the query_id of an earlier answer")

    def question(self, serving: Serving, images: tuple[bytes, ...] = ()) -> Question:
        """Encoded now, or remembered."""
        if self.query is not None:
            if self.q or self.exclude or self.like or self.weight or images:
                raise ProblemError(422, "'query' stands for a whole query: leave out q, not, like, weight and image")
            return serving.question(self.query)
        if not (self.q or self.like or images):
            raise ProblemError(422, NOTHING)
        weights = tuple(self.weight) or None
        return serving.ask(Query(tuple(self.q), images, tuple(self.exclude), tuple(self.like), weights))


router = APIRouter(prefix=PREFIX, tags=["search"])
ERRORS = responses(401, 403, 404, 413, 421, 422, 429, 503)


class SearchParameters(QueryParameters, FilterParameters):
    """A query, what may be found, and which page of it."""

    k: int = Field(40, ge=1, le=MOST_RESULTS, description="results on a page")
    offset: int = Field(0, ge=0, le=MOST_OFFSET, description="results before the page")
    min_confidence: float | None = Field(None, ge=0, le=1, description="leave out what is less likely a match")
    group: bool = Field(False, description="join results that look the same")


class PictureSearchParameters(SearchParameters):
    """The same, with pictures beside it."""

    image: list[UploadFile] = Field(
        min_length=1, max_length=MOST_PICTURES, description="pictures like which others are wanted"
    )


class CaptionParameters(QueryParameters):
    """A query, and which page of captions."""

    k: int = Field(10, ge=1, le=MOST_RESULTS, description="captions on a page")
    offset: int = Field(0, ge=0, le=MOST_OFFSET, description="captions before the page")


@router.get(
    "/search",
    response_model=SearchModel,
    responses=ERRORS,
    summary="Search with words, or with items of the collection",
)
async def search(context: Ctx, parameters: Annotated[SearchParameters, Parameter()]) -> Response:
    return await context.compute(lambda serving: as_json(_answer(serving, parameters)))


@router.post(
    "/search",
    response_model=SearchModel,
    responses={**ERRORS, **responses(400, 408, 415)},
    summary="Search with pictures, and with words beside them",
)
async def search_with_pictures(
    context: Ctx, parameters: Annotated[PictureSearchParameters, Form(media_type="multipart/form-data")]
) -> Response:
    limits = context.service.settings.limits

    def answer(serving: Serving) -> Response:
        contents = tuple(picture.file.read() for picture in parameters.image)  # here, so that few are in memory at once
        _check_pictures(contents, limits)
        found = _answer(serving, parameters, contents)
        context.asked(found.query)
        return as_json(found)

    return await context.compute(answer)


@router.get("/captions", responses=ERRORS, summary="The captions of the collection that fit a query")
async def captions(context: Ctx, parameters: Annotated[CaptionParameters, Parameter()]) -> CaptionsModel:
    def answer(serving: Serving) -> CaptionsModel:
        question = parameters.question(serving)
        found = search_captions_with(serving.collection, question.found, parameters.k, offset=parameters.offset)
        return CaptionsModel(
            query=found.query,
            query_id=question.id,
            offset=found.offset,
            more=found.more,
            unknown=list(found.unknown),
            cut=list(found.cut),
            results=[CaptionModel(caption=each.caption, id=each.id, score=each.score) for each in found.captions],
        )

    return await context.compute(answer)


def _check_pictures(contents: tuple[bytes, ...], limits: Limits) -> None:
    """Refuse by their headers what is no picture, and pictures that are too large together, before any is decoded."""
    own = ImageLimits(max_bytes=limits.body, max_pixels=sys.maxsize)
    pixels = sum(check_image(content, f"image {number}", own) for number, content in enumerate(contents, 1))
    if pixels > limits.pixels:
        raise ProblemError(422, f"pictures of {pixels:,} pixels, at most {limits.pixels:,} together: send smaller ones")


def _answer(serving: Serving, asked: SearchParameters, images: tuple[bytes, ...] = ()) -> SearchModel:
    began = time.perf_counter()
    where = asked.to_filter()
    question, unread = _question(serving, asked, images)
    if question is None:
        return _nothing(asked, unread, began)
    found = search_with(
        serving.collection,
        question.found,
        asked.k,
        offset=asked.offset,
        where=where,
        cutoff=asked.min_confidence,
        group_duplicates=NEAR if asked.group else None,
        coefficients=serving.coefficients,
    )
    return SearchModel(
        query=found.query,
        query_id=question.id,
        exact=found.exact,
        offset=found.offset,
        more=found.more,
        unknown=list(dict.fromkeys((*found.unknown, *unread))),
        cut=list(found.cut),
        milliseconds=_since(began),
        results=[item_result(result.item, result.score, result.confidence, result.group) for result in found.results],
    )


def _question(
    serving: Serving, asked: SearchParameters, images: tuple[bytes, ...]
) -> tuple[Question | None, tuple[str, ...]]:
    """The question, and words it was asked without.

    A text of unknown words alone is no mistake, since somebody may be typing. One that is not wanted is left out; with
    one that is wanted there is nothing to find, and no question.
    """
    try:
        return asked.question(serving, images), ()
    except UnknownWordsError as error:
        if error.text in asked.q:
            return None, error.words
        rest = asked.model_copy(update={"exclude": [text for text in asked.exclude if text != error.text]})
        question, unread = _question(serving, rest, images)
        return question, (*error.words, *unread)


def _nothing(asked: SearchParameters, unknown: tuple[str, ...], began: float) -> SearchModel:
    return SearchModel(
        query=", ".join(asked.q),
        query_id=None,
        exact=True,
        offset=asked.offset,
        more=False,
        unknown=list(unknown),
        cut=[],
        milliseconds=_since(began),
        results=[],
    )


def _since(began: float) -> float:
    return round(1000 * (time.perf_counter() - began), 2)

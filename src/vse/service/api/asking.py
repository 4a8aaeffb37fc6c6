"""The parameters of a query, and the question they make."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from vse.index.query import HIGHEST_ID, MAX_CHARACTERS, Query
from vse.service.problems import ProblemError
from vse.service.serving import Question, Serving
from vse.service.settings import MOST_PARTS

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

"""A collection with its model, and the questions that it was asked."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vse.coefficients import Coefficients, coefficients_of
from vse.errors import InputError
from vse.index.collection import Collection, Item
from vse.index.facets import Facets
from vse.index.query import Query, QueryVector, encode_query
from vse.service.problems import ProblemError
from vse.service.remembered import Remembered

if TYPE_CHECKING:
    from vse.index.query import Model

MEMORY = 2_000_000
"""Bytes of questions that are kept: some hundred of them."""
FACETS_SECONDS = 60
FORGOTTEN = "this query is not known any more: ask it again"


@dataclass(frozen=True)
class Question:
    """A query with its vector. ``id`` stands for it in later requests."""

    id: str
    found: QueryVector

    @property
    def size(self) -> int:
        """Bytes that it takes at most: its text is there in parts and as a whole."""
        return self.found.vector.nbytes + 8 * len(self.found.text) + 1000


def _kept() -> Remembered[Any, Question]:
    return Remembered(MEMORY, lambda question: question.size)


@dataclass(frozen=True)
class Serving:
    """What is asked: a collection, the model of its vectors, found at ``source``, and what turns scores to confidence.

    Vectors of questions are kept, so that another page, a filter, or the evidence of a result costs no second encoding.
    They belong to the model, and go with it.
    """

    collection: Collection
    model: Model
    source: str
    coefficients: Coefficients
    _by_id: Remembered[str, Question] = field(default_factory=_kept, repr=False)
    _by_query: Remembered[Query, Question] = field(default_factory=_kept, repr=False)
    _facets: Remembered[tuple[int, int, int], Facets] = field(
        default_factory=lambda: Remembered(1, lambda _: 1), repr=False
    )

    def ask(self, query: Query) -> Question:
        """The vector of ``query``, from memory if it was asked before. An item it names may be gone, which is 404."""
        lasting = not (query.images or query.like)  # bytes are not worth keeping, and the vector of an item may change
        known = self._by_query.get(query) if lasting else None
        if known is not None and self._by_id.get(known.id) is not None:
            return known
        for each in query.like:
            self.item(each)
        question = Question(secrets.token_urlsafe(12), encode_query(query, self.model, self.collection))
        self._by_id.put(question.id, question)
        if lasting:
            self._by_query.put(query, question)
        return question

    def question(self, question_id: str) -> Question:
        """The question with this id, 404 when it is not known any more."""
        question = self._by_id.get(question_id)
        if question is None:
            raise ProblemError(404, FORGOTTEN)
        return question

    def facets(self, changes: int, folders: int) -> Facets:
        """What the collection holds, counted anew when it has changed, or after some time: moves are no changes."""
        key = changes, folders, int(time.monotonic() / FACETS_SECONDS)
        known = self._facets.get(key)
        if known is None:
            known = self.collection.facets(folders)
            self._facets.put(key, known)
        return known

    def item(self, item_id: int) -> Item:
        """The item with this id, 404 when there is none."""
        try:
            return self.collection.items([item_id])[0]
        except InputError:
            raise ProblemError(404, f"no item has id {item_id}") from None


def open_serving(where: str, model: str | None = None) -> Serving:
    """The collection at ``where``, for reading, with its model, or the one that is named if it is elsewhere now."""
    from vse.index.model_of import model_of, model_place
    from vse.index.open import open_collection

    collection = open_collection(where)
    try:
        info = collection.info()
        source = model_place(info, model)
        return Serving(collection, model_of(info, model), source, coefficients_of(source))
    except BaseException:
        collection.close()
        raise

"""What every part of the interface needs, in one place."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from fastapi import Depends, Request
from starlette.datastructures import State

from vse.errors import InputError, VSEError
from vse.index.query import Query, QueryVector, encode_query
from vse.index.types import Collection, Facets, Item
from vse.models.coefficients import Coefficients, coefficients_of
from vse.service.middleware import HEAD, Figures
from vse.service.problems import ProblemError
from vse.service.settings import ServiceSettings
from vse.service.workers import Workers

if TYPE_CHECKING:
    from vse.index.query import Model


Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """Entries that together ``weigh`` at most ``most``, such as bytes; the least recently used are forgotten first.

    An entry that is heavier than all of it is not kept. May be used from several threads.
    """

    def __init__(self, most: int, weigh: Callable[[Value], int]) -> None:
        self.most, self.weigh = most, weigh
        self.held = 0
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: Key) -> Value | None:
        with self._guard:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: Key, value: Value) -> None:
        with self._guard:
            if key in self._entries:
                self.held -= self.weigh(self._entries.pop(key))
            if self.weigh(value) > self.most:
                return
            self._entries[key] = value
            self.held += self.weigh(value)
            while self.held > self.most:
                self.held -= self.weigh(self._entries.popitem(last=False)[1])


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
    from vse.index.open import model_of, model_place, open_collection

    collection = open_collection(where)
    try:
        info = collection.info()
        source = model_place(info, model)
        return Serving(collection, model_of(info, model), source, coefficients_of(source))
    except BaseException:
        collection.close()
        raise


RETRY_SECONDS = 3.0


class UnavailableError(VSEError):
    """The collection, or its model, cannot be opened now."""


class Engine:
    """Lends what ``open_serving`` opens, and opens it anew when an upgrade has switched to another model.

    Readers see what a writer commits without being opened again. Loading another model takes a while: one request waits
    for it, the others are answered from what was served before. That is closed when the last request that uses it has
    ended.
    """

    def __init__(self, open_serving: Callable[[], Serving]) -> None:
        self._open = open_serving
        self._serving = open_serving()
        self.where = self._serving.collection.info().where
        self._users: Counter[int] = Counter()  # by id() of a Serving
        self._guard = threading.Lock()
        self._opening = threading.Lock()
        self._failed: tuple[float, VSEError] | None = None

    @contextmanager
    def lend(self) -> Iterator[Serving]:
        """What is to be asked now, open for as long as it is used."""
        try:
            with self._borrowed() as current:
                superseded = current.collection.superseded
            if superseded:
                self._switch(current)
        except VSEError as error:  # whoever asks has done nothing wrong, whatever kind of error it is
            raise UnavailableError(str(error)) from error
        with self._borrowed() as serving:
            yield serving

    def close(self) -> None:
        """Close what is served; nothing is lent any more."""
        self._serving.collection.close()

    @contextmanager
    def _borrowed(self) -> Iterator[Serving]:
        with self._guard:
            serving = self._serving
            self._users[id(serving)] += 1
        try:
            yield serving
        finally:
            with self._guard:
                self._users[id(serving)] -= 1
                self._close_if_left(serving)

    def _switch(self, old: Serving) -> None:
        if not self._opening.acquire(blocking=False):
            return
        try:
            if self._serving is old:
                fresh = self._fresh()
                with self._guard:
                    self._serving = fresh
                    self._close_if_left(old)
        finally:
            self._opening.release()

    def _fresh(self) -> Serving:
        """Opened, or the error of some seconds ago: trying means to load a model, and everybody asks."""
        if self._failed is not None and time.monotonic() - self._failed[0] < RETRY_SECONDS:
            raise self._failed[1]
        try:
            return self._open()
        except VSEError as error:
            self._failed = time.monotonic(), error
            raise

    def _close_if_left(self, serving: Serving) -> None:
        if self._users[id(serving)]:
            return
        del self._users[id(serving)]  # another one may get the same id
        if serving is not self._serving:
            serving.collection.close()


T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """The parts of a running service."""

    engine: Engine
    settings: ServiceSettings
    workers: Workers
    renditions: Remembered[str, bytes]
    figures: Figures


@dataclass(frozen=True)
class Context:
    """The service, for one request. ``head`` says that only the headers of the answer are wanted."""

    service: Service
    client: str
    state: State
    head: bool

    async def compute(self, answer: Callable[[Serving], T]) -> T:
        """``answer`` of what is served, in a thread, as far as the limits allow."""
        return await self.service.workers.run(self.client, lambda: self._lent(answer))

    def asked(self, words: str) -> None:
        """Keep what a body asked for, for a log that wants it; what an address asks for is in the address."""
        self.state.asked = words

    def _lent(self, answer: Callable[[Serving], T]) -> T:
        with self.service.engine.lend() as serving:
            return answer(serving)


async def _context(request: Request) -> Context:  # a plain function would be called in a thread
    client = request.client
    head = bool(request.scope.get(HEAD))
    return Context(request.app.state.service, client.host if client is not None else "", request.state, head)


Ctx = Annotated[Context, Depends(_context)]

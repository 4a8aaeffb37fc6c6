"""The collection being served: opened with its model, its queries cached, reloaded after an upgrade."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cachetools import LRUCache

from vse.errors import InputError, VSEError
from vse.index.query import Query, QueryVector, encode_query
from vse.index.types import Collection, Facets, Item
from vse.models.coefficients import Coefficients, RelevanceCoefficients, coefficients_of, own_relevance
from vse.service.problems import NO_MODEL_TYPE, ProblemError

if TYPE_CHECKING:
    from vse.index.query import Model

QUERY_CACHE_BYTES = 2_000_000
"""Enough for some hundred queries."""
FACETS_SECONDS = 60
RETRY_SECONDS = 3.0
NO_MODEL = (
    "the embeddings of this collection are computed elsewhere, so texts and images cannot be searched for: "
    "search by vector (POST /search/vector), or by items (like)"
)
UNKNOWN_QUERY = "unknown query id: it has expired, send the query again"

Key = TypeVar("Key")
Value = TypeVar("Value")


class LRU(Generic[Key, Value]):
    """A thread-safe LRU cache bounded by total size.

    Args:
        max_size: The total size of all values, such as bytes. A larger single value is not cached.
        size_of: The size of a value.
    """

    def __init__(self, max_size: int, size_of: Callable[[Value], int]) -> None:
        self._entries: LRUCache[Key, Value] = LRUCache(max_size, getsizeof=size_of)
        self._lock = threading.Lock()

    @property
    def size(self) -> float:
        """The total size of the cached values."""
        return self._entries.currsize

    def get(self, key: Key) -> Value | None:
        with self._lock:
            return self._entries.get(key)

    def put(self, key: Key, value: Value) -> None:
        with self._lock:
            self._entries.pop(key, None)
            if self._entries.getsizeof(value) <= self._entries.maxsize:
                self._entries[key] = value


@dataclass(frozen=True)
class CachedQuery:
    """An encoded query. Later requests refer to it by ``id``."""

    id: str
    encoded: QueryVector

    @property
    def size(self) -> int:
        """An upper bound of its bytes; the text is held twice, in parts and joined."""
        return self.encoded.vector.nbytes + 8 * len(self.encoded.text) + 1000


def _query_cache() -> LRU[Any, CachedQuery]:
    return LRU(QUERY_CACHE_BYTES, lambda query: query.size)


@dataclass(frozen=True)
class LoadedCollection:
    """An open collection with its model and confidence coefficients.

    Encoded queries are cached, so that the next page, another filter, or the evidence of a result needs no second
    encoding. They belong to the model and are dropped with it.

    Attributes:
        collection: The collection, open for reading.
        model: The model that its embeddings come from; None if they are computed elsewhere.
        source: Where the model was loaded from.
        coefficients: What turns scores into confidences; None if the model has none.
        relevance: What turns scores into relevances; None if the model has none.
    """

    collection: Collection
    model: Model | None
    source: str
    coefficients: Coefficients | None
    relevance: RelevanceCoefficients | None = None
    _by_id: LRU[str, CachedQuery] = field(default_factory=_query_cache, repr=False)
    _by_query: LRU[Query, CachedQuery] = field(default_factory=_query_cache, repr=False)
    _facets: LRU[tuple[int, int, int], Facets] = field(default_factory=lambda: LRU(1, lambda _: 1), repr=False)

    def encode(self, query: Query) -> CachedQuery:
        """Return ``query`` encoded, from the cache if possible.

        Raises:
            ProblemError: 404 if the query names an item that does not exist, 422 if it needs a model and there is none.
        """
        # Queries with uploaded bytes are rarely repeated, and the embedding of an item may change.
        cacheable = not (query.images or query.like)
        known = self._by_query.get(query) if cacheable else None
        if known is not None and self._by_id.get(known.id) is not None:
            return known
        if query.needs_model:
            self.require_model()
        for item_id in query.like:
            self.item(item_id)
        cached = self.remember(encode_query(query, self.model, self.collection))
        if cacheable:
            self._by_query.put(query, cached)
        return cached

    def remember(self, encoded: QueryVector) -> CachedQuery:
        """Cache an encoded query under a new id."""
        cached = CachedQuery(secrets.token_urlsafe(12), encoded)
        self._by_id.put(cached.id, cached)
        return cached

    def require_model(self) -> Model:
        """Return the model.

        Raises:
            ProblemError: 422 if embeddings are computed elsewhere.
        """
        if self.model is None:
            raise ProblemError(422, NO_MODEL, kind=NO_MODEL_TYPE)
        return self.model

    def query(self, query_id: str) -> CachedQuery:
        """Return the cached query with this id.

        Raises:
            ProblemError: 404 if it is no longer cached.
        """
        cached = self._by_id.get(query_id)
        if cached is None:
            raise ProblemError(404, UNKNOWN_QUERY)
        return cached

    def facets(self, changes: int, folders: int) -> Facets:
        """Return the collection's counts, recomputed after a change and once a minute: a moved file is no change."""
        key = changes, folders, int(time.monotonic() / FACETS_SECONDS)
        known = self._facets.get(key)
        if known is None:
            known = self.collection.facets(folders)
            self._facets.put(key, known)
        return known

    def item(self, item_id: int) -> Item:
        """Return the item with this id.

        Raises:
            ProblemError: 404 if there is none.
        """
        try:
            return self.collection.items([item_id])[0]
        except InputError:
            raise ProblemError(404, f"no item has id {item_id}") from None


def load_collection(
    where: str, model: str | None = None, *, device: str | None = None, threads: int | None = None
) -> LoadedCollection:
    """Open a collection for reading and load its model.

    Args:
        where: A folder, or the address of a server.
        model: Where the model is now, if it is no longer where the collection was indexed with it.
        device: Where the model runs, as for :func:`vse.load`; the CPU by default.
        threads: Threads on the CPU; all cores by default.
    """
    from vse.index.open import is_external, load_collection_model, model_place, open_collection

    collection = open_collection(where)
    try:
        if model is None and is_external(info := collection.info()):
            return LoadedCollection(collection, None, info.model_source, None)
        source = model_place(collection.info(), model)
        loaded = load_collection_model(collection, model, device=device, threads=threads)
        return LoadedCollection(collection, loaded, source, coefficients_of(source), own_relevance(source))
    except BaseException:
        collection.close()
        raise


class UnavailableError(VSEError):
    """The collection or its model cannot be opened at the moment."""


class Reloader:
    """Keeps a collection open, and reopens it when an upgrade has switched to another model.

    Readers see a writer's commits without reopening. Loading another model takes a while: one request waits for it, the
    others are served from the old collection. That one is closed when the last request using it has finished.

    Args:
        load: Opens the collection. Called at once, and again after each upgrade.
    """

    def __init__(self, load: Callable[[], LoadedCollection]) -> None:
        self._load = load
        self._current = load()
        self.where = self._current.collection.info().where
        self._users: Counter[int] = Counter()  # by id() of a LoadedCollection
        self._lock = threading.Lock()
        self._reloading = threading.Lock()
        self._failure: tuple[float, VSEError] | None = None

    @contextmanager
    def borrow(self) -> Iterator[LoadedCollection]:
        """Yield the current collection and keep it open until the block ends.

        Raises:
            UnavailableError: It cannot be read, or the new model cannot be loaded.
        """
        try:
            with self._borrow_current() as current:
                stale = current.collection.superseded
            if stale:
                self._reload(current)
        except VSEError as error:  # whatever its class, the client is not to blame
            raise UnavailableError(str(error)) from error
        with self._borrow_current() as current:
            yield current

    def close(self) -> None:
        """Close the current collection. Nothing can be borrowed afterwards."""
        self._current.collection.close()

    @contextmanager
    def _borrow_current(self) -> Iterator[LoadedCollection]:
        with self._lock:
            current = self._current
            self._users[id(current)] += 1
        try:
            yield current
        finally:
            with self._lock:
                self._users[id(current)] -= 1
                self._close_if_unused(current)

    def _reload(self, old: LoadedCollection) -> None:
        if not self._reloading.acquire(blocking=False):
            return
        try:
            if self._current is old:
                new = self._load_or_fail()
                with self._lock:
                    self._current = new
                    self._close_if_unused(old)
        finally:
            self._reloading.release()

    def _load_or_fail(self) -> LoadedCollection:
        """Load, or raise the error of a few seconds ago: each attempt loads a model, and every request makes one."""
        if self._failure is not None and time.monotonic() - self._failure[0] < RETRY_SECONDS:
            raise self._failure[1]
        try:
            return self._load()
        except VSEError as error:
            self._failure = time.monotonic(), error
            raise

    def _close_if_unused(self, loaded: LoadedCollection) -> None:
        if self._users[id(loaded)]:
            return
        del self._users[id(loaded)]  # another object may get the same id
        if loaded is not self._current:
            loaded.collection.close()

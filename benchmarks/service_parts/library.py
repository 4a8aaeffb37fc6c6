"""Open the collection in this process, without the service: the cost of a search by itself, and the files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vse.index.query import Model, QueryVector
    from vse.index.results import SearchResults
    from vse.index.types import Collection, Item
    from vse.models.coefficients import Coefficients


@dataclass(frozen=True)
class Library:
    """A collection with its model, as ``vse serve`` has them."""

    collection: Collection
    model: Model
    coefficients: Coefficients

    def search(self, text: str, k: int) -> SearchResults:
        """Return the results for a text, encoded now."""
        from vse.index.item_search import search

        return search(self.collection, text, k, model=self.model, coefficients=self.coefficients)

    def encode(self, text: str) -> QueryVector:
        from vse.index.query import as_query, encode_query

        return encode_query(as_query(text), self.model, self.collection)

    def search_with(self, query: QueryVector, k: int) -> SearchResults:
        """Return the results for a text that was encoded before."""
        from vse.index.item_search import search_encoded

        return search_encoded(self.collection, query, k, coefficients=self.coefficients)


@contextmanager
def open_library(index: Path) -> Iterator[Library]:
    from vse.index.open import collection_coefficients, load_collection_model, open_collection

    with closing(open_collection(str(index))) as collection:
        yield Library(collection, load_collection_model(collection), collection_coefficients(collection))


def pictures(index: Path, count: int) -> list[Item]:
    """Return the newest images of the collection, this many or all."""
    from vse.index.filters import Filter
    from vse.index.open import open_collection

    with closing(open_collection(str(index))) as collection:
        found = collection.recent(count, where=Filter(kind="image"))
    if not found:
        raise SystemExit(f"{index} has no images: name another --collection")
    return found


def threads() -> int:
    """Return how many requests the service computes at a time."""
    from vse.service.settings import Limits

    return Limits().threads

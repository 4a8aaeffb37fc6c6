"""Search the captions of a collection by image or by text."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vse.errors import InputError
from vse.index.checks import check_page, read_hits, retry_on_stale_hits
from vse.index.item_search import DEPTH
from vse.index.open import load_collection_model
from vse.index.query import Query, QueryVector, as_query, encode_query
from vse.index.types import Collection, Item, full_path

if TYPE_CHECKING:
    from vse.index.query import Model
    from vse.index.types import Vectors


@dataclass(frozen=True)
class CaptionResult:
    """One caption found; ``path`` is its file and ``id`` the file's first item."""

    caption: str
    id: int
    path: str
    score: float


@dataclass(frozen=True)
class CaptionResults:
    """One page of captions, starting at ``offset``; ``more`` if another page follows.

    ``unknown`` and ``cut`` are as in :class:`~vse.index.item_search.SearchResults`.
    """

    query: str
    captions: tuple[CaptionResult, ...]
    offset: int = 0
    more: bool = False
    unknown: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        found = {"query": self.query, "captions": [asdict(each) for each in self.captions]}
        lists = {"unknown": list(self.unknown), "cut": list(self.cut)}
        return {**found, "offset": self.offset, "more": self.more, **lists}


def search_captions(
    collection: Collection,
    query: Query | str,
    k: int = 10,
    *,
    model: Model | str | os.PathLike[str] | None = None,
    offset: int = 0,
    device: str | None = None,
    threads: int | None = None,
) -> CaptionResults:
    """Return the captions of a collection that match a query best.

    A caption of several files is returned once for each of them. Consecutive pages of an unchanged collection are
    consistent.

    Args:
        collection: An open collection.
        query: A text, or a :class:`~vse.index.query.Query` of texts, images and items.
        k: Captions per page.
        model: The collection's model, as for :func:`vse.index.search`.
        offset: Captions to skip.
        device: Where a model that is loaded here runs, as for :func:`vse.load`; the CPU by default.
        threads: Threads on the CPU of a model that is loaded here; all cores by default.

    Returns:
        One page of captions, best first.

    Raises:
        InputError: The collection has no captions, or ``model`` is not the one that encoded it.
    """
    k, offset = check_page(k, offset)
    wanted = as_query(query)
    captions = _expect_captions(collection)
    loaded = load_collection_model(collection, model, device=device, threads=threads) if wanted.needs_model else None
    return _search(collection, encode_query(wanted, loaded, collection), k, offset, captions)


def search_captions_encoded(
    collection: Collection, query: QueryVector, k: int = 10, *, offset: int = 0
) -> CaptionResults:
    """Run :func:`search_captions` for a query already encoded; its model is not checked."""
    k, offset = check_page(k, offset)
    return _search(collection, query, k, offset, _expect_captions(collection))


def _expect_captions(collection: Collection) -> int:
    """Return the number of captions; raise if there are none."""
    info = collection.info()
    if not info.captions:
        raise InputError(
            f"{info.where} holds no captions: put captions.csv with the columns path and caption into an indexed "
            "folder, and run 'vse index' again"
        )
    return info.captions


def _search(collection: Collection, query: QueryVector, k: int, offset: int, captions: int) -> CaptionResults:
    need = min(offset + k + 1, captions)

    def read() -> tuple[list[tuple[str, int, float]], list[Item]]:
        hits = _hits(collection, query.vector, need)
        return hits, read_hits(collection.items, [item for _, item, _ in hits[offset : offset + k]])

    hits, items = retry_on_stale_hits(read)
    if not hits:
        where = collection.info().where
        raise InputError(
            f"the captions of {where} have no embeddings, since its model has no vocabulary: "
            f"use one that has, with 'vse collection upgrade {where} --model MODEL'"
        )
    found = tuple(
        CaptionResult(text, item.id, full_path(item.file), score)
        for (text, _, score), item in zip(hits[offset : offset + k], items, strict=True)
    )
    return CaptionResults(query.text, found, offset, len(hits) > offset + k, query.unknown, query.cut)


def _hits(collection: Collection, vector: Vectors, need: int) -> list[tuple[str, int, float]]:
    """Return at least the ``need`` best captions; the first ones do not depend on ``need``, though the search may."""
    first = collection.search_captions(vector, DEPTH)
    if need <= DEPTH or len(first) < DEPTH:
        return first
    known = {(text, item) for text, item, _ in first}
    return first + [hit for hit in collection.search_captions(vector, need) if hit[:2] not in known]

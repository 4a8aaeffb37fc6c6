"""Search a collection: the best items for a query, page by page, with their confidence and relevance."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, unknown_choice
from vse.index.checks import check_page, read_hits, retry_on_stale_hits, suggest_folder
from vse.index.confidence import background_of
from vse.index.duplicates import leaders
from vse.index.filters import Filter
from vse.index.fusion import Ranking, WordSearch, encode_known, search_words
from vse.index.judging import READ, Judge, Judged, check_cutoff, check_relevance
from vse.index.open import collection_coefficients, collection_relevance, load_collection_model
from vse.index.query import Query, QueryVector, as_query
from vse.index.results import NAMED, EmptyReason, Result, SearchResults
from vse.index.types import Collection, Hits, Place, Vectors, full_path, recency
from vse.models.coefficients import Coefficients, RelevanceCoefficients

if TYPE_CHECKING:
    from vse.index.query import Model


DEPTH = READ
"""Minimum number of hits requested, whatever the page; an approximate index returns no more."""
DATED = 1000
"""Results that are ordered by date: the best ones."""
SORTS = ("relevance", "date")
Sort = Literal["relevance", "date"]


def search(
    collection: Collection,
    query: Query | str,
    k: int = 10,
    *,
    model: Model | str | os.PathLike[str] | None = None,
    offset: int = 0,
    where: Filter | None = None,
    cutoff: float | None = None,
    min_relevance: float | None = None,
    group_duplicates: float | None = None,
    group_videos: bool = False,
    sort: Sort = "relevance",
    coefficients: Coefficients | None = None,
    relevance: RelevanceCoefficients | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> SearchResults:
    """Return the items of a collection that match a query best, with their confidence.

    Texts are compared with images by embedding, and their words with the words of files; :mod:`vse.index.fusion` says
    how the two rankings become one. A text is taken as it is; :func:`~vse.index.typed.parse_typed` reads quotes and
    filters such as ``camera:canon``.

    Consecutive pages of an unchanged collection are consistent, whatever their sizes. The items of ``query.like`` are
    excluded from the results.

    Args:
        collection: An open collection.
        query: A text, or a :class:`~vse.index.query.Query` of texts, images and items.
        k: Results per page.
        model: The collection's model, if it has moved: a folder, a hub id, or a loaded model. By default it is loaded
            from where it was when indexing, once per open collection. A query of ids needs no model.
        offset: Results to skip.
        where: Restricts the items.
        cutoff: Minimum confidence of a result, from 0 to 1; needs a model with coefficients. Neither minimum applies to
            a file that holds the words of the query, or most of them.
        min_relevance: Minimum relevance of a result, from 0 to 1; needs a model with coefficients. If no result has
            the relevance :func:`~vse.index.relevance.present_from`, none is shown; 0 shows everything. A query with
            images or items has no relevance and is not restricted.
        group_duplicates: Cosine from which a result is grouped under a better, near-duplicate one. Groups are formed
            among the hits that were read: :data:`DEPTH`, or more if a page needs them.
        group_videos: Show each video once, with its best moment; ``Result.moments`` counts those that were read.
        sort: ``"relevance"``, or ``"date"``: the best :data:`DATED` results that pass, newest first.
        coefficients: Turn scores into confidence. Default: those of :func:`collection_coefficients`. A foreign model
            that was not calibrated has none, and its results have no confidence.
        relevance: Turn scores into relevance. Default: those of :func:`collection_relevance`.
        device: Where a model that is loaded here runs, as for :func:`vse.load`; the CPU by default.
        threads: Threads on the CPU of a model that is loaded here; all cores by default.

    Returns:
        One page of results, best first.

    Raises:
        InputError: ``model`` is not the one that encoded the collection, the folder of ``where`` holds no file, an
            argument is out of range, or ``cutoff`` or ``min_relevance`` is given for a model without coefficients.

    >>> from vse.index import open_collection, search
    >>> collection = open_collection("photos.vse")  # doctest: +SKIP
    >>> search(collection, "two dogs in snow").results[0].path  # doctest: +SKIP
    '/home/ada/photos/2024/winter/IMG_0412.jpg'
    """
    wanted = as_query(query)
    # Before anything is encoded.
    page = _Page(
        *check_page(k, offset), where, cutoff, min_relevance, group_duplicates, wanted.like, group_videos, sort
    )
    if coefficients is None:
        coefficients = collection_coefficients(collection, model)
    if relevance is None:
        relevance = collection_relevance(collection, model)
    check_cutoff(cutoff, coefficients, min_relevance, relevance)
    loaded = load_collection_model(collection, model, device=device, threads=threads) if wanted.needs_model else None
    return _search(collection, encode_known(wanted, loaded, collection), page, coefficients, relevance)


def search_encoded(
    collection: Collection,
    query: QueryVector,
    k: int = 10,
    *,
    offset: int = 0,
    where: Filter | None = None,
    cutoff: float | None = None,
    min_relevance: float | None = None,
    group_duplicates: float | None = None,
    group_videos: bool = False,
    sort: Sort = "relevance",
    coefficients: Coefficients | None = None,
    relevance: RelevanceCoefficients | None = None,
) -> SearchResults:
    """Run :func:`search` for a query already encoded.

    Neither the model of ``query`` nor that of the coefficients is checked. Without coefficients, results have no
    confidence or no relevance; :func:`collection_coefficients` and :func:`collection_relevance` return those of the
    collection's model.
    """
    check_cutoff(cutoff, coefficients, min_relevance, relevance)
    page = _Page(*check_page(k, offset), where, cutoff, min_relevance, group_duplicates, query.like, group_videos, sort)
    return _search(collection, query, page, coefficients, relevance)


def _search(
    collection: Collection,
    query: QueryVector,
    page: _Page,
    coefficients: Coefficients | None,
    relevance: RelevanceCoefficients | None,
) -> SearchResults:
    background = background_of(collection)
    check_relevance(relevance, query.vector)
    if query.words_alone:
        coefficients = relevance = None
    judge = Judge(collection, query, background, coefficients, relevance)
    results: tuple[Result, ...] = ()
    more, exact = False, True
    reason: EmptyReason | None = EmptyReason("collection")
    if background.items:
        results, more, exact, reason = retry_on_stale_hits(lambda: _read(page, judge))
    return SearchResults(
        query=query.text,
        exact=exact,
        results=results,
        offset=page.offset,
        more=more,
        unknown=query.unknown,
        cut=query.cut,
        vector=None if query.words_alone else query.vector,
        empty_reason=reason,
        notes=query.notes,
    )


@dataclass(frozen=True)
class _Page:
    """Validated arguments of :func:`search`."""

    k: int
    offset: int
    where: Filter | None
    cutoff: float | None
    min_relevance: float | None
    group_duplicates: float | None
    left_out: tuple[int, ...]
    group_videos: bool = False
    sort: Sort = "relevance"

    def __post_init__(self) -> None:
        for name in ("cutoff", "min_relevance", "group_duplicates"):
            if (value := getattr(self, name)) is not None and not isinstance(value, Real):
                raise InputError(f"{name} {str(value)[:60]}: expected a number from 0 to 1")
        for name, what in (("cutoff", "confidence"), ("min_relevance", "relevance")):
            if (value := getattr(self, name)) is not None and not 0 <= value <= 1:
                raise InputError(f"{name} {value}: expected a {what} from 0 to 1")
        if self.group_duplicates is not None and not 0 < self.group_duplicates <= 1:
            raise InputError(f"group_duplicates {self.group_duplicates}: expected a cosine above 0, at most 1")
        if self.sort not in SORTS:
            raise InputError(unknown_choice("sort", str(self.sort)[:60], SORTS))


def _read(page: _Page, judge: Judge) -> tuple[tuple[Result, ...], bool, bool, EmptyReason | None]:
    """Return one page, whether more follow, whether every embedding was compared, and why there is no result."""
    collection, total = judge.collection, judge.background.items
    words = search_words(collection, judge.query, page.where)
    need = page.offset + page.k + 1 if page.sort == "relevance" else DATED  # one extra shows whether a page follows
    depth = max(DEPTH, min(need + len(page.left_out), total + 1))
    while True:
        ranking, judged, kept = _ranked(page, judge, words, depth)
        hits = ranking.hits
        moments: dict[int, int] = {}
        if page.group_videos:
            kept, moments = _one_per_video(collection, hits, kept)
        groups = _grouped(collection, hits, kept, page.group_duplicates)
        exhausted = ranking.by_embedding < depth or not judged.enough[: ranking.by_embedding].all()
        if len(groups) >= need or exhausted:
            break
        depth *= 2
    if not len(hits.ids):
        suggest_folder(collection, judge.query.vector, page.where)
    rows = list(groups) if page.sort == "relevance" else _by_date(collection, hits, list(groups)[:DATED])
    shown = [(row, groups[row]) for row in rows[page.offset : page.offset + page.k]]
    results = _results(collection, hits, judged, shown, moments, words)
    reason = None if groups else _empty_reason(page, judge, judged)
    return results, len(rows) > page.offset + page.k, hits.exact, reason


def _ranked(page: _Page, judge: Judge, words: WordSearch, depth: int) -> tuple[Ranking, Judged, NDArray[np.int64]]:
    """Return hits by embedding and by words, what is known of them, and the rows that a page may show, best first."""
    if judge.query.words_alone:
        hits = Hits(np.empty(0, np.int64), np.empty(0, np.float32), exact=True)
    else:
        hits = _hits(judge.collection, judge.query.vector, depth, page.where)
    ranking = words.ranked(hits, DEPTH)
    judged = judge.judged(ranking.hits, page)
    passing = (judged.enough | ranking.sure) & judged.allowed
    return ranking, judged, ranking.order[passing[ranking.order]]


def _by_date(collection: Collection, hits: Hits, rows: list[int]) -> list[int]:
    """Return rows with the newest first, by :func:`~vse.index.types.recency`; those of one time keep their order."""
    files = [item.file for item in read_hits(collection.items, hits.ids[rows].tolist())]
    newest = np.argsort([-recency(file.taken, file.modified) for file in files], kind="stable")
    return [rows[each] for each in newest.tolist()]


def _empty_reason(page: _Page, judge: Judge, judged: Judged) -> EmptyReason:
    """Return the condition without which there would be results: a filter first, then a minimum, then an exclusion."""
    where = page.where or Filter()
    unset: dict[str, Any] = {field.name: field.default for field in fields(where)}
    given = [name for name, value in unset.items() if getattr(where, name) != value]
    for name in given:
        if count := _count(replace(page, where=replace(where, **{name: unset[name]})), judge):
            return EmptyReason(name, count)
    if len(given) > 1 and (count := _count(replace(page, where=None), judge)):
        return EmptyReason("filters", count)
    for condition, rest in (
        ("relevance", judged.confident & judged.allowed),
        ("confidence", judged.relevant & judged.allowed),
        ("exclude", judged.enough),
    ):
        if rest.any():
            return EmptyReason(condition, int(rest.sum()))
    if len(judged.allowed):  # each minimum alone leaves nothing, too
        return EmptyReason("relevance" if not judged.relevant.any() else "confidence", 0)
    return EmptyReason("filters" if given else "collection")


def _count(page: _Page, judge: Judge) -> int:
    """Return how many of the best hits a page could show, near-duplicates included."""
    words = search_words(judge.collection, judge.query, page.where)
    return min(DEPTH, len(_ranked(page, judge, words, DEPTH)[2]))


def _hits(collection: Collection, vector: Vectors, depth: int, where: Filter | None) -> Hits:
    """Return the ``depth`` best hits; the first ones do not depend on ``depth``.

    An exact search may order the first hits differently from an approximate one, so its hits are only appended.
    """
    first = collection.search(vector, DEPTH, where=where)
    if depth <= DEPTH or len(first.ids) < DEPTH:
        return first
    deep = collection.search(vector, depth, where=where, exact=True)
    new = ~np.isin(deep.ids, first.ids)
    ids = np.concatenate([first.ids, deep.ids[new]])[:depth]
    scores = np.concatenate([first.scores, deep.scores[new]])[:depth]
    return Hits(ids, scores, first.exact)


def _grouped(
    collection: Collection, hits: Hits, kept: NDArray[np.int64], threshold: float | None
) -> dict[int, list[int]]:
    """Return the leading rows of hits in order, each with the rows grouped under it."""
    if threshold is None or not len(kept):
        return {int(row): [] for row in kept}
    groups: dict[int, list[int]] = {}
    leading = leaders(read_hits(collection.vectors, hits.ids[kept].tolist()), threshold)
    for row, leader in zip(kept.tolist(), kept[leading].tolist(), strict=True):
        if row == leader:
            groups[row] = []
        else:
            groups[leader].append(row)
    return groups


def _one_per_video(
    collection: Collection, hits: Hits, kept: NDArray[np.int64]
) -> tuple[NDArray[np.int64], dict[int, int]]:
    """Return the rows without lower moments of a video, and the number of moments that a row stands for, if several.

    Which rows remain among the first ones does not depend on later ones, so pages are consistent.
    """
    info = collection.info()
    if not len(kept) or info.items == info.files:  # no file has several moments
        return kept, {}
    best: dict[Place, int] = {}
    moments: dict[int, int] = {}
    rows = kept.tolist()
    for row, item in zip(rows, read_hits(collection.items, hits.ids[kept].tolist()), strict=True):
        place = item.file.root, item.file.path
        first = best.setdefault(place, row)
        moments[first] = moments.get(first, 0) + 1
    return np.array([row for row in rows if row in moments], np.int64), moments


def _results(
    collection: Collection,
    hits: Hits,
    judged: Judged,
    groups: list[tuple[int, list[int]]],
    moments: dict[int, int],
    words: WordSearch,
) -> tuple[Result, ...]:
    rows = [each for row, others in groups for each in (row, *others[:NAMED])]
    ids = hits.ids[rows].tolist()
    confidence, relevance = judged.confidence, judged.relevance
    item_of = dict(zip(rows, read_hits(collection.items, ids), strict=True))
    return tuple(
        Result(
            item_of[row],
            float(hits.scores[row]),
            None if confidence is None else float(confidence[row]),
            tuple(hits.ids[others].tolist()),
            tuple(full_path(item_of[each].file) for each in others[:NAMED]),
            None if relevance is None else float(relevance[row]),
            moments=moments.get(row, 1),
            matched=words.matched(item_of[row].file),
        )
        for row, others in groups
    )

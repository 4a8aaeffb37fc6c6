"""Search a collection: the best items for a query, page by page, with their confidence."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.checks import check_page, read_hits, retry_on_stale_hits
from vse.index.confidence import Floats, background_of, confidences
from vse.index.duplicates import leaders
from vse.index.filters import Filter
from vse.index.open import collection_coefficients, load_collection_model
from vse.index.query import Query, QueryVector, as_query, encode_query
from vse.index.results import NAMED, Result, SearchResults
from vse.index.types import Collection, Hits, Vectors, full_path
from vse.models.coefficients import Coefficients

if TYPE_CHECKING:
    from vse.index.query import Model


DEPTH = 256
"""Minimum number of hits requested, whatever the page; an approximate index returns no more."""
SAMPLED_ITEMS = 256
"""Items that supply folder names for suggestions; listing all files would take too long."""
NAMED_FOLDERS = 3
NO_CONFIDENCE = (
    "a minimum confidence was given, but results have none: the collection's model has no coefficients; "
    "'vse calibrate MODEL --data DIR' fits them"
)


def search(
    collection: Collection,
    query: Query | str,
    k: int = 10,
    *,
    model: Model | str | os.PathLike[str] | None = None,
    offset: int = 0,
    where: Filter | None = None,
    cutoff: float | None = None,
    group_duplicates: float | None = None,
    coefficients: Coefficients | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> SearchResults:
    """Return the items of a collection that match a query best, with their confidence.

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
        cutoff: Minimum confidence of a result, from 0 to 1; needs a model with coefficients.
        group_duplicates: Cosine from which a result is grouped under a better, near-duplicate one. Groups are formed
            among the hits that were read: :data:`DEPTH`, or more if a page needs them.
        coefficients: Turn scores into confidence. Default: those of :func:`collection_coefficients`. A foreign model
            that was not calibrated has none, and its results have no confidence.
        device: Where a model that is loaded here runs, as for :func:`vse.load`; the CPU by default.
        threads: Threads on the CPU of a model that is loaded here; all cores by default.

    Returns:
        One page of results, best first.

    Raises:
        InputError: ``model`` is not the one that encoded the collection, the folder of ``where`` holds no file, an
            argument is out of range, or ``cutoff`` is given for a model without coefficients.

    >>> from vse.index import open_collection, search
    >>> collection = open_collection("photos.vse")  # doctest: +SKIP
    >>> search(collection, "two dogs in snow").results[0].path  # doctest: +SKIP
    '/home/ada/photos/2024/winter/IMG_0412.jpg'
    """
    wanted = as_query(query)
    page = _Page(*check_page(k, offset), where, cutoff, group_duplicates, wanted.like)  # before anything is encoded
    if coefficients is None:
        coefficients = collection_coefficients(collection, model)
    check_cutoff(cutoff, coefficients)
    loaded = load_collection_model(collection, model, device=device, threads=threads) if wanted.needs_model else None
    return _search(collection, encode_query(wanted, loaded, collection), page, coefficients)


def search_encoded(
    collection: Collection,
    query: QueryVector,
    k: int = 10,
    *,
    offset: int = 0,
    where: Filter | None = None,
    cutoff: float | None = None,
    group_duplicates: float | None = None,
    coefficients: Coefficients | None = None,
) -> SearchResults:
    """Run :func:`search` for a query already encoded.

    Neither the model of ``query`` nor that of ``coefficients`` is checked. Without coefficients, results have no
    confidence; :func:`collection_coefficients` returns those of the collection's model.
    """
    check_cutoff(cutoff, coefficients)
    page = _Page(*check_page(k, offset), where, cutoff, group_duplicates, query.like)
    return _search(collection, query, page, coefficients)


def check_cutoff(cutoff: float | None, coefficients: Coefficients | None) -> None:
    """Raise :class:`InputError` if a minimum confidence is given where results have no confidence."""
    if cutoff is not None and coefficients is None:
        raise InputError(NO_CONFIDENCE)


def _search(
    collection: Collection, query: QueryVector, page: _Page, coefficients: Coefficients | None
) -> SearchResults:
    background = background_of(collection)

    def confidence_of(scores: NDArray[np.float32]) -> Floats | None:
        return None if coefficients is None else confidences(background, query.vector, scores, coefficients)

    results: tuple[Result, ...] = ()
    more, exact = False, True
    if background.items:
        results, more, exact = retry_on_stale_hits(
            lambda: _read(collection, query.vector, page, background.items, confidence_of)
        )
    return SearchResults(
        query=query.text,
        exact=exact,
        results=results,
        offset=page.offset,
        more=more,
        unknown=query.unknown,
        cut=query.cut,
        vector=query.vector,
    )


@dataclass(frozen=True)
class _Page:
    """Validated arguments of :func:`search`."""

    k: int
    offset: int
    where: Filter | None
    cutoff: float | None
    group_duplicates: float | None
    left_out: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, value in (("cutoff", self.cutoff), ("group_duplicates", self.group_duplicates)):
            if value is not None and not isinstance(value, Real):
                raise InputError(f"{name} {str(value)[:60]}: expected a number from 0 to 1")
        if self.cutoff is not None and not 0 <= self.cutoff <= 1:
            raise InputError(f"cutoff {self.cutoff}: expected a confidence from 0 to 1")
        if self.group_duplicates is not None and not 0 < self.group_duplicates <= 1:
            raise InputError(f"group_duplicates {self.group_duplicates}: expected a cosine above 0, at most 1")


def _read(
    collection: Collection,
    vector: Vectors,
    page: _Page,
    total: int,
    confidence_of: Callable[[NDArray[np.float32]], Floats | None],
) -> tuple[tuple[Result, ...], bool, bool]:
    """Return one page of ``total`` items, whether more follow, and whether every embedding was compared."""
    need = page.offset + page.k + 1  # one extra shows whether another page follows
    depth = max(DEPTH, min(need + len(page.left_out), total + 1))
    while True:
        hits = _hits(collection, vector, depth, page.where)
        confidence = confidence_of(hits.scores)
        enough = np.ones(len(hits.ids), bool)
        if confidence is not None and page.cutoff is not None:
            enough = confidence >= page.cutoff
        kept = np.flatnonzero(enough & ~np.isin(hits.ids, np.array(page.left_out, np.int64)))
        groups = _grouped(collection, hits, kept, page.group_duplicates)
        exhausted = len(hits.ids) < depth or not enough.all()
        if len(groups) >= need or exhausted:
            break
        depth *= 2
    if not len(hits.ids):
        suggest_folder(collection, vector, page.where)
    shown = list(groups.items())[page.offset : page.offset + page.k]
    results = _results(collection, hits, confidence, shown)
    return results, len(groups) > page.offset + page.k, hits.exact


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


def _results(
    collection: Collection, hits: Hits, confidence: Floats | None, groups: list[tuple[int, list[int]]]
) -> tuple[Result, ...]:
    rows = [each for row, others in groups for each in (row, *others[:NAMED])]
    ids = hits.ids[rows].tolist()
    item_of = dict(zip(rows, read_hits(collection.items, ids), strict=True))
    return tuple(
        Result(
            item_of[row],
            float(hits.scores[row]),
            None if confidence is None else float(confidence[row]),
            tuple(hits.ids[others].tolist()),
            tuple(full_path(item_of[each].file) for each in others[:NAMED]),
        )
        for row, others in groups
    )


def suggest_folder(collection: Collection, vector: Vectors, where: Filter | None) -> None:
    """Raise an error with a suggestion when the folder of a filter holds no file.

    It takes one search per part of the folder, so call it only after an empty result, inside
    :func:`~vse.index.checks.retry_on_stale_hits`. Any query ``vector (D,)`` will do.
    """
    if where is None or (where.folder is None and where.root is None):
        return
    parts = [] if where.folder is None else where.folder.split("/")
    if _paths(collection, vector, where.root, parts, 1):
        return
    shown = "/".join([*([where.root.rstrip("/")] if where.root is not None else []), *parts])
    raise InputError(f"no file lies in folder {shown[:200]!r}: {_hint(collection, vector, where.root, parts)}")


def _hint(collection: Collection, vector: Vectors, root: str | None, parts: list[str]) -> str:
    from difflib import get_close_matches

    for depth in range(len(parts) - 1, -1, -1):
        paths = _paths(collection, vector, root, parts[:depth], SAMPLED_ITEMS)
        below = sorted({path.split("/")[depth] for path in paths if path.count("/") > depth})
        close = get_close_matches(parts[depth], below, n=1)
        if close:
            return f"did you mean {'/'.join([*parts[:depth], *close])!r}?"
        if paths and depth:
            return f"the nearest that holds files is {'/'.join(parts[:depth])!r}"
        if below:
            more = " …" if len(below) > NAMED_FOLDERS else ""
            return f"there are {', '.join(map(repr, below[:NAMED_FOLDERS]))}{more}"
    return "leave it out, or index it"


def _paths(collection: Collection, vector: Vectors, root: str | None, parts: list[str], count: int) -> list[str]:
    """Return the paths of up to ``count`` files in a folder."""
    hits = collection.search(vector, count, where=Filter(folder="/".join(parts), root=root))
    return [item.file.path for item in read_hits(collection.items, hits.ids.tolist())]

"""Asking a collection: the best items for a query, page by page, with their confidence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.collection import Collection, Hits, Item, Vectors
from vse.index.confidence import background_of, confidences
from vse.index.duplicates import full_path, leaders, printable
from vse.index.filters import Filter
from vse.index.media_file import MediaKind
from vse.index.query import Query, encode_query

if TYPE_CHECKING:
    from rich.console import Console

    from vse.index.query import Model

DEPTH = 256
"""So many hits are asked for at least, whatever the page: an approximate index answers no more."""


@dataclass(frozen=True)
class Result:
    """One item that was found. ``group`` are the ids of results behind it that look the same, when these are joined."""

    id: int
    path: str
    score: float
    confidence: float
    start: float | None
    end: float | None
    kind: MediaKind
    taken: float | None
    group: tuple[int, ...] = ()


@dataclass(frozen=True)
class SearchResults:
    """One page: results ``offset + 1`` and following. ``more`` says whether another page follows.

    ``exact`` says whether every vector was compared. ``unknown`` are words of the query that the model does not know,
    ``cut`` texts of which it read the beginning only.
    """

    query: str
    exact: bool
    results: tuple[Result, ...]
    offset: int = 0
    more: bool = False
    unknown: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        results = [{**asdict(result), "group": list(result.group)} for result in self.results]
        lists = {"unknown": list(self.unknown), "cut": list(self.cut)}
        head = {"query": self.query, "exact": self.exact, "results": results}
        return {**head, "offset": self.offset, "more": self.more, **lists}

    def render(self, console: Console) -> None:
        """A line for each result, the path last and whole."""
        from rich.text import Text

        def say(text: str) -> None:
            console.print(Text(text), soft_wrap=True)  # Text: a bracket in a file name is no markup

        if self.unknown:
            say(f"words the model does not know: {printable(', '.join(self.unknown))}")
        for text in self.cut:
            say(f"too long for the model, which read its beginning: {printable(text[:60])} …")
        if not self.results:
            say("nothing found" if not self.offset else "no more results")
        for number, result in enumerate(self.results, self.offset + 1):
            say(_line(number, result))
        if self.results and not self.exact:
            say("searched with an approximate index")


def search(
    collection: Collection,
    model: Model | None,
    query: Query | str,
    k: int = 10,
    *,
    offset: int = 0,
    where: Filter | None = None,
    cutoff: float | None = None,
    group_duplicates: float | None = None,
) -> SearchResults:
    """Results ``offset`` to ``offset + k`` for ``query``, a text or more than that.

    Pages of an unchanged collection continue each other, whatever their sizes. ``cutoff`` leaves out results whose
    confidence is lower. ``group_duplicates`` is a cosine from which a result joins a better one that looks the same;
    groups are made among the hits that were looked at, :data:`DEPTH` and more where a page needs them. ``model`` is
    the collection's; a query of ids alone needs none.
    """
    _check(k, offset, cutoff, group_duplicates)
    wanted = Query(texts=(query,)) if isinstance(query, str) else query
    found = encode_query(wanted, model, collection)
    background = background_of(collection)
    if not background.items:
        return SearchResults(str(wanted), True, (), offset, False, found.unknown, found.cut)
    need, depth = offset + k + 1, DEPTH  # one more tells whether another page follows
    while True:
        hits = _hits(collection, found.vector, depth, where)
        sure = confidences(background, found.vector, hits.scores)
        kept = np.arange(len(sure)) if cutoff is None else np.flatnonzero(sure >= cutoff)
        groups = _grouped(collection, hits, kept, group_duplicates)
        exhausted = len(hits.ids) < depth or len(kept) < len(sure)
        if len(groups) >= need or exhausted:
            break
        depth *= 2
    page = list(groups.items())[offset : offset + k]
    items = collection.items([int(hits.ids[row]) for row, _ in page])
    results = tuple(
        _result(item, float(hits.scores[row]), float(sure[row]), [int(hits.ids[each]) for each in others])
        for item, (row, others) in zip(items, page, strict=True)
    )
    return SearchResults(str(wanted), hits.exact, results, offset, len(groups) > offset + k, found.unknown, found.cut)


def _hits(collection: Collection, vector: Vectors, depth: int, where: Filter | None) -> Hits:
    """The ``depth`` best hits; the first are the same for every depth.

    An exact search may order the first hits otherwise than an approximate one did: it only continues them.
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
    """The rows of hits that lead, in order, each with the rows that joined it."""
    if threshold is None or not len(kept):
        return {int(row): [] for row in kept}
    groups: dict[int, list[int]] = {}
    leading = leaders(collection.vectors(hits.ids[kept].tolist()), threshold)
    for row, leader in zip(kept.tolist(), kept[leading].tolist(), strict=True):
        if row == leader:
            groups[row] = []
        else:
            groups[leader].append(row)
    return groups


def _check(k: int, offset: int, cutoff: float | None, threshold: float | None) -> None:
    if k < 1:
        raise InputError(f"k {k}: expected 1 result at least")
    if offset < 0:
        raise InputError(f"offset {offset}: expected 0 for the first page, or more")
    if cutoff is not None and not 0 <= cutoff <= 1:
        raise InputError(f"cutoff {cutoff}: expected a confidence from 0 to 1")
    if threshold is not None and not 0 < threshold <= 1:
        raise InputError(f"group_duplicates {threshold}: expected a cosine above 0, at most 1")


def _result(item: Item, score: float, confidence: float, group: list[int]) -> Result:
    file = item.file
    return Result(
        item.id, full_path(file), score, confidence, item.start, item.end, file.kind, file.taken, tuple(group)
    )


def _line(number: int, result: Result) -> str:
    """Rank, confidence, score, id, then what is known of it, and the path."""
    parts = [f"{number:>4}.  {result.confidence:>4.0%}  {result.score:.3f}  {result.id:>7}"]
    if result.taken is not None:
        parts.append(_date(result.taken))
    parts.append(printable(result.path))
    if result.start is not None and result.end is not None:
        parts.append(f"{_clock(result.start)}–{_clock(result.end)}")
    if result.group:
        parts.append(f"and {len(result.group)} alike")
    return "  ".join(parts)


def _date(taken: float) -> str:
    try:
        return datetime.fromtimestamp(taken, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):  # a camera may claim any year
        return "date unknown"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(seconds, 0.0), 60)
    return f"{int(minutes)}:{rest:04.1f}"

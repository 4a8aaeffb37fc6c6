"""Search, browse and sample one generation.

Milvus proposes rows that are rescored here, as in the embedded collection: the dot product is summed in double
precision and rounded once, so that equal vectors have equal scores and the order (score descending, id ascending) does
not depend on ``k``. With an exact index more rows are requested until no row left out can tie with the last; with
an approximate one, a pool whose size changes with ``k`` in coarse steps only.

Milvus neither sorts nor groups. To find the newest of many files, a random sample of items estimates a cutoff time, and
all files are read only where that yields too few. Facets read small columns of every file.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.checks import check_page, read_hits, retry_on_stale_hits
from vse.index.filters import Filter
from vse.index.milvus.schema import (
    CHANCES,
    ITEM_COLUMNS,
    KEY,
    Row,
    caption_text,
    from_stored,
    item_of,
    literal,
    vectors_of,
)
from vse.index.milvus.tables import MAX_ROWS, Tables
from vse.index.scoring import exact_scores, rounding, smallest
from vse.index.types import NO_WORD_HITS, Facets, Item, Vectors, VectorTable, WordHits, folder_counts

SPARE = 16
"""Rows requested at first beyond ``k``."""
POOLS = ((256, 1024), (4096, MAX_ROWS))
"""(largest ``k``, proposals requested from an approximate index); larger ``k`` are always searched exactly."""
FEW = 5000
"""Up to this many items, all are read to find the newest."""
ASKED = 1000
"""Sample size for estimating the cutoff time."""
FIRST = "position == 0"
"""Matches each file once."""
NOTHING = "item < 0"
Found = tuple[list[Row], NDArray[np.float32]]
Key = tuple[float, int]
"""Sort key, smallest first: negative recency, then id."""


@dataclass(frozen=True)
class Search:
    """One search: the unit vector ``query (D,)``, how many results, a condition, and the columns to return."""

    table: VectorTable
    query: Vectors
    k: int
    condition: str | None
    columns: tuple[str, ...] = ()

    def fields(self) -> tuple[str, ...]:
        return ("vector", *self.columns)


def best(tables: Tables, search: Search, *, exact: bool) -> tuple[Found, bool]:
    """Return the best rows with their scores, and whether every vector was compared."""
    if tables.about.exact:
        return _from_exact_index(tables, search) or _scanned(tables, search), True
    pool = next((pool for max_k, pool in POOLS if search.k <= max_k), None)
    if not exact and pool is not None:
        proposed, _ = tables.nearest(search.table, search.query, pool, search.condition, search.fields())
        if len(proposed) >= search.k:
            return _ordered(search, proposed), False
    return _scanned(tables, search), True


def best_captions(tables: Tables, query: Vectors, k: int) -> list[tuple[str, int, float]]:
    """Return the best captions of files that exist; a killed writer may have left captions without one."""
    search = Search("captions", query, k, "encoded == true", ("text", "first"))
    while True:
        (rows, scores), _ = best(tables, search, exact=False)
        there = {int(row["item"]) for row in tables.query_in("items", "item", [row["first"] for row in rows], ())}
        found = [
            (caption_text(row), int(row["first"]), score)
            for row, score in zip(rows, scores.tolist(), strict=True)
            if int(row["first"]) in there
        ]
        if len(found) >= k or len(rows) < search.k:
            return found[:k]
        search = replace(search, k=2 * search.k)


def _from_exact_index(tables: Tables, search: Search) -> Found | None:
    """Return the best rows by Milvus's exact index; None when more rows tie than Milvus returns."""
    room = rounding(len(search.query))
    ask = search.k + SPARE
    while ask <= MAX_ROWS:
        proposed, complete = tables.nearest(search.table, search.query, ask, search.condition, search.fields())
        if complete or proposed[-1]["score"] < proposed[: search.k][-1]["score"] - room:
            return _ordered(search, proposed)
        ask *= 4
    return None


def _scanned(tables: Tables, search: Search) -> Found:
    """Compare the query with every vector here."""
    kept: list[Row] = []
    for rows in tables.windows(search.table, search.condition, search.fields()):
        kept, _ = _ordered(search, [*kept, *rows])
    return _ordered(search, kept)


def _ordered(search: Search, rows: list[Row]) -> Found:
    keys = np.array([row[KEY[search.table]] for row in rows], np.int64)
    scores = exact_scores(vectors_of(rows, len(search.query)), np.arange(len(rows)), search.query)
    order = np.lexsort((keys, -scores))[: search.k]
    return [rows[each] for each in order], scores[order]


def rows_of(tables: Tables, ids: Sequence[int], columns: Sequence[str]) -> list[Row]:
    """Return the items with these ids, in this order.

    Raises:
        InputError: One does not exist.
    """
    known = {int(row["item"]): row for row in tables.query_in("items", "item", ids, columns)}
    for each in ids:
        if int(each) not in known:
            raise InputError(f"no item has the id {each}: it was removed or replaced, search again")
    return [known[int(each)] for each in ids]


def sample(tables: Tables, count: int) -> list[int]:
    """Return the ids of at most ``count`` items, ascending: those whose ids have the smallest hashes."""
    total = tables.count("items")
    share = (count + 4 * math.sqrt(count) + 8) / max(total, 1)
    while True:
        condition = f"chance < {int(CHANCES * share)}" if share < 1 else "item >= 0"
        ids = np.sort(np.array([row["item"] for row in tables.query("items", condition, ())], np.int64))
        if len(ids) >= count or share >= 1:
            return [int(each) for each in ids[smallest(ids, count)]]
        share *= 2


def recent(tables: Tables, k: int, offset: int, where: Filter | None) -> list[Item]:
    """Return the first items of the files that pass, by :func:`vse.index.types.recency` descending, then by id.

    Holds at most ``k + offset`` keys in memory. Retries when an item of the page was replaced before it was read.
    """
    check_page(k, offset)
    passing = condition(where)
    only = FIRST if passing is None else f"{FIRST} and {passing}"

    def page() -> list[Item]:
        newest = _newest(tables, only, k + offset)[offset:]
        rows = read_hits(lambda ids: rows_of(tables, ids, ITEM_COLUMNS), [item for _, item in newest])
        return [item_of(row) for row in rows]

    return retry_on_stale_hits(page)


def _newest(tables: Tables, only: str, count: int) -> list[Key]:
    since = likely_since(tables, only, count)
    if since is not None:
        found = heapq.nsmallest(count, _keys(tables, f"{only} and recency >= {since!r}"))
        if len(found) == count:
            return found
    return heapq.nsmallest(count, _keys(tables, only))


def likely_since(tables: Tables, only: str, count: int) -> float | None:
    """Estimate a time since which there are ``count`` files that pass, and few more; None when all have to be read.

    Of n items, ``ASKED`` are sampled. On average m = count · ASKED / n of the wanted files are among them; hardly ever
    are more than m + 4 √m + 4 of them newer than the last one wanted.
    """
    total = tables.count("items")
    if total <= FEW or count >= total:
        return None
    mean = count * ASKED / total
    rank = math.ceil(mean + 4 * math.sqrt(mean) + 4)
    rows = tables.query("items", f"chance < {int(CHANCES * ASKED / total)} and {only}", ("recency",))
    newest = sorted((float(row["recency"]) for row in rows), reverse=True)
    return newest[rank] if rank < len(newest) else None


def _keys(tables: Tables, only: str) -> Iterator[Key]:
    for rows in tables.windows("items", only, ("item", "recency")):
        yield from ((-float(row["recency"]), int(row["item"])) for row in rows)


def facets(tables: Tables, folders: int) -> Facets:
    """Return counts over all files, in one pass."""
    kinds: Counter[str] = Counter()
    taken: list[float] = []

    def paths() -> Iterator[str]:
        for rows in tables.windows("items", FIRST, ("path", "kind", "taken")):
            kinds.update(row["kind"] for row in rows)
            taken.extend(row["taken"] for row in rows if row["taken"] is not None)
            yield from (from_stored(row["path"]) for row in rows)

    largest = folder_counts(paths(), folders)
    return Facets(kinds["image"], kinds["video"], min(taken, default=None), max(taken, default=None), largest)


def condition(where: Filter | None) -> str | None:
    """Return the expression over the columns of items; None when all pass. Null columns pass no comparison."""
    if where is None:
        return None
    if where.needs_words:
        raise InputError("name, camera, place and exact words cannot be filtered on Milvus: leave them out")
    parts: list[str] = []
    if where.root is not None:
        parts.append(f"root == {literal(where.root)}")
    if where.folder is not None:
        folder = where.folder
        parts += [f"path >= {literal(folder + '/')}", f"path < {literal(folder + '0')}"]  # "0" comes right after "/"
    if where.kind is not None:
        parts.append(f"kind == {literal(where.kind)}")
    if where.after is not None:
        parts.append(_compared("taken >=", where.after))
    if where.before is not None:
        parts.append(_compared("taken <", where.before))
    if where.within is not None:
        box = where.within
        parts += [_compared("latitude >=", box.south), _compared("latitude <=", box.north)]
        joined = "and" if box.west <= box.east else "or"  # a box across the date line is two boxes
        parts.append(f"({_compared('longitude >=', box.west)} {joined} {_compared('longitude <=', box.east)})")
    return " and ".join(parts) or None


def _compared(column: str, value: float) -> str:
    """Return a comparison with a number; Milvus has no literal for infinity, and nothing compares with NaN."""
    if math.isnan(value):
        return NOTHING
    largest = sys.float_info.max
    return f"{column} {min(max(float(value), -largest), largest)!r}"


class NoWords:
    """The methods of a collection that searches no words; a :class:`~vse.index.filters.Filter` on words is an error."""

    def word_counts(self, words: Sequence[str]) -> dict[str, int]:
        """Return 0 for each word."""
        return dict.fromkeys(words, 0)

    def search_words(
        self, words: Mapping[str, float], vector: Vectors, k: int, *, where: Filter | None = None
    ) -> WordHits:
        """Return no file."""
        return NO_WORD_HITS

    def items_with_words(self, ids: Sequence[int], texts: Sequence[str]) -> set[int]:
        """Return no item."""
        return set()

"""Browsing the files of a generation without a query: the newest files, and counts.

Milvus Lite neither sorts nor groups, so small columns of every file are read; changes between two windows of ids may or
may not be seen. Reads cost time per row returned. To find the newest of many files, a random sample of items therefore
estimates a cutoff time, and all files are read only where that yields too few.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from vse.index.checks import check_page, read_hits, retry_on_stale_hits
from vse.index.filters import Filter
from vse.index.milvus.schema import ITEM_COLUMNS, Row, State, from_stored, item_of
from vse.index.milvus.search import Reading, condition, ordered_ids
from vse.index.types import NO_WORD_HITS, Facets, Item, Vectors, WordHits, folder_counts, recency

FIRST = "position == 0"
"""Matches each file once."""
AGE = ("item", "taken", "modified")
FEW = 5000
"""Up to this many items, all are read."""
ASKED = 1000
"""Sample size for estimating the cutoff time."""
FAR = 9e9
"""Seconds since 1970 whose nanoseconds still fit in 64 bits."""
Key = tuple[float, int]
"""Sort key, smallest first: negative recency, then id."""


def recent(reading: Reading, state: State, k: int, offset: int, where: Filter | None) -> list[Item]:
    """Return the first items of the files that pass, by :func:`vse.index.types.recency` descending, then by id.

    Holds at most ``k + offset`` keys in memory. Retries when an item of the page was replaced before it was read.
    """
    check_page(k, offset)
    passing = condition(where)
    only = FIRST if passing is None else f"{FIRST} and {passing}"

    def page() -> list[Item]:
        newest = _newest(reading, state, only, k + offset)[offset:]
        rows = read_hits(lambda ids: reading.rows(ids, ITEM_COLUMNS), [item for _, item in newest])
        return [item_of(row) for row in rows]

    return retry_on_stale_hits(page)


def facets(reading: Reading, folders: int) -> Facets:
    """Return counts over all files, in one pass."""
    kinds: Counter[str] = Counter()
    taken: list[float] = []

    def paths() -> Iterator[str]:
        for rows in reading.windows(FIRST, ("item", "path", "kind", "taken")):
            kinds.update(row["kind"] for row in rows)
            taken.extend(row["taken"] for row in rows if row["taken"] is not None)
            yield from (from_stored(row["path"]) for row in rows)

    largest = folder_counts(paths(), folders)
    return Facets(kinds["image"], kinds["video"], min(taken, default=None), max(taken, default=None), largest)


def _newest(reading: Reading, state: State, only: str, count: int) -> list[Key]:
    since = likely_since(reading, state, only, count)
    if since is not None:
        later = (key for key in _keys(reading, f"{only} and {_not_before(since)}") if -key[0] >= since)
        found = heapq.nsmallest(count, later)
        if len(found) == count:
            return found
    return heapq.nsmallest(count, _keys(reading, only))


def likely_since(reading: Reading, state: State, only: str, count: int) -> float | None:
    """Estimate a time since which there are ``count`` files that pass, and few more; None when all have to be read.

    Of n ids, ``ASKED`` are sampled. On average m = count · ASKED / n of the wanted files are among them; hardly ever
    are more than m + 4 √m + 4 of them newer than the last one wanted.
    """
    ids = state.next_item - 1
    if ids <= FEW or count >= ids:
        return None
    mean = count * ASKED / ids
    rank = math.ceil(mean + 4 * math.sqrt(mean) + 4)
    if rank >= ASKED:
        return None
    known = reading.known(ordered_ids(state.next_item, ASKED), AGE, only)
    newest = sorted((-_key(row)[0] for row in known.values()), reverse=True)
    return newest[rank] if rank < len(newest) and abs(newest[rank]) < FAR else None


def _not_before(since: float) -> str:
    """Return the expression for files at least this new, and some slightly older ones, because times are rounded."""
    return f"(taken >= {since!r} or (taken is null and modified >= {math.floor(since * 1e9) - 10_000}))"


def _keys(reading: Reading, only: str) -> Iterator[Key]:
    for rows in reading.windows(only, AGE):
        yield from map(_key, rows)


def _key(row: Row) -> Key:
    return -recency(row["taken"], row["modified"]), int(row["item"])


class NoWords:
    """The methods of a collection that holds no words; a :class:`~vse.index.filters.Filter` on words is an error."""

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

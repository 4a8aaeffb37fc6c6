"""The items with the smallest hashes.

What Milvus returns costs by the row, also when only ids are asked for. Where most ids up to the highest are in use they
are therefore tried in the order of their hashes, which needs hardly more rows than are wanted; otherwise all are read.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from vse.index.collection import Vectors
from vse.index.milvus.reading import Reading
from vse.index.milvus.rows import Row
from vse.index.milvus.state import State
from vse.index.sampling import hashes, smallest

MOST_TRIED = 100_000
"""Ids that are tried rather than read."""
LEAST_TRIED = 64
BLOCK = 2**18
"""Ids whose hashes are computed together."""


def few_to_try(state: State, count: int) -> bool:
    """Whether trying ids is the better way to ``count`` items."""
    return count < state.items and count * state.next_item <= MOST_TRIED * state.items


def tried(reading: Reading, state: State, count: int) -> list[Row]:
    """At most ``count`` items with ``item`` and ``vector``, by id."""
    end = state.next_item
    order = ordered_ids(end, 2 * LEAST_TRIED + 2 * count * end // state.items)
    found: dict[int, Row] = {}
    start = 0
    while start < end - 1 and len(found) < count:
        if start >= len(order):
            order = ordered_ids(end, 2 * len(order))
        some = order[start : start + max(LEAST_TRIED, count - len(found))]
        known = reading.known(some, ("item", "vector"))
        found |= {each: known[each] for each in some if each in known}
        start += len(some)
    return [found[each] for each in sorted(list(found)[:count])]


def ordered_ids(end: int, most: int) -> list[int]:
    """The ``most`` ids from 1 to ``end`` - 1 with the smallest hashes, by hash; few ids are in memory at a time."""
    kept = np.empty(0, np.int64)
    for start in range(1, end, BLOCK):
        some = np.concatenate([kept, np.arange(start, min(start + BLOCK, end))])
        kept = some[smallest(some, most)]
    return [int(each) for each in kept[np.argsort(hashes(kept))]]


def chosen(blocks: Iterable[tuple[NDArray[np.int64], Vectors]], count: int, dimensions: int) -> Vectors:
    """Vectors of at most ``count`` items of all, which come by id."""
    ids, vectors = np.empty(0, np.int64), np.empty((0, dimensions), np.float32)
    for some, block in blocks:
        ids, vectors = np.concatenate([ids, some]), np.concatenate([vectors, block])
        best = smallest(ids, count)
        ids, vectors = ids[best], vectors[best]
    return vectors

"""Which candidates are right for which query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Positives:
    """The right candidates of each query in CSR form: those of query q are ``columns[starts[q]:starts[q+1]]``.

    A query may have any number of them; metrics skip a query without any. Within a query the candidates are distinct
    and ascending.
    """

    starts: Indices
    columns: Indices
    candidates: int

    @classmethod
    def from_pairs(cls, queries: Any, candidates: Any, shape: tuple[int, int]) -> Positives:
        """Build from pairs (query, candidate) in any order; duplicates count once."""
        rows, columns = indices("query", queries, shape[0]), indices("candidate", candidates, shape[1])
        if len(rows) != len(columns):
            raise InputError(f"{len(rows)} queries and {len(columns)} candidates do not make pairs")
        flat = np.unique(rows * shape[1] + columns)
        rows, columns = flat // max(1, shape[1]), flat % max(1, shape[1])
        counts = np.bincount(rows, minlength=shape[0])
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return cls(starts, columns.astype(np.int64), shape[1])

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]], candidates: int) -> Positives:
        """Build from one list of candidates for each query."""
        queries = [query for query, found in enumerate(lists) for _ in found]
        return cls.from_pairs(queries, [c for found in lists for c in found], (len(lists), candidates))

    @property
    def queries(self) -> int:
        """The number of queries."""
        return len(self.starts) - 1

    @property
    def counts(self) -> Indices:
        """How many right candidates each query has."""
        return np.diff(self.starts)

    @property
    def rows(self) -> Indices:
        """The query of each entry of ``columns``."""
        return np.repeat(np.arange(self.queries), self.counts)

    @property
    def T(self) -> Positives:
        """The transposed pairs: candidates as queries."""
        return Positives.from_pairs(self.columns, self.rows, (self.candidates, self.queries))

    def of(self, query: int) -> Indices:
        """Return the right candidates of one query."""
        return self.columns[self.starts[query] : self.starts[query + 1]]

    def select(self, queries: Indices, candidates: Indices) -> Positives:
        """Return the pairs of some queries and candidates, renumbered."""
        place = np.full(self.candidates, -1, dtype=np.int64)
        place[candidates] = np.arange(len(candidates))
        lists = [place[self.of(int(query))] for query in queries]
        return Positives.from_lists([found[found >= 0].tolist() for found in lists], len(candidates))


def text_positives(text_to_image: Any, images: int) -> Positives:
    """Return the right image of each text: ``text_to_image[j]`` is the row of the image that text j describes."""
    owners = indices("text_to_image", text_to_image, images)
    return Positives.from_pairs(np.arange(len(owners)), owners, (len(owners), images))


def distinct_sentences(
    captions: Sequence[str], caption_to_image: Any, images: int
) -> tuple[tuple[str, ...], Positives]:
    """Merge equal captions: a sentence that several images or videos share is right for each of them.

    Returns:
        The sentences in order of first occurrence, and the right images of each (``.T`` for the right sentences of
        each image).

    >>> sentences, images = distinct_sentences(["a man", "a dog", "a man"], [0, 1, 2], 3)
    >>> sentences, images.of(0).tolist()
    (('a man', 'a dog'), [0, 2])
    """
    owners = indices("caption_to_image", caption_to_image, images)
    if len(owners) != len(captions):
        raise InputError(f"caption_to_image has {len(owners)} entries for {len(captions)} captions")
    numbers: dict[str, int] = {}
    rows = [numbers.setdefault(caption, len(numbers)) for caption in captions]
    return tuple(numbers), Positives.from_pairs(np.array(rows, dtype=np.int64), owners, (len(numbers), images))


def indices(what: str, values: Any, limit: int) -> Indices:
    """Return ``values`` as int64; raise InputError unless all are from 0 to ``limit - 1``."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        raise InputError(f"{what} must be whole numbers in one dimension, got {array.dtype} of shape {array.shape}")
    array = array.astype(np.int64)
    wrong = np.flatnonzero((array < 0) | (array >= limit))
    if wrong.size:
        raise InputError(f"{what}[{int(wrong[0])}] is {int(array[wrong[0]])}: expected 0 to {limit - 1}")
    return array

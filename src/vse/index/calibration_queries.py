"""Queries of which it is known what they mean: captions, asked of collections with and without their picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.index.confidence import SAMPLE, Background, Floats, spread_of_query

if TYPE_CHECKING:
    from vse.index.collection import Vectors

REMOVED = 1000
"""So many pictures are removed for each size, one at a time: more pictures change the coefficients little."""
CAPTIONS = 10
"""So many captions of a picture are asked."""


@dataclass(frozen=True)
class Answers:
    """The best results of ``r`` queries.

    ``features (r, 3)`` are those of :mod:`vse.index.confidence`, ``scores (r,)`` the cosines. ``present (r,)`` says
    whether the query's picture was in the collection, ``right (r,)`` whether it is this result, ``sizes (r,)`` how
    large the collection was before one picture was removed.
    """

    features: Floats
    scores: Floats
    present: NDArray[np.bool_]
    right: NDArray[np.bool_]
    sizes: NDArray[np.int64]

    def of(self, rows: NDArray[Any]) -> Answers:
        """Some of them, by number or by a mask."""
        return Answers(*(getattr(self, field.name)[rows] for field in fields(self)))


def joined(parts: Sequence[Answers]) -> Answers:
    """All of them, in order."""
    return Answers(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Answers)))


def captions_of(owners: NDArray[np.int64], pictures: int) -> list[NDArray[np.int64]]:
    """The rows of each picture's captions, in order, :data:`CAPTIONS` at most."""
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(1, pictures))
    return [rows[:CAPTIONS] for rows in np.split(order, starts)]


def ask(
    images: Vectors, texts: Vectors, owners: NDArray[np.int64], size: int, *, seed: int = 0, more: Vectors | None = None
) -> Answers:
    """Captions of random collections of ``size`` pictures, of which ``more`` are only there to be passed over.

    ``images (I, D)`` and ``texts (C, D)`` are unit vectors, ``owners[c]`` is the row of caption c's picture. One
    picture at a time is removed; its captions are asked, and those of the next picture, which is there. Of the pictures
    that make whole collections, :data:`REMOVED` at most are removed.
    """
    own = size if more is None else size - len(more)
    captions = captions_of(owners, len(images))
    shuffled = np.random.default_rng([size, seed]).permutation(len(images))
    parts = []
    for number in range(min(len(images) // own, max(1, REMOVED // own))):
        block = shuffled[number * own : (number + 1) * own]
        for place in range(min(own, REMOVED)):
            rest = np.delete(block, place)
            vectors = images[rest] if more is None else np.concatenate([images[rest], more])
            asked = block[[place, (place + 1) % own]]
            rows = [captions[picture] for picture in asked]
            targets = np.repeat(asked, [len(each) for each in rows])
            parts.append(_best(vectors, rest, texts[np.concatenate(rows)], targets, asked[0], size))
    return joined(parts)


def _best(
    vectors: Vectors, pictures: NDArray[np.int64], texts: Vectors, targets: NDArray[np.int64], removed: int, size: int
) -> Answers:
    """The best result of each text among ``vectors (n, D)``, of which the first are these pictures."""
    background = Background(vectors[:SAMPLE], len(vectors), 1)
    scores = vectors @ texts.T
    best = scores.argmax(axis=0)
    top = scores[best, np.arange(len(texts))].astype(np.float64)
    features = [
        background.features_among(spread_of_query(scores[:SAMPLE, each]), top[each : each + 1])[0]
        for each in range(len(texts))
    ]
    names = np.concatenate([pictures, np.full(len(vectors) - len(pictures), -1)])
    return Answers(
        np.array(features).reshape(-1, 3),
        top,
        targets != removed,
        names[best] == targets,
        np.full(len(texts), size),
    )

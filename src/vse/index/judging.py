"""Judge hits: their confidence and relevance, and which of them the cut-offs and the excluded words leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.checks import read_hits
from vse.index.confidence import Background, Floats, confidences
from vse.index.query import QueryVector
from vse.index.relevance import present_from, relevances
from vse.index.types import Collection, Hits, Vectors
from vse.models.coefficients import Coefficients, RelevanceCoefficients

EXCLUDED_FROM = 0.03
"""Results with this relevance to an excluded text are dropped; low, for it is seldom the main subject of an image."""
READ = 256
"""Hits that every search reads, if there are so many."""
NO_CONFIDENCE = (
    "a minimum confidence was given, but results have none: the collection's model has no coefficients; "
    "'vse calibrate MODEL --data DIR' fits them"
)
NO_RELEVANCE = NO_CONFIDENCE.replace("confidence", "relevance")


class Conditions(Protocol):
    """The minima of a search, and the ids that it leaves out."""

    @property
    def cutoff(self) -> float | None: ...

    @property
    def min_relevance(self) -> float | None: ...

    @property
    def left_out(self) -> tuple[int, ...]: ...


def check_cutoff(
    cutoff: float | None,
    coefficients: Coefficients | None,
    min_relevance: float | None = None,
    relevance: RelevanceCoefficients | None = None,
) -> None:
    """Raise :class:`InputError` if a minimum is given for something that results do not have."""
    if cutoff is not None and coefficients is None:
        raise InputError(NO_CONFIDENCE)
    if min_relevance is not None and relevance is None:
        raise InputError(NO_RELEVANCE)


def check_relevance(relevance: RelevanceCoefficients | None, vector: Vectors) -> None:
    """Raise :class:`InputError` if coefficients belong to a model of another width."""
    if relevance is not None and relevance.dimensions != len(vector):
        raise InputError(
            f"relevance coefficients of {relevance.dimensions} dimensions ({relevance.source[:60]}), but embeddings "
            f"have {len(vector)}: 'vse calibrate' fits them to the model"
        )


def relevant(relevance: Floats, minimum: float | None, items: int) -> NDArray[np.bool_]:
    """Return which of the best results of ``items`` match: those from ``minimum``, if the best one is good enough.

    A minimum of 0 or None keeps everything.
    """
    if not minimum or not len(relevance):
        return np.ones(len(relevance), bool)
    return (relevance >= minimum) & bool(relevance.max() >= present_from(items))


@dataclass(frozen=True)
class Judged:
    """Probabilities of hits, and which of them the cut-offs and the excluded words leave.

    Unless something is excluded, ``enough`` falls with the rank: once a hit misses a minimum, all later ones do.
    """

    confidence: Floats | None
    relevance: Floats | None
    confident: NDArray[np.bool_]
    relevant: NDArray[np.bool_]
    allowed: NDArray[np.bool_]

    @property
    def enough(self) -> NDArray[np.bool_]:
        return self.confident & self.relevant


@dataclass(frozen=True)
class Judge:
    """What turns the scores of one query into probabilities."""

    collection: Collection
    query: QueryVector
    background: Background
    coefficients: Coefficients | None
    relevance: RelevanceCoefficients | None

    def judged(self, hits: Hits, conditions: Conditions) -> Judged:
        """Return the probabilities of hits, and which of them fulfil the conditions."""
        confidence = relevance = None
        everything = np.ones(len(hits.ids), bool)
        if self.coefficients is not None:
            confidence = confidences(self.background, self.query.vector, hits.scores, self.coefficients)
        if self.relevance is not None and self.query.words_only:
            relevance = self._relevances(self.relevance, hits)
        return Judged(
            confidence,
            relevance,
            everything if confidence is None or conditions.cutoff is None else confidence >= conditions.cutoff,
            everything if relevance is None else relevant(relevance, conditions.min_relevance, self._searched(hits)),
            everything & ~self.excluded(hits) & ~np.isin(hits.ids, np.array(conditions.left_out, np.int64)),
        )

    def _searched(self, hits: Hits) -> int:
        """Return how many items were candidates; those that pass a filter are known only if all were read."""
        return len(hits.ids) if len(hits.ids) < READ else self.background.items

    def _relevances(self, coefficients: RelevanceCoefficients, hits: Hits) -> Floats:
        """Return the relevance of hits to what is wanted; what is excluded moves the query away from it."""
        wanted, scores = self.query.wanted, hits.scores
        if wanted is None or not len(hits.ids):
            return relevances(coefficients, self.query.vector, scores)
        return relevances(coefficients, wanted, read_hits(self.collection.vectors, hits.ids.tolist()) @ wanted)

    def excluded(self, hits: Hits) -> NDArray[np.bool_]:
        """Return which hits show something that is excluded, by their words or by their relevance to it."""
        named = self.collection.items_with_words(hits.ids.tolist(), self.query.unwanted) if self.query.unwanted else ()
        shown = np.isin(hits.ids, np.array(sorted(named), np.int64))
        if self.relevance is None or self.query.excluded is None or not len(hits.ids):
            return shown
        vectors = read_hits(self.collection.vectors, hits.ids.tolist())
        for unwanted in self.query.excluded:
            shown |= relevances(self.relevance, unwanted, vectors @ unwanted) >= EXCLUDED_FROM
        return shown

"""How likely a result fits the query, whatever else is in the collection.

Confidence (:mod:`vse.index.confidence`) asks for the one image that was meant: of forty right images each is unlikely
to be that one. Relevance asks of each result alone whether it shows what the query says, so neither the number of other
results that fit nor the size of the collection may count. It compares the query with a fixed set of reference images,
whose embeddings the model's folder carries. Let

    c       cosine of the result with the query
    m, s    mean and standard deviation of the query's cosines with the reference images

Then relevance is p with

    ln(p / (1 - p)) = a + b c + d m + e ln s

A query of one word has lower cosines with everything than a whole sentence; m and s tell the two apart. For one query
relevance rises with the score (b ≥ 0), and the same image has the same relevance in every collection. The coefficients
come from :func:`vse.index.relevance_fit.fit_relevance` and are stored in ``relevance.json`` in the model's folder; a
model without the file has no relevance. They were fitted to texts, so a query with images or items has none either.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse.models.coefficients import Floats, RelevanceCoefficients

Grade = Literal["strong", "good", "weak"]
STRONG, GOOD, WEAK = 0.5, 0.25, 0.1
"""Smallest relevance of each grade. Below weak, a result counts as not matching."""
SMALLEST_SPREAD = 1e-6
"""A smaller spread has no meaningful logarithm."""


def grade_of(relevance: float | None) -> Grade | None:
    """Return the grade of a relevance; None below weak, and if there is no relevance."""
    if relevance is None or relevance < WEAK:
        return None
    return "strong" if relevance >= STRONG else "good" if relevance >= GOOD else "weak"


def present_from(items: int) -> float:
    """Return the relevance that the best of ``items`` must reach, or none of them counts as matching.

    A query for something that is not there finds weak results, too, and the best of more items is higher by chance.
    """
    return min(STRONG, 0.02 * items**0.5)


def relevance_features(reference: NDArray[np.float32], vector: NDArray[np.float32], scores: NDArray[Any]) -> Floats:
    """Return the feature rows (c, m, ln s) ``(r, 3)`` of results.

    Args:
        reference: Embeddings of the reference images ``(R, D)``.
        vector: Embedding of the query ``(D,)``.
        scores: Cosines of the results with the query ``(r,)``.
    """
    cosines = (reference @ vector).astype(np.float64)
    mean, spread = float(cosines.mean()), max(float(cosines.std()), SMALLEST_SPREAD)
    column = np.ones(len(scores))
    return np.stack([np.asarray(scores, np.float64), mean * column, np.log(spread) * column], axis=1)


def relevances(coefficients: RelevanceCoefficients, vector: NDArray[np.float32], scores: NDArray[Any]) -> Floats:
    """Return the relevance ``(r,)`` of results with these ``scores (r,)`` for the query ``vector (D,)``."""
    return coefficients.probability(relevance_features(coefficients.vectors, vector, scores))

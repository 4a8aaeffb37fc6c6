"""Fit relevance to one model, on captioned images that it was not trained on.

Which images fit a query is judged from captions, so one query has many right images. Two kinds of query are asked:

- categories: words and pairs of words that at least two captions of an image agree on, for at least one image in 100.
  An image fits if two of its captions contain the words, it does not if none does; with one, nothing is known.
- captions: an image fits if it is the caption's own, or if its captions contain all content words of the query; if
  they contain half of them or more, nothing is known.

Both kinds are asked equally often, of all images, whether or not any of them fits. The images are divided into two
halves: the coefficients are fitted on one, and the figures of the report are measured on the other.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import write_json
from vse.errors import InputError
from vse.index.calibration import FEWEST, area, bins, calibration_error, fit_logistic, source_of
from vse.index.judging import relevant
from vse.index.relevance import WEAK, relevance_features
from vse.index.types import Vectors
from vse.models.coefficients import (
    RELEVANCE_FILE,
    Floats,
    RelevanceCoefficients,
    decode_reference,
    encode_reference,
    logistic,
)

if TYPE_CHECKING:
    from vse.evaluation.embeddings import Embeddings
    from vse.index.query import Model

AGREEING = 2
"""Captions of one image that must contain a category."""
SHARED, SHARE = 2, 0.01
"""Images that a category must have, in number and as a share of all: rarer words are seldom what an image shows."""
UNCLEAR = 0.5
"""Share of a caption's content words from which other images may fit it."""
REFERENCES = 256
MOST_IMAGES, MOST_QUERIES = 2000, 600
"""More change the coefficients little."""
SHORTEST = 3
"""Letters of a content word, at least."""
_NO_CONTENT = """
the with and are was being been for from its that this these those there their his her hers she they them him out
into onto over under near next front back behind top bottom side left right middle center inside outside around
across through along off above below between against beside while which who whose what where when one two three
four five six several some many few lot couple bunch group pair set various other another each different multiple
both all not very sitting standing holding looking laying lying sit stand hold look lay lie wearing wear filled
covered showing shown placed parked going getting has have having had does made make making taking take can about
like just large small big little long short tall old young new close view picture photo photograph image shot scene
piece part area thing full white black red blue green yellow brown gray grey orange pink purple colorful bright dark
high low someone something doing giant cut open lit half end way line row daytime night day time riding playing
walking flying eating using driving carrying watching running moving reading trying coming preparing ready posing
"""
NO_CONTENT = frozenset(_NO_CONTENT.split())
"""Words that do not name something to search for."""

Encode = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True)
class Judgements:
    """Which of ``I`` images fit which of ``Q`` queries; the first ``categories`` queries are categories.

    Attributes:
        texts: The queries.
        relevant: Whether an image fits ``(Q, I)``.
        unclear: Whether that is unknown ``(Q, I)``.
    """

    texts: tuple[str, ...]
    relevant: NDArray[np.bool_]
    unclear: NDArray[np.bool_]
    categories: int

    def of(self, images: NDArray[np.int64]) -> Judgements:
        """Return the judgements of a subset of the images."""
        return replace(self, relevant=self.relevant[:, images], unclear=self.unclear[:, images])


def judge_captions(
    captions: Sequence[str], owners: NDArray[np.int64], images: int, *, most: int = MOST_QUERIES, seed: int = 0
) -> Judgements:
    """Derive queries and their relevant images from captions, as the module describes.

    Args:
        captions: The captions.
        owners: Row of each caption's image ``(C,)``.
        images: Number of images.
        most: Queries of each kind, at most.
        seed: Seed of the random choice among more.
    """
    random = np.random.default_rng(seed)
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    mentions: dict[str, Counter[int]] = defaultdict(Counter)
    contents = []
    for caption, owner in zip(captions, owners.tolist(), strict=True):
        found = _terms(caption)
        for term, spelling in found.items():
            spellings[term][spelling] += 1
            mentions[term][owner] += 1
        contents.append([term for term in found if " " not in term])
    least = max(SHARED, int(SHARE * images))
    shared = [
        term
        for term, counted in sorted(mentions.items())
        if sum(number >= AGREEING for number in counted.values()) >= least
    ]
    categories = [shared[each] for each in np.sort(random.permutation(len(shared))[:most])]
    told = np.array([each for each, words in enumerate(contents) if words], np.int64)
    asked = np.sort(random.permutation(told)[: min(most, len(categories) or most)])
    numbers = np.zeros((len(categories), images), np.int64)
    for row, term in enumerate(categories):
        numbers[row, list(mentions[term])] = list(mentions[term].values())
    overlap = _overlaps([contents[each] for each in asked], mentions, images)
    own = np.zeros_like(overlap, bool)
    own[np.arange(len(asked)), owners[asked]] = True
    fits = own | (overlap >= 1 - 1e-6)
    return Judgements(
        tuple(spellings[term].most_common(1)[0][0] for term in categories) + tuple(captions[each] for each in asked),
        np.concatenate([numbers >= AGREEING, fits]),
        np.concatenate([(numbers > 0) & (numbers < AGREEING), (overlap >= UNCLEAR) & ~fits]),
        len(categories),
    )


def _terms(caption: str) -> dict[str, str]:
    """Return the content words of a caption and pairs of neighbouring ones, in the singular, with their spelling."""
    words = [(_singular(word), word) for word in re.findall(r"[^\W\d_]+", caption.lower())]
    content = [len(form) >= SHORTEST and not {form, word} & NO_CONTENT for form, word in words]
    found = {form: word for (form, word), named in zip(words, content, strict=True) if named}
    for (first, second), named in zip(pairwise(words), pairwise(content), strict=True):
        if all(named):
            found[f"{first[0]} {second[0]}"] = f"{first[1]} {second[1]}"
    return found


def _singular(word: str) -> str:
    """Fold the regular English plural; the form need not be a word, it only has to be the same for both."""
    if len(word) > 3 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _overlaps(queries: list[list[str]], mentions: dict[str, Counter[int]], images: int) -> Floats:
    """Return the share of each query's words that occur in any caption of each image ``(Q, I)``."""
    shares = np.zeros((len(queries), images))
    for row, words in enumerate(queries):
        for word in words:
            shares[row, list(mentions[word])] += 1 / len(words)
    return shares


@dataclass(frozen=True)
class Quality:
    """How well probabilities of pairs agree with the judgements.

    Attributes:
        area: Area under the ROC curve.
        error: Expected calibration error over all pairs, nearly all of which do not fit.
        shown_error: The same over pairs from :data:`~vse.index.relevance.WEAK`, those that a search shows.
        bins: (mean probability, share that fits, count) of ten equal bins of those.
    """

    area: float
    error: float
    shown_error: float
    bins: list[tuple[float, float, int]]

    @classmethod
    def of(cls, guesses: Floats, labels: NDArray[np.bool_]) -> Quality:
        """Compare probabilities with labels ``(r,)``."""
        shown = guesses >= WEAK
        some = bool(shown.any())
        return cls(
            area(guesses, labels),
            calibration_error(guesses, labels),
            calibration_error(guesses[shown], labels[shown]) if some else 0.0,
            bins(guesses[shown], labels[shown]) if some else [],
        )


@dataclass(frozen=True)
class RelevanceReport:
    """Coefficients of relevance, and their quality on the half of the images that they were not fitted on.

    Attributes:
        quality: Quality of the coefficients.
        cosine: Quality of a sigmoid of the cosine, fitted on the same pairs, for comparison.
        precision: Share of fitting images among those that the default cut-off leaves, mean over categories.
        recall: Share of fitting images that the default cut-off leaves, mean over categories.
    """

    coefficients: RelevanceCoefficients
    pictures: int
    queries: int
    categories: int
    pairs: int
    quality: Quality
    cosine: Quality
    precision: float
    recall: float
    written: Path | None = None

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        plain["coefficients"].pop("reference")
        plain["coefficients"]["references"] = len(self.coefficients.vectors)
        return {**plain, "written": None if self.written is None else str(self.written)}


def fit_relevance(
    images: Vectors,
    captions: Sequence[str],
    owners: NDArray[np.int64],
    encode: Encode,
    *,
    source: str,
    seed: int = 0,
) -> RelevanceReport:
    """Fit relevance to the model that produced these embeddings.

    Args:
        images: Unit embeddings ``(I, D)``.
        captions: Captions of the images.
        owners: Row of each caption's image ``(C,)``.
        encode: Returns the unit embeddings ``(Q, D)`` of queries.
        source: Describes the data, for the record.
        seed: Seed of the halves, of the reference images and of the captions asked.

    Returns:
        The coefficients, and their quality on the other half of the images.

    Raises:
        InputError: There are too few images, or no two of them differ in what they show.
    """
    if len(images) < FEWEST:
        raise InputError(f"{len(images)} images: expected at least {FEWEST} to calibrate, better a few hundred")
    order = np.random.default_rng(seed).permutation(len(images))[:MOST_IMAGES]
    judged = judge_captions(captions, owners, len(images), seed=seed)
    texts = encode(judged.texts)
    fitted, held = np.array_split(order, 2)
    reference = encode_reference(images[fitted[:REFERENCES]])
    vectors = decode_reference(reference, images.shape[1])  # rounded as it will be read
    features, labels = _pairs(vectors, texts, images[fitted], judged.of(fitted))
    if labels.all() or not labels.any():
        raise InputError(f"{source}: captions fit every image or none, so nothing can be fitted: use other data")
    intercept, cosine, mean, spread = map(float, fit_logistic(features, labels, rising=[0]))
    coefficients = RelevanceCoefficients(
        intercept, cosine, mean, spread, dimensions=images.shape[1], reference=reference, source=source
    )
    offset, slope = fit_logistic(features[:, :1], labels, rising=[0])
    others, found = _pairs(vectors, texts, images[held], judged.of(held))
    precision, recall = _default_cutoff(coefficients, texts[: judged.categories], images[held], judged.of(held))
    return RelevanceReport(
        coefficients=coefficients,
        pictures=len(order),
        queries=len(judged.texts),
        categories=judged.categories,
        pairs=len(found),
        quality=Quality.of(coefficients.probability(others), found),
        cosine=Quality.of(logistic(offset + slope * others[:, 0]), found),
        precision=precision,
        recall=recall,
    )


def fit_embeddings(found: Embeddings, model: Model) -> RelevanceReport:
    """Fit relevance on the embeddings of a split by ``model``; the recorded source is that of confidence."""

    def encode(texts: Sequence[str]) -> Vectors:
        return model.encode_texts(texts, unknown="allow")

    return fit_relevance(found.images, found.captions, found.text_to_image, encode, source=source_of(found))


def write_relevance(folder: Path, coefficients: RelevanceCoefficients) -> Path:
    """Write coefficients atomically into the folder of their model, and return the path."""
    write_json(folder / RELEVANCE_FILE, asdict(coefficients))
    return folder / RELEVANCE_FILE


def _pairs(reference: Vectors, texts: Vectors, images: Vectors, judged: Judgements) -> tuple[Floats, NDArray[np.bool_]]:
    """Return features ``(r, 3)`` and labels ``(r,)`` of all pairs that were judged."""
    features = [
        relevance_features(reference, vector, images[~unclear] @ vector)
        for vector, unclear in zip(texts, judged.unclear, strict=True)
    ]
    labels = [fits[~unclear] for fits, unclear in zip(judged.relevant, judged.unclear, strict=True)]
    return np.concatenate(features), np.concatenate(labels)


def _default_cutoff(
    coefficients: RelevanceCoefficients, texts: Vectors, images: Vectors, judged: Judgements
) -> tuple[float, float]:
    """Return mean precision and recall of what a search shows for categories that some of the images fit."""
    precisions, recalls = [], []
    for vector, fits, unclear in zip(texts, judged.relevant, judged.unclear, strict=False):
        guesses = coefficients.probability(relevance_features(coefficients.vectors, vector, images @ vector))
        shown = relevant(guesses, WEAK, len(images))
        if fits.any():
            recalls.append(float(shown[fits].mean()))
            if (shown & ~unclear).any():
                precisions.append(float(fits[shown & ~unclear].mean()))
    return float(np.mean(precisions or [0.0])), float(np.mean(recalls or [0.0]))

"""Fuse the ranking by words with the ranking by embeddings.

Words find what has a name: captions, titles, keywords, places, file and folder names, recognised text. Let

    w_1 … w_n   words of the query that say something (:func:`vse.index.words.content_words`)
    N, df       files of the collection, and how many of them hold a word
    idf         ln(1 + (N − df + ½) / (df + ½)), as in BM25; half of its largest value for a word in no file, which
                probably describes the image

A word in more than :data:`FREQUENT_SHARE` of the files is left out: it tells nothing about one of them. The share of a
file is the part of the weight Σ idf that it holds, between 0 and 1, with less for folders and long texts
(:data:`vse.index.words.RANKED`). That is BM25 without term frequency and length, which mean little in texts of a few
words; files with equal shares are ordered by their cosine. Files below :data:`vse.index.words.MIN_SHARE` do not count.

The two rankings are fused by reciprocal rank. With v the rank by embeddings among the first D results, and r the rank
by words among the first :data:`WORD_FILES` files,

    points = 1 / (60 + v) + share³ / (20 + r)

where a missing rank adds nothing. The first forty files that hold every word come before all results by embedding
alone; one that holds a part moves up among them. Ties are ordered by cosine, then by id. Results after the first D
follow in the order of their embeddings. D is fixed, so pages are consistent; without word hits the order is that of the
embeddings.

A video has one share, which counts for its best moment. A text of words that the model does not know, such as a name,
is searched by words alone if files hold one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.index.query import QueryVector, UnknownWordsError, encode_query
from vse.index.types import NO_WORD_HITS, Hits
from vse.index.words import content_words, matched_fields, texts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vse.index.filters import Filter
    from vse.index.query import Model, Query
    from vse.index.types import Collection, MediaFile, WordHits

RANK_CONSTANT = 60
WORD_CONSTANT = 20
"""Smaller than that of the embeddings: the best matches by words are meant by name, the rest less and less."""
WORD_FILES = 256
FREQUENT_SHARE, FREQUENT_FILES, FEW_FILES = 0.25, 20_000, 10
"""A word is frequent in more than this share of the files or in more than so many, but not in a few."""
UNKNOWN_WEIGHT = 0.5
SURE_SHARE = 0.5
"""From this share on, a file is a result whatever its relevance and confidence."""


def word_weights(collection: Collection, texts: Sequence[str]) -> dict[str, float]:
    """Return the weights of the words of a query, which add up to 1; none if no file holds one of them."""
    words = content_words("\n".join(texts))
    counts = collection.word_counts(words) if words else {}
    if not any(counts.values()):
        return {}
    files = collection.info().files
    most = min(FREQUENT_FILES, max(FEW_FILES, FREQUENT_SHARE * files))
    counts = {word: count for word, count in counts.items() if count <= most}
    if not any(counts.values()):
        return {}
    weights = {word: _idf(files, count) * (1.0 if count else UNKNOWN_WEIGHT) for word, count in counts.items()}
    total = math.fsum(weights.values())
    return {word: weight / total for word, weight in weights.items()}


def _idf(files: int, count: int) -> float:
    return math.log1p((max(files, count) - count + 0.5) / (count + 0.5))


@dataclass(frozen=True)
class Ranking:
    """Results of both kinds.

    Attributes:
        hits: Results by embedding, then those by words alone, in the order of their shares.
        order: Rows of ``hits``, best first.
        sure: Which of ``hits`` match by words so well that no minimum applies to them.
        by_embedding: Number of results by embedding.
    """

    hits: Hits
    order: NDArray[np.int64]
    sure: NDArray[np.bool_]
    by_embedding: int


@dataclass(frozen=True)
class WordSearch:
    """The files of one query by words, found once and fused with any number of hits.

    Attributes:
        weights: Words of the query, from :func:`word_weights`.
        hits: Files that hold them.
        phrases: Exact words of the filter, which every result holds.
    """

    weights: dict[str, float] = field(default_factory=dict)
    hits: WordHits = NO_WORD_HITS
    phrases: tuple[str, ...] = ()

    def matched(self, file: MediaFile) -> tuple[str, ...]:
        """Return the fields of a file that hold the words or phrases."""
        if not (self.weights or self.phrases):
            return ()
        return matched_fields(texts_of(file), self.weights, self.phrases)

    def ranked(self, hits: Hits, depth: int) -> Ranking:
        """Return the fused ranking of hits by embedding, of which the first ``depth`` have a rank."""
        count, found = len(hits.ids), self.hits
        if not len(found.ids):
            return Ranking(hits, np.arange(count), np.zeros(count, bool), count)
        new = ~np.isin(found.ids, hits.ids)
        ids, scores = np.concatenate([hits.ids, found.ids[new]]), np.concatenate([hits.scores, found.scores[new]])
        row_of = {each: row for row, each in enumerate(ids.tolist())}
        rows = np.array([row_of[each] for each in found.ids.tolist()], np.int64)
        points = np.zeros(len(ids))
        head = min(depth, count)
        points[:head] = 1 / (RANK_CONSTANT + np.arange(1, head + 1))
        points[rows] += found.shares**3 / (WORD_CONSTANT + np.arange(1, len(rows) + 1))
        first = np.flatnonzero(points)
        order = first[np.lexsort((ids[first], -scores[first], -points[first]))]
        sure = np.zeros(len(ids), bool)
        sure[rows] = found.shares >= SURE_SHARE
        return Ranking(Hits(ids, scores, hits.exact), np.concatenate([order, np.flatnonzero(points == 0)]), sure, count)


def search_words(collection: Collection, query: QueryVector, where: Filter | None) -> WordSearch:
    """Return the files that hold the words of a query; a query with images or items is about these, not about words."""
    phrases = () if where is None else where.words
    weights = word_weights(collection, query.texts) if query.words_only else {}
    if not weights:
        return WordSearch(phrases=phrases)
    hits = collection.search_words(weights, query.vector, WORD_FILES, where=where)
    if query.words_alone:
        hits = replace(hits, scores=np.zeros_like(hits.scores))
    return WordSearch(weights, hits, phrases)


def encode_known(query: Query, model: Model | None, collection: Collection) -> QueryVector:
    """Encode a query without the texts whose words only files know, not the model; these are searched by words.

    Raises:
        UnknownWordsError: Neither the model nor a file knows a word of a text.
    """
    try:
        return encode_query(query, model, collection)
    except UnknownWordsError as error:
        text = error.text
        if not any(collection.word_counts(content_words(text)).values()):
            raise
        unknown = error.words
    wanted = [(each, weight) for each, weight in _weighted(query) if each != text]
    about: dict[str, Any] = {"text": str(query), "texts": query.texts, "unwanted": query.exclude}
    if not (wanted or query.images or query.like):
        direction = np.eye(1, collection.info().dimensions, dtype=np.float32)[0]
        return QueryVector(direction, unknown=unknown, words_only=True, words_alone=True, **about)
    weights = None
    if query.weights is not None:
        weights = (*(weight for _, weight in wanted), *query.weights[len(query.texts) :])
    rest = replace(
        query,
        texts=tuple(each for each, _ in wanted),
        exclude=tuple(each for each in query.exclude if each != text),
        weights=weights,
    )
    encoded = encode_known(rest, model, collection)
    return replace(encoded, unknown=tuple(dict.fromkeys((*unknown, *encoded.unknown))), **about)


def _weighted(query: Query) -> list[tuple[str, float]]:
    weights = query.weights or (1.0,) * len(query.texts)
    return list(zip(query.texts, weights, strict=False))

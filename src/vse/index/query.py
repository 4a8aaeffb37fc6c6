"""Queries: texts, images and items that are wanted or excluded, combined into one unit embedding."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from vse.errors import InputError
from vse.index.language import query_notes
from vse.index.types import Collection, Vectors

if TYPE_CHECKING:
    from vse.inputs.images import ImageSource
    from vse.inputs.tokenizer import TextTokenizer
    from vse.models.protocols import EmbeddingModel

    Model: TypeAlias = EmbeddingModel

MAX_CHARACTERS = 2000
EXCLUDED_SHARE = 0.5
"""Weight of the excluded direction, relative to the wanted one."""
HIGHEST_ID = 2**63 - 1
ONE_PICTURE = 3
"""Dimensions of an array that holds a single image, at most."""
SMALLEST = 1e-6
"""A sum shorter than this has no meaningful direction."""


@dataclass(frozen=True)
class Query:
    """What is wanted and what is excluded.

    With unit embeddings u of what is wanted and x of what is excluded, the embedding of the query is

        s = unit(Σ_i w_i u_i)        v = unit(s − 0.5 · unit(Σ_j x_j))

    The subtracted part has a fixed length, so v stays within 30 degrees of s: exclusions shift the results but cannot
    reverse them.

    Attributes:
        texts: Texts that are wanted.
        images: Images that are wanted.
        exclude: Texts that are excluded.
        like: Ids of items of the collection that are wanted.
        weights: One number above 0 per text, image and id, in this order; only their ratios matter. Default: all equal.
    """

    texts: tuple[str, ...] = ()
    images: tuple[ImageSource, ...] = ()
    exclude: tuple[str, ...] = ()
    like: tuple[int, ...] = ()
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("texts", "images", "exclude", "like"):
            object.__setattr__(self, name, _sequence(name, getattr(self, name)))
        for text in (*self.texts, *self.exclude):
            _check_text(text)
        object.__setattr__(self, "like", tuple(map(_checked_id, self.like)))
        wanted = len(self.texts) + len(self.images) + len(self.like)
        if not wanted:
            only = f"only {self.exclude[0]!r} to exclude" if self.exclude else "nothing"
            raise InputError(f"a query of {only}: expected a text, an image or an id that is wanted")
        if self.weights is not None:
            object.__setattr__(self, "weights", _checked_weights(_sequence("weights", self.weights), wanted))

    @property
    def needs_model(self) -> bool:
        """Whether anything has to be encoded; ids are in the collection already."""
        return bool(self.texts or self.images or self.exclude)

    def __str__(self) -> str:
        """Return the query in words; a single text stands for itself."""
        parts = [*self.texts, *(f"image {_name(image)}" for image in self.images)]
        parts += [f"like {each}" for each in self.like]
        return ", ".join(parts) + "".join(f", not {text}" for text in self.exclude)


class UnknownWordsError(InputError):
    """The model knows no word of ``text``; ``words`` are the unknown ones of the whole query."""

    def __init__(self, text: str, words: tuple[str, ...]) -> None:
        super().__init__(f"query {text[:60]!r}: the model knows none of its words, use others")
        self.text, self.words = text, words


def as_query(query: object) -> Query:
    """Return a query as it is, or a text as a query."""
    if isinstance(query, str):
        return Query(texts=(query,))
    if not isinstance(query, Query):
        raise InputError(f"query is {type(query).__name__}, expected a text or a Query")
    return query


@dataclass(frozen=True)
class QueryVector:
    """The unit embedding of a query.

    Attributes:
        vector: The embedding ``(D,)``.
        text: The query in words.
        like: Ids in the query, which are excluded from the results.
        unknown: Words that the model does not know.
        cut: Texts that the model truncated.
        excluded: Embeddings of the excluded texts ``(E, D)``; None if there are none.
        wanted: The embedding ``(D,)`` without what is excluded; None if nothing is.
        words_only: Whether everything that is wanted is text; only then results have a relevance, and words count.
        notes: What should be said about the texts, as in :class:`~vse.index.results.SearchResults`.
        texts: The texts that are wanted.
        unwanted: The texts that are excluded.
        words_alone: Whether ``vector`` means nothing, so that only words count; see :mod:`vse.index.fusion`.
    """

    vector: Vectors
    text: str = ""
    like: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    excluded: Vectors | None = None
    wanted: Vectors | None = None
    words_only: bool = False
    notes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    words_alone: bool = False


def encode_query(query: Query, model: Model | None, collection: Collection | None = None) -> QueryVector:
    """Encode a query with the collection's model.

    Args:
        query: The query.
        model: Needed unless the query consists of ids.
        collection: Needed only for ids.

    Raises:
        InputError: The model or collection is missing, an input cannot be encoded, or embeddings cancel each other.
    """
    if query.needs_model and model is None:
        raise InputError(f"query {str(query)[:60]!r} has texts or images and no model: load the collection's")
    if query.like and collection is None:
        raise InputError(f"query with ids {list(query.like)[:3]} and no collection: expected the one they belong to")
    unknown: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    wanted: list[Vectors] = []
    unwanted: Vectors | None = None
    notes: tuple[str, ...] = ()
    texts = (*query.texts, *query.exclude)
    if texts and model is not None:
        notes = query_notes(model, texts)
        if model.tokenizer is not None:
            unknown, cut = _read(model.tokenizer, texts)
        vectors = model.encode_texts(texts, unknown="allow")
        wanted.append(vectors[: len(query.texts)])
        unwanted = vectors[len(query.texts) :] if query.exclude else None
    if query.images and model is not None:
        wanted.append(model.encode_images(list(query.images), on_bad="raise"))
    if query.like and collection is not None:
        wanted.append(collection.vectors(query.like))
    parts = np.concatenate(wanted)
    vector = combine(parts, query.weights, unwanted)
    words_only = not (query.images or query.like)
    return QueryVector(
        vector,
        str(query),
        query.like,
        unknown,
        cut,
        excluded=unwanted,
        wanted=None if unwanted is None else combine(parts, query.weights),
        words_only=words_only,
        notes=notes,
        texts=query.texts,
        unwanted=query.exclude,
    )


def vector_query(vector: object, collection: Collection) -> QueryVector:
    """Return a query for a vector that was computed elsewhere, for :func:`vse.index.search_encoded`.

    Args:
        vector: As many numbers as the collection has dimensions; only the direction counts.
        collection: The collection to search.

    Raises:
        InputError: The vector has another width, is zero or is not finite.

    >>> from vse.index import open_collection, search_encoded, vector_query
    >>> collection = open_collection("mine.vse")  # doctest: +SKIP
    >>> search_encoded(collection, vector_query([0.1, 0.7, 0.2], collection), k=5)  # doctest: +SKIP
    """
    dimensions = collection.info().dimensions
    try:
        given = np.asarray(vector, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"vector is {type(vector).__name__}, expected {dimensions} numbers") from None
    if given.shape != (dimensions,):
        raise InputError(f"vector has shape {given.shape}, expected ({dimensions},), the width of the collection")
    largest = float(np.abs(given).max())
    if not 0 < largest < math.inf:  # also NaN
        raise InputError("vector is zero or not finite, expected a direction")
    scaled = given / largest
    return QueryVector((scaled / np.linalg.norm(scaled)).astype(np.float32), "a vector")


def combine(wanted: Vectors, weights: Sequence[float] | None = None, unwanted: Vectors | None = None) -> Vectors:
    """Combine unit embeddings ``(n, D)`` into one ``(D,)`` by the formula of :class:`Query`."""
    factors = np.ones(len(wanted)) if weights is None else np.asarray(weights, np.float64)
    direction = _unit((factors / factors.max()) @ wanted.astype(np.float64), "what is wanted")
    if unwanted is not None:
        away = _unit(unwanted.astype(np.float64).sum(axis=0), "what is excluded")
        direction = _unit(direction - EXCLUDED_SHARE * away, "all of it")
    return direction.astype(np.float32)


def unknown_words(tokenizer: TextTokenizer, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the words without a token, lower-cased and unique; punctuation and contraction endings are not words."""
    from vse.inputs.text import words_of

    words = list(dict.fromkeys(word for text in texts for word in words_of(text) if _is_word(word)))
    if tokenizer.unk_id is None or not words:
        return ()
    tokens = tokenizer.encode(words).tokens  # (words, L)
    return tuple(word for word, bad in zip(words, (tokens == tokenizer.unk_id).any(axis=1), strict=True) if bad)


def _read(tokenizer: TextTokenizer, texts: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return unknown words and truncated texts; raise for a text that consists of unknown words."""
    batch = tokenizer.encode(tokenizer.respell(texts))
    for text, unknown in zip(texts, batch.unknown, strict=True):
        if unknown:
            raise UnknownWordsError(text, unknown_words(tokenizer, texts))
    return unknown_words(tokenizer, texts), tuple(t for t, cut in zip(texts, batch.truncated, strict=True) if cut)


def _is_word(piece: str) -> bool:
    return not piece.startswith("'") and piece != "n't" and any(character.isalnum() for character in piece)


def _unit(vector: np.ndarray, what: str) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    if not length > SMALLEST:  # also NaN
        raise InputError(
            f"query: the embeddings of {what} cancel each other, length {length:.1g}: leave one of them out"
        )
    return vector / length


def _sequence(name: str, value: object) -> tuple[Any, ...]:
    """Return the parts of a query; a single part is rejected, since iterating over it could split it."""
    several = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    if isinstance(value, np.ndarray):  # images of one size may be stacked in one array
        several = value.ndim > (ONE_PICTURE if name == "images" else 0)
    if not several:
        raise InputError(f"{name} is one {type(value).__name__}: expected a sequence, put it in one")
    return tuple(cast("Iterable[Any]", value))


def _checked_id(value: object) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or not 0 < int(value) <= HIGHEST_ID:
        raise InputError(f"id {str(value)[:60]}: expected the id of an item, a whole number of at least 1")
    return int(value)


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise InputError(f"query text is {type(text).__name__}, expected str")
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"query text has {len(text):,} characters, at most {MAX_CHARACTERS:,}: shorten it")
    if not text.strip():
        raise InputError(f"query text {text[:60]!r} is empty: write what to find, or leave it out")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError(f"query text {text[:60]!r} contains bytes that are not UTF-8: type it again")


def _checked_weights(weights: tuple[Any, ...], wanted: int) -> tuple[float, ...]:
    if len(weights) != wanted:
        raise InputError(f"{len(weights)} weights for {wanted} texts, images and ids: expected one for each")
    return tuple(map(_checked_weight, weights))


def _checked_weight(weight: object) -> float:
    with suppress(OverflowError):  # integers can exceed the float range
        if isinstance(weight, Real) and 0 < float(weight) < math.inf:  # not NaN
            return float(weight)
    shown = str(weight)[:60]
    raise InputError(f"weight {shown}: expected a number above 0; what is not wanted goes into 'exclude'")


def _name(image: ImageSource) -> str:
    if isinstance(image, (str, os.PathLike)):
        return os.path.basename(os.fspath(image))  # noqa: PTH119 (may be a plain name)
    return f"of {type(image).__name__}"

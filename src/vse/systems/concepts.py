"""Concepts of captions: frequent words for objects, motions and properties, and how often they occur together.

They are counted in the training captions alone, so that a model knows nothing of the captions that it is tested on. A
caption's concept labels are those of its own words, not of the other captions of its image. No torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vse.data.roles import lexicon
from vse.errors import InputError
from vse.inputs.text import words_of
from vse.inputs.tokenizer import TextTokenizer

SHARES = {"object": 0.7, "motion": 0.2, "property": 0.1}
"""Of the concepts (not checked against the paper); what one kind lacks, the most frequent other words fill."""
GROWTH = 5.0  # s of B = s^(P - u) - s^(-u)
SHIFT = 0.02  # u
THRESHOLD = 0.3  # of B: weaker relations are no edges
NEIGHBOURS = 0.25  # weight of all neighbours together against the concept itself

_FUNCTION_WORDS = (
    lexicon.DETERMINERS
    | lexicon.POSSESSIVES
    | lexicon.PRONOUNS
    | lexicon.BE
    | lexicon.HAVE
    | lexicon.DO
    | lexicon.MODALS
    | lexicon.CONJUNCTIONS
    | lexicon.CLAUSES
    | lexicon.RELATIVES
    | lexicon.PREPOSITIONS
    | lexicon.PARTICLES
)


@dataclass(frozen=True, eq=False)
class Concepts:
    """Concepts of a dataset.

    Attributes:
        words: the concepts.
        of_token: ``(V,)``, the concept of each token of the vocabulary, or -1.
        adjacency: ``(C, C)``, the normalised graph of :func:`adjacency`.
    """

    words: tuple[str, ...]
    of_token: NDArray[np.int64]
    adjacency: NDArray[np.float32]

    @classmethod
    def build(
        cls, captions: Sequence[str], tokenizer: TextTokenizer, count: int, words: Sequence[str] = ()
    ) -> Concepts:
        """Choose and count concepts.

        Args:
            captions: of the training split.
            tokenizer: of whole words.
            count: how many concepts to choose.
            words: the concepts, if they are given; each must occur in the captions.

        Raises:
            InputError: there are too few captions or words, or the given words are those of other captions.
        """
        if not captions:
            raise InputError("no captions to build concepts from: concepts are words of the training captions")
        split = [set(words_of(caption)) for caption in captions]
        counts = Counter(word for each in split for word in each)
        ids = {word: tokenizer.pipeline.token_to_id(word) for word in counts}
        known = {word: number for word, number in counts.items() if ids[word] is not None}
        chosen = tuple(words) or choose_concepts(known, count)
        if len(set(chosen)) < len(chosen):
            raise InputError(f"concept {Counter(chosen).most_common(1)[0][0]!r} is listed twice in model.system.words")
        absent = [word for word in chosen if word not in known]
        if absent:
            raise InputError(
                f"{len(absent)} of {len(chosen)} concepts occur in no training caption or not in the vocabulary, "
                f"{absent[0]!r} is the first: concepts of another dataset? leave out model.system.words to choose them"
            )
        if not words and len(chosen) < count:
            raise InputError(
                f"the training captions have {len(chosen)} words that may be concepts, and model.system.concepts is "
                f"{count}: lower it"
            )
        numbers = {word: number for number, word in enumerate(chosen)}
        of_token = np.full(tokenizer.vocab_size, -1, dtype=np.int64)
        for word, number in numbers.items():
            of_token[ids[word]] = number
        present = [sorted(numbers[word] for word in each if word in numbers) for each in split]
        return cls(chosen, of_token, adjacency(*co_occurrence(present, len(chosen))))


def kind_of(word: str) -> str | None:
    """Return whether a word is an ``object``, ``motion`` or ``property`` by rules of English, or None.

    >>> [kind_of(word) for word in ("dog", "running", "red", "the", "1")]
    ['object', 'motion', 'property', None, None]
    """
    if word in _FUNCTION_WORDS or not word.isalpha() or len(word) < 2 or lexicon.is_adverb(word):
        return None
    if lexicon.forms_of(word):
        return "motion"
    return "property" if lexicon.is_adjective(word) else "object"


def choose_concepts(counts: dict[str, int], count: int) -> tuple[str, ...]:
    """Return up to ``count`` concepts, the most frequent of each kind by :data:`SHARES`; ties in alphabetical order."""
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    kinds = {word: kind for word in ordered if (kind := kind_of(word)) is not None}
    chosen: list[str] = []
    for kind, share in SHARES.items():
        chosen += [word for word in kinds if kinds[word] == kind][: round(share * count)]
    taken = set(chosen)
    rest = [word for word in kinds if word not in taken]
    return tuple([*chosen, *rest][:count])


def co_occurrence(present: Sequence[Sequence[int]], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many captions hold both concepts, ``(C, C)`` without the diagonal, and each concept, ``(C,)``."""
    together = np.zeros((count, count), dtype=np.int64)
    for concepts in present:
        together[np.ix_(concepts, concepts)] += 1
    numbers = together.diagonal().copy()
    np.fill_diagonal(together, 0)
    return together, numbers


def adjacency(together: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return CVSE's normalised graph of concepts ``(C, C)``.

    ``P_ij`` is the share of captions with concept i that hold j. ``B = s^(P - u) - s^(-u)`` damps rare pairs; where it
    reaches the threshold there is an edge. The edges of a column share the weight 0.25, a concept has 1 for itself, and
    the result is ``D^(-1/2) Aᵀ D^(-1/2)`` with the row sums D of A.
    """
    shares = together / np.maximum(numbers, 1)[:, None]
    strength = GROWTH ** (shares - SHIFT) - GROWTH**-SHIFT
    edges = (strength >= THRESHOLD).astype(np.float64)
    weights = NEIGHBOURS * edges / (edges.sum(axis=0, keepdims=True) + 1e-6) + np.identity(len(edges))
    scale = weights.sum(axis=1) ** -0.5
    return (scale[:, None] * weights.T * scale[None, :]).astype(np.float32)

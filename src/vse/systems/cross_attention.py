"""Scores of pairs by attention across the two sets: SCAN's stacked cross attention and IMRAM's recurrent memory.

Both attend in one of two directions: the elements of one set, the queries, look at those of the other, the contexts.
With unit vectors q and c, the cosine of a query with what it attends to, ``a = Σ w_c c``, follows from dot products
alone: ``q·a = Σ w_c (q·c)`` and ``|a|² = wᵀ G w`` with the Gram matrix G of the contexts. SCAN therefore never computes
``a``: a pair costs numbers of the size of its similarities, not of the features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from vse.encoders.functional import SMALLEST_NORM
from vse.models.pair_options import FeatureNorm, ImramOptions, ScanOptions


@dataclass(frozen=True, eq=False)
class Sets:
    """B sets of unit vectors: ``elements (B, N, D)``, zero outside of ``mask (B, N)``."""

    elements: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.elements)

    def rows(self, part: slice | Tensor) -> Sets:
        """Return some of the sets; those of a slice as a view."""
        return Sets(self.elements[part], self.mask[part])

    def trimmed(self) -> Sets:
        """Return the sets without the padding that all of them have at the end."""
        used = int(self.mask.any(dim=0).nonzero().max()) + 1 if len(self) else 0
        return self if used in {0, self.mask.shape[1]} else Sets(self.elements[:, :used], self.mask[:, :used])


class PairScoring(nn.Module):
    """The scores ``(B, T)`` of every image with every text, as a function of two batches of sets."""

    def forward(self, images: Sets, texts: Sets) -> Tensor:
        """Return the scores; differentiable."""
        raise NotImplementedError

    def numbers(self, regions: int, words: int, size: int) -> int:
        """Return how many numbers the score of one pair holds in memory at most, without gradients."""
        raise NotImplementedError


class Attention(NamedTuple):
    """How queries attend: the inverse temperature, the norm of the similarities, the slope of its clipping."""

    sharpness: float
    norm: FeatureNorm
    slope: float

    def weights(self, similarities: Tensor, queries: Tensor, contexts: Tensor) -> Tensor:
        """Return the weights of the contexts, which add up to 1.

        Args:
            similarities: ``(X, Y, Q, C)`` of the Q queries of Y sets with the C contexts of X sets.
            queries: the mask ``(Y, Q)`` of the queries.
            contexts: the mask ``(X, C)`` of the contexts.
        """
        normed = self.normed(similarities, queries)
        return (normed * self.sharpness).masked_fill(~contexts[:, None, None, :], float("-inf")).softmax(dim=3)

    def normed(self, similarities: Tensor, queries: Tensor) -> Tensor:
        """Normalize similarities over the queries of a set, for each context."""
        if self.norm.startswith("clipped"):
            similarities = nn.functional.leaky_relu(similarities, self.slope)
        if self.norm.endswith(("l1norm", "l2norm")):  # padding is 0 and adds nothing
            order = 1 if self.norm.endswith("l1norm") else 2
            lengths = torch.linalg.vector_norm(similarities, order, dim=2, keepdim=True)
            return similarities / (lengths + SMALLEST_NORM)
        if self.norm == "softmax":
            return similarities.masked_fill(~queries[None, :, :, None], torch.finfo(similarities.dtype).min).softmax(2)
        return similarities


def similarities_of(queries: Sets, contexts: Sets) -> Tensor:
    """Return the dot products ``(X, Y, Q, C)`` of the queries of Y sets with the contexts of X sets."""
    sets, count, _ = queries.elements.shape
    flat = queries.elements.flatten(0, 1)  # (Y·Q, D)
    return (flat @ contexts.elements.mT).unflatten(1, (sets, count))


def attended_cosines(weights: Tensor, similarities: Tensor, gram: Tensor, lengths: Tensor) -> Tensor:
    """Return the cosine ``(X, Y, Q)`` of each query with the contexts that it attends to.

    Args:
        weights: ``(X, Y, Q, C)``.
        similarities: ``(X, Y, Q, C)`` of the queries with the contexts.
        gram: ``(X, C, C)``, the dot products of the contexts.
        lengths: ``(Y, Q)`` of the queries.
    """
    dots = (weights * similarities).sum(dim=3)
    squares = (weights * (weights.flatten(1, 2) @ gram).view_as(weights)).sum(dim=3)
    # Of queries of unit length no dot product exceeds the length: where one does, the length is rounding noise.
    attended = torch.maximum(squares, dots.square()).clamp(min=SMALLEST_NORM**2).sqrt()
    return dots / (lengths * attended).clamp(min=SMALLEST_NORM)


def aggregate(cosines: Tensor, mask: Tensor, options: ScanOptions) -> Tensor:
    """Return the scores ``(X, Y)`` of cosines ``(X, Y, Q)``, of which those in ``mask (Y, Q)`` count."""
    if options.aggregation == "lse":
        scaled = (cosines * options.lambda_lse).masked_fill(~mask, float("-inf"))
        return scaled.logsumexp(dim=2) / options.lambda_lse
    if options.aggregation == "max":
        return cosines.masked_fill(~mask, float("-inf")).amax(dim=2)
    total = cosines.masked_fill(~mask, 0).sum(dim=2)
    return total if options.aggregation == "sum" else total / mask.sum(dim=1)


class StackedCrossAttention(PairScoring):
    """SCAN: ``S = aggregate_q cos(q, Σ_c softmax_c(λ s̄_qc) c)``, where s̄ is normalized over the queries.

    It has no parameters. The queries are words for ``t2i`` and regions for ``i2t``.
    """

    def __init__(self, options: ScanOptions) -> None:
        super().__init__()
        self.options = options
        self.attention = Attention(options.lambda_softmax, options.raw_feature_norm, options.slope)

    def forward(self, images: Sets, texts: Sets) -> Tensor:
        if self.options.direction == "t2i":
            return self._scores(texts, images)
        return self._scores(images, texts).T

    def _scores(self, queries: Sets, contexts: Sets) -> Tensor:
        similarities = similarities_of(queries, contexts)
        weights = self.attention.weights(similarities, queries.mask, contexts.mask)
        gram = contexts.elements @ contexts.elements.mT
        lengths = torch.linalg.vector_norm(queries.elements, dim=2)
        return aggregate(attended_cosines(weights, similarities, gram, lengths), queries.mask, self.options)

    def numbers(self, regions: int, words: int, size: int) -> int:
        return 5 * regions * words + 4 * max(regions, words)


class MemoryUpdate(nn.Module):
    """``m' = g ⊙ m + (1 - g) ⊙ o`` with ``g = σ(W_g [m; a])`` and ``o = tanh(W_o [m; a])``, of memory m and attended a.

    An attended vector is a weighted sum of contexts, so ``W a`` is the same sum of projected contexts, which are
    projected once for all queries.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output = nn.Linear(2 * size, size)
        self.gate = nn.Linear(2 * size, size)

    def of_contexts(self, contexts: Tensor) -> Tensor:
        """Return ``(…, 2 D)``, the share of contexts ``(…, D)`` in both layers."""
        return contexts @ self._weights()[:, contexts.shape[-1] :].T

    def of_memory(self, memory: Tensor) -> Tensor:
        """Return ``(…, 2 D)``, the share of the memory ``(…, D)`` in both layers, with their biases."""
        weights, biases = self._weights()[:, : memory.shape[-1]], torch.cat((self.output.bias, self.gate.bias))
        return nn.functional.linear(memory, weights, biases)

    def forward(self, memory: Tensor, shares: Tensor) -> Tensor:
        """Return the next memory ``(…, D)`` for the sum ``(…, 2 D)`` of both shares."""
        output, gate = shares.chunk(2, dim=-1)
        return torch.lerp(output.tanh(), memory, gate.sigmoid())

    def _weights(self) -> Tensor:
        return torch.cat((self.output.weight, self.gate.weight))  # (2 D, 2 D)


class RecurrentAttentionMemory(PairScoring):
    """IMRAM: queries attend K times, each time with a memory of what they attended to before.

    ``S = Σ_k mean_q cos(q, a_k(q))``, where ``a_k`` is attended by the memory ``m_k`` in place of q, ``m_1 = q`` and
    ``m_{k+1} = update(m_k, a_k)``. ``text``: the queries are words; ``image``: regions; ``full``: the sum of both, with
    parameters of their own.
    """

    def __init__(self, options: ImramOptions, size: int) -> None:
        super().__init__()
        self.options = options
        self.attention = Attention(options.lambda_softmax, options.raw_feature_norm, options.slope)
        sides = {"text": ("text",), "image": ("image",), "full": ("text", "image")}[options.mode]
        self.updates = nn.ModuleDict({side: MemoryUpdate(size) for side in sides} if options.steps > 1 else {})
        self._sides = sides

    def forward(self, images: Sets, texts: Sets) -> Tensor:
        scores = [
            self._scores(texts, images, side) if side == "text" else self._scores(images, texts, side).T
            for side in self._sides
        ]
        return scores[0] if len(scores) == 1 else scores[0] + scores[1]

    def _scores(self, queries: Sets, contexts: Sets, side: str) -> Tensor:
        found = similarities_of(queries, contexts)  # (X, Y, Q, C)
        gram = contexts.elements @ contexts.elements.mT
        lengths = torch.linalg.vector_norm(queries.elements, dim=2)
        weights = self.attention.weights(found, queries.mask, contexts.mask)
        total = attended_cosines(weights, found, gram, lengths)
        memory = queries.elements  # (Y, Q, D), from the first update on (X, Y, Q, D)
        for _ in range(1, self.options.steps):
            update = cast(MemoryUpdate, self.updates[side])
            taken = (weights.flatten(1, 2) @ update.of_contexts(contexts.elements)).unflatten(1, found.shape[1:3])
            memory = update(memory, update.of_memory(memory) + taken)
            if self.options.unit_memory:
                memory = memory / (torch.linalg.vector_norm(memory, dim=3, keepdim=True) + SMALLEST_NORM)
            seen = (memory.flatten(1, 2) @ contexts.elements.mT).view_as(found)
            seen = seen.masked_fill(~queries.mask[None, :, :, None], 0)  # the memory of padding is not zero
            weights = self.attention.weights(seen, queries.mask, contexts.mask)
            total = total + attended_cosines(weights, found, gram, lengths)
        return total.masked_fill(~queries.mask, 0).sum(dim=2) / queries.mask.sum(dim=1)

    def numbers(self, regions: int, words: int, size: int) -> int:
        queries = {"text": words, "image": regions, "full": max(regions, words)}[self.options.mode]
        memory = 7 * size * queries if self.options.steps > 1 else 0
        return memory + 6 * regions * words

"""How systems turn the elements of a side into one embedding: SCO's gated concepts, GXN's two levels, CVSE's consensus.

Each takes the place of the pooling of an encoder, and holds the configured pooling as ``inner``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from vse.encoders.functional import unit_norm
from vse.encoders.text import BiGRUEncoder
from vse.pooling import Pooling
from vse.pooling.functional import Lengths, prefix_mask
from vse.systems.concepts import Concepts

SLOPE = 0.2  # of the leaky ReLU between graph convolutions


class Readout(Pooling):
    """A pooling with another pooling inside."""

    inner: Pooling

    def __init__(self, inner: Pooling) -> None:
        super().__init__()
        self.inner = inner


class GatedConcepts(Readout):
    """SCO: concepts p of the regions and the global context x, mixed by a gate.

    ``p`` is the maximum over regions of ``σ(W_c r)``, ``x`` the pooled regions, and the embedding
    ``t ⊙ ‖W_l p‖ + (1 - t) ⊙ ‖W_g x‖`` with ``t = σ(U_l p + U_g x)``; ``‖·‖`` scales to unit length.
    """

    def __init__(self, inner: Pooling, size: int, concepts: int) -> None:
        super().__init__(inner)
        self.concepts = nn.Linear(size, concepts)
        self.local = nn.Linear(concepts, size, bias=False)
        self.context = nn.Linear(size, size, bias=False)
        self.local_gate = nn.Linear(concepts, size, bias=False)
        self.context_gate = nn.Linear(size, size)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        return self.parts(features, mask)[0]

    def parts(self, features: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the fused vectors ``(B, D)`` and the logits of the concepts ``(B, C)``."""
        logits = self.concepts(features)  # (B, N, C)
        if mask is not None:
            logits = logits.masked_fill(~mask.unsqueeze(-1), -torch.inf)
        best = logits.amax(1)
        scores, context = best.sigmoid(), self.inner.pool(features, mask)
        gate = (self.local_gate(scores) + self.context_gate(context)).sigmoid()
        return gate * normalize(self.local(scores)) + (1 - gate) * normalize(self.context(context)), best


class TwoLevels(Readout):
    """GXN: abstract and grounded features, each half of the embedding.

    The halves are unit vectors times ``√β`` and ``√(1 - β)``, so that the cosine of two embeddings is
    ``β cos(abstract) + (1 - β) cos(grounded)``.
    """

    def __init__(self, inner: Pooling, size: int, balance: float) -> None:
        super().__init__(inner)
        self.balance = balance
        self.abstract = nn.Linear(size, size - size // 2)
        self.grounded = nn.Linear(size, size // 2)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        return self.parts(features, mask)[0]

    def parts(self, features: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the embedding ``(B, D)`` and the grounded half as unit vectors."""
        pooled = self.inner.pool(features, mask)
        abstract, grounded = normalize(self.abstract(pooled)), normalize(self.grounded(pooled))
        scaled = math.sqrt(self.balance) * abstract, math.sqrt(1 - self.balance) * grounded
        return torch.cat(scaled, dim=1), grounded


class ConceptGraph(nn.Module):
    """CVSE: embeddings of the concepts from two graph convolutions, ``Ã leaky(Ã E W₁) W₂``, unit rows ``(C, D)``.

    The graph is a buffer: it is saved with the model, and so is the concept of each token.
    """

    adjacency: Tensor
    of_token: Tensor

    def __init__(self, concepts: int, concept_size: int, size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.embed = nn.Parameter(torch.empty(concepts, concept_size).uniform_(-0.1, 0.1))
        middle = max(1, size // 2)
        self.first = nn.Parameter(torch.empty(concept_size, middle).uniform_(-(middle**-0.5), middle**-0.5))
        self.second = nn.Parameter(torch.empty(middle, size).uniform_(-(size**-0.5), size**-0.5))
        self.register_buffer("adjacency", torch.eye(concepts))
        self.register_buffer("of_token", torch.full((vocabulary_size,), -1, dtype=torch.int64))

    def forward(self) -> Tensor:
        hidden = nn.functional.leaky_relu(self.adjacency @ (self.embed @ self.first), SLOPE)
        return normalize(self.adjacency @ (hidden @ self.second))

    def fill(self, concepts: Concepts) -> None:
        """Set the graph and the concepts of tokens."""
        self.adjacency.copy_(torch.from_numpy(concepts.adjacency))
        self.of_token.copy_(torch.from_numpy(concepts.of_token))

    def labels(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Return which concepts the tokens of each text name, ``(B, C)`` of 0 and 1."""
        return concept_labels(self.of_token, len(self.embed), tokens, mask).to(self.embed.dtype)


def concept_labels(of_token: Tensor, count: int, tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Return which of ``count`` concepts occur in ``tokens (B, L)``, bool ``(B, C)``."""
    found = of_token[tokens]  # (B, L), -1 for other words
    if mask is not None:
        found = found.masked_fill(~mask, -1)
    marks = torch.zeros(len(tokens), count + 1, dtype=torch.bool, device=tokens.device)
    return marks.scatter_(1, torch.where(found < 0, count, found), True)[:, :count]


class Levels(NamedTuple):
    """The unit vectors ``(B, D)`` of one side of CVSE, and its distribution over concepts ``(B, C)``."""

    fused: Tensor
    instance: Tensor
    consensus: Tensor
    concepts: Tensor


class Consensus(Readout):
    """CVSE: attention over the elements, a mixture of concepts, and their weighted sum.

    The query m of the attention is the mean of the unit elements, that of a text scaled to unit length:
    ``a_n = w · (tanh(W₁ e_n) ⊙ tanh(W₂ m))``, and the instance level ``‖Σ softmax(a)_n e_n‖``. Concepts are weighted by
    ``softmax(κ w' · (tanh(W₃ c) ⊙ tanh(W₄ i)))``; a text adds ``ρ softmax(κ y)`` of its own labels y with weight ρ. The
    consensus level is ``s = ‖Σ p_c c‖``, the fused one ``f = ‖α i + (1 - α) s‖``. The embedding is f in training, and
    ``[√(1 - γ) f, √γ s]`` afterwards, whose cosine is ``1 - γ`` times that of f plus γ times that of s.
    """

    def __init__(
        self,
        inner: Pooling,
        graph: ConceptGraph,
        size: int,
        *,
        text: bool,
        label_share: float,
        fusion: float,
        training_fusion: float | None,
        sharpness: float,
        dropout: float,
        consensus_share: float = 0.0,
    ) -> None:
        super().__init__(inner)
        self.text = text
        self.label_share, self.fusion, self.sharpness = label_share, fusion, sharpness
        self.training_fusion = fusion if training_fusion is None else training_fusion
        self.consensus_share = consensus_share
        self.element, self.query, self.score = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, 1)
        self.concept, self.concept_query = nn.Linear(size, size), nn.Linear(size, size)
        self.concept_score = nn.Linear(size, 1)
        self.dropout = nn.Dropout(dropout)
        self._graph = (graph,)  # both towers share it; a tuple hides it from the one that does not save it
        if not text:
            self.graph = graph

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        return self.embedding(self.levels(features, mask))

    def embedding(self, levels: Levels) -> Tensor:
        """Return the vectors ``(B, D)``, or ``(B, 2D)``, whose dot products are the scores."""
        if self.training or not self.consensus_share:
            return levels.fused
        share = self.consensus_share
        return torch.cat((math.sqrt(1 - share) * levels.fused, math.sqrt(share) * levels.consensus), dim=1)

    def levels(self, features: Tensor, mask: Tensor | None, labels: Tensor | None = None) -> Levels:
        """Return the levels of sets ``(B, N, D)``; ``labels (B, C)`` are the concepts of a text itself."""
        instance = self._attend(normalize(features, dim=2), mask)
        basis = self._graph[0]()  # (C, D)
        query = self.concept_query(instance).tanh() * self.concept_score.weight  # (B, D)
        logits = query @ self.concept(basis).tanh().T + self.concept_score.bias  # (B, C)
        weights = (self.sharpness * logits).softmax(1)
        if labels is not None:
            own = (self.sharpness * labels).softmax(1)
            weights = self.label_share * own + (1 - self.label_share) * weights
        consensus = normalize(weights @ basis)
        share = self.training_fusion if self.training else self.fusion
        fused = normalize(share * instance + (1 - share) * consensus)
        return Levels(fused, instance, consensus, weights)

    def labels(self, tokens: Tensor, lengths: Lengths | None) -> Tensor:
        """Return the concepts of texts, ``(B, C)``."""
        mask = None
        if lengths is not None:
            mask = prefix_mask(torch.as_tensor(lengths, device=tokens.device), tokens.shape[1])
        return self._graph[0].labels(tokens, mask)

    def _attend(self, elements: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            elements = elements.masked_fill(~mask.unsqueeze(-1), 0)
        mean = self.inner.pool(elements, mask)
        mean = normalize(mean) if self.text else mean  # as in the released code
        keys = self.dropout(self.element(elements).tanh())  # (B, N, D)
        query = self.dropout(self.query(mean).tanh()) * self.score.weight  # (B, D)
        logits = (keys @ query.unsqueeze(2)).squeeze(2) + self.score.bias  # (B, N)
        if mask is not None:
            logits = logits.masked_fill(~mask, -torch.inf)
        return normalize((logits.softmax(1).unsqueeze(1) @ elements).squeeze(1))


class ConsensusTextEncoder(BiGRUEncoder):
    """A BiGRU with dropout on word embeddings, whose readout also takes the concepts that a caption names itself."""

    pooling: Consensus

    def _embedded(self, tokens: Tensor) -> Tensor:
        dropped: Tensor = self.pooling.dropout(self.embed(tokens))
        return dropped

    def _distinct(self, given: Tensor) -> tuple[Tensor, Tensor]:
        if not (self.training and self.pooling.dropout.p):
            return super()._distinct(given)
        return self._embedded(given), torch.arange(len(given), device=given.device)  # equal words are dropped apart

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:
        return unit_norm(self.pooling.embedding(self.levels(tokens, lengths)))

    def levels(self, tokens: Tensor, lengths: Lengths | None = None) -> Levels:
        """Return the levels of texts."""
        states, mask = self.elements(tokens, lengths)
        return self.pooling.levels(states, mask, self.pooling.labels(tokens, lengths))

"""HGR's encoders: features of three levels (sentence, actions, entities) for videos and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, cat, nn
from torch.nn.functional import pad

from vse.encoders.text import WordStates
from vse.errors import InputError
from vse.hgr.graphs import ROLES
from vse.models.build import build_pooling
from vse.models.config import ATTENTION, PoolingConfig
from vse.pooling import Pooling
from vse.pooling.functional import Lengths, check_width, compiled, positive_int, read_sets


@dataclass(frozen=True, eq=False)
class VideoFeatures:
    """V videos of F frames: ``whole (V, D)``, ``verb_frames`` and ``noun_frames (V, F, D)``, ``mask (V, F)``.

    Frames outside ``mask`` are zero.
    """

    whole: Tensor
    verb_frames: Tensor
    noun_frames: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.whole)

    def rows(self, part: slice) -> VideoFeatures:
        """Return some of the videos as a view."""
        return _rows(self, part)


@dataclass(frozen=True, eq=False)
class SentenceFeatures:
    """T sentences: ``whole (T, D)``, ``verbs (T, 4, D)`` and ``nouns (T, 6, D)``, and masks of existing nodes.

    Nodes outside ``verb_mask (T, 4)`` and ``noun_mask (T, 6)`` are zero.
    """

    whole: Tensor
    verbs: Tensor
    nouns: Tensor
    verb_mask: Tensor
    noun_mask: Tensor

    def __len__(self) -> int:
        return len(self.whole)

    def rows(self, part: slice) -> SentenceFeatures:
        """Return some of the sentences as a view."""
        return _rows(self, part)


Features = TypeVar("Features", bound=Any)


def join(parts: Sequence[Features]) -> Features:
    """Concatenate batches of features, each a dataclass of tensors; sets of different sizes are padded to the largest.

    ``(B, D)`` of numbers are vectors, ``(B, N)`` of booleans masks and ``(B, N, D)`` sets.
    """
    if not parts:
        raise InputError("no features to join: encode at least one batch")
    joined = (_joined([getattr(part, field.name) for part in parts]) for field in fields(parts[0]))
    return cast(Features, type(parts[0])(*joined))


def _joined(tensors: list[Tensor]) -> Tensor:
    behind = tensors[0].dim() - 2
    if not behind and tensors[0].is_floating_point():  # vectors, not a mask of elements
        return cat(tensors)
    longest = max(tensor.shape[1] for tensor in tensors)
    return cat([pad(tensor, (0, 0) * behind + (0, longest - tensor.shape[1])) for tensor in tensors])


def _rows(features: Features, part: slice) -> Features:
    return cast(Features, type(features)(*(getattr(features, field.name)[part] for field in fields(features))))


class GraphAttention(nn.Module):
    """``x'_i = LayerNorm(x_i + dropout(W Σ_j a_ij x_j))`` with ``a_ij = softmax_j(q(x_i) . k(x_j) / √(D/2))``.

    The softmax is over the nodes j with ``edges[i, j] != 0``; the value of the edge does not matter. A node without
    edges keeps its features. Queries and keys have half the width of the nodes.
    """

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(size, size // 2)
        self.key = nn.Linear(size, size // 2)
        self.context = nn.Linear(size, size, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(size)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return ``(B, N, D)`` for ``nodes (B, N, D)`` and ``edges (B, N, N)``."""
        apart = edges == 0
        scores = self.query(nodes) @ self.key(nodes).mT / self.query.out_features**0.5  # (B, N, N)
        # Not -inf: a row without edges would become NaN.
        scores = scores.masked_fill(apart, torch.finfo(scores.dtype).min)
        taken = scores.softmax(dim=2).masked_fill(apart, 0) @ nodes
        reasoned: Tensor = self.norm(nodes + self.dropout(self.context(taken)))
        return reasoned


class AttentionPool(Pooling):
    """``v = sum_n softmax_n(w . phi_n + b) phi_n``; D + 1 parameters."""

    def __init__(self, dim: int, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        positive_int("dim", dim)
        self.score = nn.Linear(dim, 1)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        check_width(features, self.score.in_features, type(self).__name__)
        if mask is not None:  # padding may hold NaN, and NaN times zero is NaN
            features = features.masked_fill(~mask.unsqueeze(-1), 0)
        scores = self.score(features).squeeze(-1)  # (B, N)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return (scores.softmax(dim=1).unsqueeze(1) @ features).squeeze(1)

    def extra_repr(self) -> str:
        return f"dim={self.score.in_features}"


def build_level_pooling(config: PoolingConfig, size: int) -> Pooling:
    """Return the pooling of a configuration: learned attention, or one of :mod:`vse.pooling` by name."""
    if config.name != ATTENTION:
        return build_pooling(config, size)
    if config.options:
        raise InputError(f"pooling {ATTENTION!r} takes no options, got {sorted(config.options)}")
    return AttentionPool(size)


class TextEncoder(nn.Module):
    """Words → states; root = pooling of all states, node = max over its words × embedding of its role → graph.

    The arguments are the arrays of a :class:`~vse.hgr.graphs.GraphBatch`, whose shapes give the numbers of verbs and
    nouns. Nodes without words are zero and have no effect.
    """

    def __init__(self, words: WordStates, pooling: Pooling, graph: GraphAttention) -> None:
        super().__init__()
        self.words = words
        self.pooling = pooling
        self.roles = nn.Embedding(len(ROLES), words.rnn.hidden_size)
        self.graph = graph

    def forward(
        self,
        tokens: Tensor,
        lengths: Lengths | None,
        verb_words: Tensor,
        noun_words: Tensor,
        roles: Tensor,
        edges: Tensor,
    ) -> SentenceFeatures:
        """Encode ``tokens (B, L)`` and graphs ``(B, 4, L)``, ``(B, 6, L)``, ``(B, 10)``, ``(B, 11, 11)``."""
        _check_shapes(tokens, verb_words, noun_words, roles, edges)
        states, mask = self.words(tokens, lengths)  # (B, L, D)
        node_words = torch.cat((verb_words, noun_words), dim=1)  # (B, N, L)
        if mask is not None and not compiled() and bool((node_words & ~mask.unsqueeze(1)).any()):
            row = int((node_words & ~mask.unsqueeze(1)).flatten(1).any(dim=1).nonzero()[0])
            raise InputError(f"the graph of sentence {row} names words past its end: were the words split differently?")
        root = self.pooling.pool(states, mask).unsqueeze(1)  # (B, 1, D)
        phrases, present = self._phrases(states, node_words, roles)
        whole, nodes = self.graph(torch.cat((root, phrases), dim=1), edges).split((1, node_words.shape[1]), dim=1)
        sizes = (verb_words.shape[1], noun_words.shape[1])
        verbs, nouns = nodes.masked_fill(~present.unsqueeze(-1), 0).split(sizes, dim=1)
        return SentenceFeatures(whole.squeeze(1), verbs, nouns, *present.split(sizes, dim=1))

    def _phrases(self, states: Tensor, node_words: Tensor, roles: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes before the graph ``(B, N, D)``, zero where missing, and which exist ``(B, N)``."""
        counts = node_words.sum(dim=2)
        present = counts > 0
        row, _, place = node_words.nonzero(as_tuple=True)  # node by node, so that each is one segment
        taken = states[row, place]
        highest = torch.segment_reduce(taken, "max", lengths=counts[present]) if len(taken) else taken  # (K, D)
        phrases = states.new_zeros(*present.shape, states.shape[2])
        return phrases.index_put((present,), highest * self.roles(roles[present])), present


def _check_shapes(tokens: Tensor, verb_words: Tensor, noun_words: Tensor, roles: Tensor, edges: Tensor) -> None:
    batch, length = tokens.shape if tokens.dim() == 2 else (-1, -1)
    for name, words in (("verb_words", verb_words), ("noun_words", noun_words)):
        if words.dtype != torch.bool or words.dim() != 3 or (words.shape[0], words.shape[2]) != (batch, length):
            raise InputError(
                f"{name} must be boolean of shape (B, nodes, L) for tokens {tuple(tokens.shape)}, "
                f"got {words.dtype} of {tuple(words.shape)}"
            )
    count = verb_words.shape[1] + noun_words.shape[1]
    for name, given, expected in (
        ("roles", roles, (batch, count)),
        ("edges", edges, (batch, 1 + count, 1 + count)),
    ):
        if tuple(given.shape) != expected:
            raise InputError(f"{name} must have shape {expected} for {count} nodes, got {tuple(given.shape)}")


LEVELS = 3


class VideoEncoder(nn.Module):
    """Project frames ``(B, F, C)`` with a Linear and dropout for each level; level 0 is pooled, 1 and 2 are not."""

    def __init__(self, feature_size: int, size: int, pooling: Pooling, dropout: float) -> None:
        super().__init__()
        self.levels = nn.ModuleList(nn.Linear(feature_size, size) for _ in range(LEVELS))
        self.dropout = nn.Dropout(dropout)
        self.pooling = pooling
        self.feature_size = feature_size

    def forward(self, frames: Tensor, lengths: Lengths | None = None) -> VideoFeatures:
        """Encode ``frames (B, F, C)``; ``lengths (B,)`` is the number of valid frames of each video (default: all)."""
        if frames.dim() != 3 or frames.shape[2] != self.feature_size:
            raise InputError(f"frames must have shape (B, F, {self.feature_size}), got {tuple(frames.shape)}")
        if not frames.requires_grad:
            frames = frames.to(next(self.parameters()).dtype)  # stores hold float16
        mask = read_sets(frames, lengths)
        padding = None if mask is None else ~mask.unsqueeze(-1)
        if padding is not None:  # its values must not reach the gradient of the weights
            frames = frames.masked_fill(padding, 0)
        whole, verb, noun = (self.dropout(level(frames)) for level in self.levels)
        if padding is not None:
            verb, noun = verb.masked_fill(padding, 0), noun.masked_fill(padding, 0)
        valid = frames.new_ones(frames.shape[:2]).bool() if mask is None else mask
        return VideoFeatures(self.pooling.pool(whole, mask), verb, noun, valid)

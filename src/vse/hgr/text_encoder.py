"""Sentences with their role graphs to features of three levels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vse.encoders.word_states import WordStates
from vse.errors import InputError
from vse.hgr.graph_attention import GraphAttention
from vse.hgr.level_features import SentenceFeatures
from vse.hgr.roles import ROLES
from vse.pooling.base import Pooling
from vse.pooling.kernels.runtime import compiled
from vse.pooling.sets import Lengths


class TextEncoder(nn.Module):
    """Words → states; root = pooling of all states, node = max over its words × embedding of its role → graph.

    The arguments are those of a :class:`~vse.hgr.graph_batch.GraphBatch`; numbers of verbs and nouns are taken from
    their shapes. Nodes without words are zero and touch nothing.
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
        """``tokens (B, L)`` and graphs ``(B, 4, L)``, ``(B, 6, L)``, ``(B, 10)``, ``(B, 11, 11)`` to features."""
        _check_shapes(tokens, verb_words, noun_words, roles, edges)
        states, mask = self.words(tokens, lengths)  # (B, L, D)
        node_words = torch.cat((verb_words, noun_words), dim=1)  # (B, N, L)
        if mask is not None and not compiled() and bool((node_words & ~mask.unsqueeze(1)).any()):
            row = int((node_words & ~mask.unsqueeze(1)).flatten(1).any(dim=1).nonzero()[0])
            raise InputError(f"the graph of sentence {row} names words past its end: were the words split otherwise?")
        root = self.pooling.pool(states, mask).unsqueeze(1)  # (B, 1, D)
        phrases, present = self._phrases(states, node_words, roles)
        whole, nodes = self.graph(torch.cat((root, phrases), dim=1), edges).split((1, node_words.shape[1]), dim=1)
        sizes = (verb_words.shape[1], noun_words.shape[1])
        verbs, nouns = nodes.masked_fill(~present.unsqueeze(-1), 0).split(sizes, dim=1)
        return SentenceFeatures(whole.squeeze(1), verbs, nouns, *present.split(sizes, dim=1))

    def _phrases(self, states: Tensor, node_words: Tensor, roles: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes before the graph ``(B, N, D)``, zero where there is none, and which there are ``(B, N)``."""
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

"""Sentences as the states of a bidirectional GRU over word embeddings."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vse.encoders.prefix_bigru import prefix_states
from vse.encoders.tokens import check_tokens
from vse.encoders.unit_norm import unit_norm
from vse.pooling.base import Pooling
from vse.pooling.kernels.runtime import compiled, usable_on
from vse.pooling.sets import Lengths, prefix_mask, read_sets, sizes_of

EMBEDDING_RANGE = 0.1
DIRECTIONS = ("", "_reverse")


class BiGRUEncoder(nn.Module):
    """``tokens (B, L)`` → embedding → BiGRU, directions averaged → pooling over all tokens → unit norm ``(B, D)``.

    ``<start>`` and ``<end>`` are tokens like the others. ``lengths (B,)`` counts them; what lies behind is padding.
    On the CPU, where the kernels load, the recurrence is ours (:mod:`vse.encoders.prefix_bigru`); elsewhere, and in
    recorded graphs, torch's. Both have the parameters of ``rnn``.
    """

    def __init__(self, vocabulary_size: int, word_size: int, size: int, pooling: Pooling) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary_size, word_size)
        nn.init.uniform_(self.embed.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        self.rnn = nn.GRU(word_size, size, batch_first=True, bidirectional=True)
        self.pooling = pooling

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:
        states, mask = self.elements(tokens, lengths)
        return unit_norm(self.pooling.pool(states, mask))

    def elements(self, tokens: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, Tensor | None]:
        """The state of each token ``(B, L, D)`` before pooling, zero where there is none, and its mask."""
        tokens = check_tokens(tokens, self.embed.num_embeddings)
        mask = read_sets(self.embed.weight.new_empty(1).expand(*tokens.shape, 1), lengths)
        if not len(tokens):  # no sentences: nothing that torch would pack
            return self.embed.weight.new_empty(*tokens.shape, self.rnn.hidden_size), mask
        sizes = sizes_of(tokens.unsqueeze(-1), mask)
        return self._by_prefix(tokens, sizes) if self._shares_prefixes(tokens) else self._plain(tokens, sizes), mask

    def _plain(self, tokens: Tensor, sizes: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(tokens), sizes.cpu(), batch_first=True, enforce_sorted=False)
        both, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=tokens.shape[1])
        forward, backward = both.chunk(2, dim=-1)
        return torch.lerp(forward, backward, 0.5)  # (B, L, D)

    def _by_prefix(self, tokens: Tensor, sizes: Tensor) -> Tensor:
        valid = prefix_mask(sizes, tokens.shape[1])
        distinct, which = tokens[valid].unique(return_inverse=True)  # words repeat: project each of them once
        words = tokens.masked_scatter(valid, which)  # (B, L)
        embedded = self.embed(distinct)  # (V, W)
        projected = [nn.functional.linear(embedded, *self._weights("ih", direction)) for direction in DIRECTIONS]
        recurrent = [tensor for direction in DIRECTIONS for tensor in self._weights("hh", direction)]
        return prefix_states(projected, words, sizes, recurrent)

    def _shares_prefixes(self, tokens: Tensor) -> bool:
        """Whether the recurrence can be ours: modules that nobody hooked into or replaced, and kernels that run."""
        if compiled() or torch.is_autocast_enabled(tokens.device.type):
            return False
        if not (_untouched(self.embed, nn.Embedding) and _untouched(self.rnn, nn.GRU)):
            return False
        if (self.rnn.num_layers, self.rnn.bidirectional, self.rnn.bias) != (1, True, True):
            return False
        weights = [
            weight for direction in DIRECTIONS for kind in ("ih", "hh") for weight in self._weights(kind, direction)
        ]
        return usable_on(self.embed.weight, *weights)

    def _weights(self, kind: str, direction: str) -> tuple[Tensor, Tensor]:
        weight, bias = (getattr(self.rnn, f"{name}_{kind}_l0{direction}") for name in ("weight", "bias"))
        return cast(Tensor, weight), cast(Tensor, bias)


def _untouched(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Calling the module would do what its class does and no more: pruning, for one, lives in hooks."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return type(module) is kind and not any(hooks)

"""Words in their context: the states of a bidirectional GRU, as HGR's text encoder has it."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vse.encoders.prefix_bigru import prefix_states
from vse.encoders.tokens import check_tokens
from vse.pooling.kernels.runtime import compiled, usable_on
from vse.pooling.sets import Lengths, prefix_mask, read_sets, sizes_of

DIRECTIONS = ("", "_reverse")


class WordStates(nn.Module):
    """``tokens (B, L)`` → embedding → dropout → BiGRU, directions averaged: states ``(B, L, D)`` and their mask.

    Embeddings start in ``U(±1/√W)``, the weights of the GRU orthogonal, its biases zero. On the CPU, where the kernels
    load, the recurrence is that of :mod:`vse.encoders.prefix_bigru`, with the parameters of ``rnn``.
    """

    def __init__(self, vocabulary_size: int, word_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary_size, word_size)
        nn.init.uniform_(self.embed.weight, -(word_size**-0.5), word_size**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.rnn = nn.GRU(word_size, size, batch_first=True, bidirectional=True)
        for parameter in self.rnn.parameters():
            if parameter.dim() == 2:
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, Tensor | None]:
        """States, zero past a sentence's end, and their mask ``(B, L)``, None if no sentence is padded."""
        tokens = check_tokens(tokens, self.embed.num_embeddings)
        mask = read_sets(self.embed.weight.new_empty(1).expand(*tokens.shape, 1), lengths)
        if not len(tokens):  # no sentences: nothing that torch would pack
            return self.embed.weight.new_empty(*tokens.shape, self.rnn.hidden_size), mask
        sizes = sizes_of(tokens.unsqueeze(-1), mask)
        embedded, words = self._embedded(tokens, sizes)
        weights = [self._weights("hh", direction) for direction in DIRECTIONS]
        recurrent = [tensor for pair in weights for tensor in pair]
        if not self._compilable(embedded, *recurrent):
            return self._plain(embedded[words], sizes), mask
        projected = [nn.functional.linear(embedded, *self._weights("ih", direction)) for direction in DIRECTIONS]
        return prefix_states(projected, words, sizes, recurrent), mask

    def _embedded(self, tokens: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors ``(K, W)`` and, for each word ``(B, L)``, which of them it has.

        Equal words share one, unless dropout makes each word differ.
        """
        valid = prefix_mask(sizes, tokens.shape[1])
        given = tokens[valid]
        if self.training and self.dropout.p:
            distinct, which = given, torch.arange(len(given), device=given.device)
        else:
            distinct, which = given.unique(return_inverse=True)
        return self.dropout(self.embed(distinct)), torch.zeros_like(tokens).masked_scatter(valid, which)

    def _plain(self, inputs: Tensor, sizes: Tensor) -> Tensor:
        packed = pack_padded_sequence(inputs, sizes.cpu(), batch_first=True, enforce_sorted=False)
        both, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=inputs.shape[1])
        forward, backward = both.chunk(2, dim=-1)
        return torch.lerp(forward, backward, 0.5)  # (B, L, D)

    def _compilable(self, *tensors: Tensor) -> bool:
        return not (compiled() or torch.is_autocast_enabled(tensors[0].device.type)) and usable_on(*tensors)

    def _weights(self, kind: str, direction: str) -> tuple[Tensor, Tensor]:
        weight, bias = (getattr(self.rnn, f"{name}_{kind}_l0{direction}") for name in ("weight", "bias"))
        return cast(Tensor, weight), cast(Tensor, bias)

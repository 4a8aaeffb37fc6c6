"""Sentences as the states of a bidirectional GRU over word embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vse.encoders.tokens import check_tokens
from vse.encoders.unit_norm import unit_norm
from vse.pooling.base import Pooling
from vse.pooling.sets import Lengths, read_sets, sizes_of

EMBEDDING_RANGE = 0.1


class BiGRUEncoder(nn.Module):
    """``tokens (B, L)`` → embedding → BiGRU, directions averaged → pooling over all tokens → unit norm ``(B, D)``.

    ``<start>`` and ``<end>`` are tokens like the others. ``lengths (B,)`` counts them; what lies behind is padding.
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
        """The state of each token ``(B, L, D)`` before pooling, and its mask."""
        tokens = check_tokens(tokens, self.embed.num_embeddings)
        words = self.embed(tokens)  # (B, L, W)
        mask = read_sets(words, lengths)
        if not len(words):  # no sentences: nothing that torch would pack
            return words.new_empty(*tokens.shape, self.rnn.hidden_size), mask
        sizes = sizes_of(words, mask).cpu()
        packed = pack_padded_sequence(words, sizes, batch_first=True, enforce_sorted=False)
        both, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=tokens.shape[1])
        forward, backward = both.chunk(2, dim=-1)
        return torch.lerp(forward, backward, 0.5), mask  # (B, L, D)

"""Sentences as HGR's text encoder reads them: words, dropout, a bidirectional GRU."""

from __future__ import annotations

from torch import Tensor

from vse.encoders.unit_norm import unit_norm
from vse.encoders.word_states import WordStates
from vse.pooling.base import Pooling
from vse.pooling.sets import Lengths


class WordEncoder(WordStates):
    """``tokens (B, L)`` → :class:`~vse.encoders.word_states.WordStates` → pooling → unit norm ``(B, D)``.

    Beside :class:`~vse.encoders.bigru.BiGRUEncoder` it has dropout on the words and other first weights; without
    training the two compute the same.
    """

    def __init__(self, vocabulary_size: int, word_size: int, size: int, pooling: Pooling, dropout: float) -> None:
        super().__init__(vocabulary_size, word_size, size, dropout)
        self.pooling = pooling

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:  # type: ignore[override]  # pooled
        states, mask = self.elements(tokens, lengths)
        return unit_norm(self.pooling.pool(states, mask))

    def elements(self, tokens: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, Tensor | None]:
        """The state of each word ``(B, L, D)`` before pooling, zero where there is none, and its mask."""
        return super().forward(tokens, lengths)

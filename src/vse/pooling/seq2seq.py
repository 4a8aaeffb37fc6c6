"""Seq2Seq: a GRU reads the set and its last state is the answer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from vse.pooling.arguments import positive_int
from vse.pooling.base import Pooling
from vse.pooling.sets import check_width, compact


class Seq2SeqPool(Pooling):
    """One unidirectional GRU, ``D -> D``; its state after the last valid element. The order of the elements matters.

    6.3 M parameters at D = 1024.
    """

    def __init__(self, dim: int, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        positive_int("dim", dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        check_width(features, self.gru.input_size, type(self).__name__)
        if features.shape[0] == 0:
            return features.new_empty(0, features.shape[2])
        sequence, sizes = compact(features, mask)
        if torch.compiler.is_compiling() or mask is None:
            states = self.gru(sequence)[0]
            last = (sizes - 1).view(-1, 1, 1).expand(-1, 1, states.shape[2])
            return states.gather(1, last).squeeze(1).to(features.dtype)
        packed = pack_padded_sequence(sequence, sizes.cpu(), batch_first=True, enforce_sorted=False)
        last_state: Tensor = self.gru(packed)[1][0]
        return last_state.to(features.dtype)

    def extra_repr(self) -> str:
        return f"dim={self.gru.input_size}"

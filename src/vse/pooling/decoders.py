"""The ways a GPO reads positions: each maps ``inputs (N, d)`` or ``(U, N, d)`` and ``sizes (U,)`` to ``(U, N, H)``."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from vse.errors import InputError
from vse.pooling.kernels.runtime import compiled
from vse.pooling.sets import prefix_mask


class PositionTransformer(nn.Module):
    """A Transformer encoder over the valid positions; it knows the size of a set by what it can attend to."""

    def __init__(self, d_in: int, d_hidden: int, *, layers: int = 1, heads: int = 4) -> None:
        super().__init__()
        if d_hidden % heads:
            raise InputError(f"d_hidden must be a multiple of {heads} for decoder='transformer', got {d_hidden}")
        self.input = nn.Identity() if d_in == d_hidden else nn.Linear(d_in, d_hidden)
        layer = nn.TransformerEncoderLayer(
            d_hidden, heads, dim_feedforward=4 * d_hidden, dropout=0.0, batch_first=True, norm_first=False
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, inputs: Tensor, sizes: Tensor) -> Tensor:
        dtype = cast(Tensor, self.encoder.layers[0].linear1.weight).dtype
        valid = prefix_mask(sizes, inputs.shape[-2])
        if not compiled() and not valid.numel():
            return inputs.new_zeros(*valid.shape, self.encoder.layers[0].linear2.out_features)
        sequence = self.input(inputs.to(dtype)).expand(sizes.shape[0], -1, -1)
        states: Tensor = self.encoder(sequence, src_key_padding_mask=~valid)
        return states.masked_fill(~valid.unsqueeze(-1), 0)


class PositionMLP(nn.Module):
    """One hidden layer per position, unaware of the size of the set."""

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(d_in, d_hidden)

    def forward(self, inputs: Tensor, sizes: Tensor) -> Tensor:
        states = torch.relu(self.hidden(inputs.to(self.hidden.weight.dtype)))
        return states.expand(sizes.shape[0], -1, -1)

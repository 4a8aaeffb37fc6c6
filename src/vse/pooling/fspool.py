"""FSPool: featurewise sort pooling with interpolated weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vse.pooling.arguments import positive_int
from vse.pooling.base import RankPooling
from vse.pooling.interpolation import interpolate_knots


class FSPool(RankPooling):
    """``v_d = sum_k w_d(k / (N-1)) max_k(phi_d)`` with one piecewise linear function w_d per dimension.

    Each function has 21 learned knots by default. No softmax: weights may be negative and need not add up to one.
    """

    def __init__(self, dim: int, knots: int = 21, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        positive_int("dim", dim)
        positive_int("knots", knots, least=2)
        self.weight = nn.Parameter(torch.empty(knots, dim))
        nn.init.normal_(self.weight)

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        return interpolate_knots(self.weight, sizes, total)

    def extra_repr(self) -> str:
        return f"dim={self.weight.shape[1]}, knots={self.weight.shape[0]}"

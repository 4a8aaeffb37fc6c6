"""K-MaxPool: the mean of the K largest values."""

from __future__ import annotations

import torch
from torch import Tensor

from vse.pooling.arguments import positive_int
from vse.pooling.base import RankPooling, normalised


class KMaxPool(RankPooling):
    """Mean of the K largest values of every dimension; a set of fewer than K elements is averaged whole."""

    def __init__(self, k: int, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        self.k = positive_int("k", k)

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        top = torch.arange(total, device=sizes.device) < self.k
        return normalised(top.unsqueeze(0), sizes, dtype)

    def extra_repr(self) -> str:
        return f"k={self.k}"

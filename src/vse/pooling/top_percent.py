"""Top-K% pooling: the mean of a share of the set."""

from __future__ import annotations

import torch
from torch import Tensor

from vse.errors import InputError
from vse.pooling.base import RankPooling, normalised


class TopPercentPool(RankPooling):
    """Mean of the ``max(1, round(N * percent / 100))`` largest values; a half rounds to the even number."""

    def __init__(self, percent: float, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        if isinstance(percent, bool) or not isinstance(percent, (int, float)) or not 0 < percent <= 100:
            raise InputError(f"percent must be above 0 and at most 100, got {percent!r}")
        self.percent = percent

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        kept = (sizes.double() * self.percent / 100).round().clamp(min=1)
        top = torch.arange(total, device=sizes.device) < kept.unsqueeze(1)  # (U, N)
        return normalised(top, sizes, dtype)

    def extra_repr(self) -> str:
        return f"percent={self.percent}"

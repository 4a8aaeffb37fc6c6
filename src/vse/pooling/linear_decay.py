"""Linear decay: weights that fall in a straight line to zero."""

from __future__ import annotations

import torch
from torch import Tensor

from vse.pooling.base import RankPooling, normalised


class LinearDecayPool(RankPooling):
    """The k-th largest of N values (k from 1) weighs in proportion to ``N - k``: zero at k = N. A set of one gets 1."""

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        rank = torch.arange(1, total + 1, device=sizes.device)
        fall = (sizes.unsqueeze(1) - rank).clamp(min=0)  # (U, N)
        single = (sizes.unsqueeze(1) == 1) & (rank == 1)
        return normalised(fall + single, sizes, dtype)

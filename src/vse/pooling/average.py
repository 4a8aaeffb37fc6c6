"""AvgPool: the mean of the set."""

from __future__ import annotations

import torch
from torch import Tensor

from vse.pooling.base import RankPooling, normalised
from vse.pooling.sets import sizes_of


class AvgPool(RankPooling):
    """Mean over the elements, ``theta_k = 1 / N``. The pooling of VSE++."""

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        return normalised(torch.ones(1, total, device=sizes.device), sizes, dtype)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return features.mean(dim=1)
        kept = features.masked_fill(~mask.unsqueeze(-1), 0)
        dtype = torch.promote_types(features.dtype, torch.float32)
        return (kept.sum(dim=1, dtype=dtype) / sizes_of(features, mask).unsqueeze(1)).to(features.dtype)

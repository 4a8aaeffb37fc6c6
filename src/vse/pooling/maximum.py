"""MaxPool: the largest value of every dimension."""

from __future__ import annotations

import torch
from torch import Tensor

from vse.pooling.base import RankPooling


class MaxPool(RankPooling):
    """Maximum over the elements, ``theta = (1, 0, ..., 0)``. Equal maxima share the gradient."""

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        first = torch.arange(total, device=sizes.device) == 0
        return first.to(dtype or torch.get_default_dtype()).expand(sizes.shape[0], -1)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        if features.shape[0] == 0:
            return features.new_empty(0, features.shape[2])
        if mask is not None:
            features = features.masked_fill(~mask.unsqueeze(-1), float("-inf"))
        return features.amax(dim=1)

"""CLS pooling: the first element speaks for all."""

from __future__ import annotations

import torch
from torch import Tensor

from vse.pooling.base import Pooling


class FirstTokenPool(Pooling):
    """The first valid element: [CLS] of a BERT, the first word of a BiGRU. The order of the elements matters here."""

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        if features.shape[0] == 0:
            return features.new_empty(0, features.shape[2])
        if mask is None:
            return features[:, 0]
        first = mask.to(torch.uint8).argmax(dim=1)
        return features[torch.arange(features.shape[0], device=features.device), first]

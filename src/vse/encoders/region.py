"""Images as sets of region features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vse.encoders.projection import Projection
from vse.encoders.unit_norm import unit_norm
from vse.errors import InputError
from vse.pooling.base import Pooling
from vse.pooling.sets import Lengths, read_sets


class RegionEncoder(nn.Module):
    """``features (B, N, F)`` → projection → pooling → unit norm ``(B, D)``.

    ``lengths (B,)`` says how many regions of each image are real; without it all are.
    """

    def __init__(self, projection: Projection, pooling: Pooling, feature_size: int) -> None:
        super().__init__()
        self.projection = projection
        self.pooling = pooling
        self.feature_size = feature_size

    def forward(self, features: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None) -> Tensor:
        projected, mask = self.elements(features, lengths, mask)
        return unit_norm(self.pooling.pool(projected, mask))

    def elements(
        self, features: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The projected regions ``(B, N, D)`` before pooling, and their mask."""
        features = check_features(features, self.feature_size, self.projection.fc.weight.dtype)
        mask = read_sets(features, lengths, mask)
        return self.projection(features, mask), mask


def check_features(features: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Features of the right shape, in the type of the weights (stores hold float16)."""
    if features.dim() == 3 and features.shape[2] == width:
        return features if features.requires_grad else features.to(dtype)
    hint = "; these look like pixels, and this model takes features" if features.dim() == 4 else ""
    raise InputError(f"image features must have shape (B, N, {width}), got {tuple(features.shape)}{hint}")

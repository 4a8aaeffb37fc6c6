"""Learned attention: a weighted mean whose weights each element decides by itself."""

from __future__ import annotations

from torch import Tensor, nn

from vse.configuration import PoolingConfig
from vse.encoders.build import build_pooling
from vse.errors import InputError
from vse.hgr.config import ATTENTION
from vse.pooling.arguments import positive_int
from vse.pooling.base import Pooling
from vse.pooling.sets import check_width


class AttentionPool(Pooling):
    """``v = sum_n softmax_n(w . phi_n + b) phi_n``; D + 1 parameters."""

    def __init__(self, dim: int, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        positive_int("dim", dim)
        self.score = nn.Linear(dim, 1)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        check_width(features, self.score.in_features, type(self).__name__)
        if mask is not None:  # padding may hold NaN, and NaN times a weight of zero is still NaN
            features = features.masked_fill(~mask.unsqueeze(-1), 0)
        scores = self.score(features).squeeze(-1)  # (B, N)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return (scores.softmax(dim=1).unsqueeze(1) @ features).squeeze(1)

    def extra_repr(self) -> str:
        return f"dim={self.score.in_features}"


def build_level_pooling(config: PoolingConfig, size: int) -> Pooling:
    """The pooling of a configuration: learned attention, or one of :mod:`vse.pooling` by name."""
    if config.name != ATTENTION:
        return build_pooling(config, size)
    if config.options:
        raise InputError(f"pooling {ATTENTION!r} takes no options, got {sorted(config.options)}")
    return AttentionPool(size)

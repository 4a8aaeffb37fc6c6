"""Learned poolings that the paper compares with GPO: GeM, FSPool and self-attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vse.pooling.base import Pooling, RankPooling
from vse.pooling.rank_poolings import AvgPool
from vse.pooling.sets import check_width, interpolate_knots, positive_int, positive_number, sizes_of


class GeMPool(Pooling):
    """Generalized mean ``(1/N sum_n max(phi_n, eps)^p)^(1/p)`` with one trainable p, initially 3.

    p = 1 is the mean; p towards infinity approaches the maximum. Values are clamped at ``eps``, so negative features
    carry no information: use it after a ReLU, as its authors do. Computed as ``exp((logsumexp(p log phi) - log N) /
    p)``, which neither overflows nor underflows. p is clamped at 0.01, since the formula is undefined at zero.
    """

    MIN_P = 1e-2

    def __init__(self, p: float = 3.0, eps: float = 1e-6, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        self.eps = positive_number("eps", eps)
        self.p = nn.Parameter(torch.tensor([positive_number("p", p, least=self.MIN_P)]))

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        dtype = torch.promote_types(features.dtype, torch.float32)
        p = self.p.to(dtype).clamp(min=self.MIN_P)
        if mask is not None:  # before the logarithm: padding may hold any value
            features = features.masked_fill(~mask.unsqueeze(-1), 1.0)
        powers = features.to(dtype).clamp(min=self.eps).log() * p  # (B, N, D)
        if mask is not None:
            powers = powers.masked_fill(~mask.unsqueeze(-1), float("-inf"))
        log_size = sizes_of(features, mask).to(dtype).log().unsqueeze(1)
        return ((powers.logsumexp(dim=1) - log_size) / p).exp().to(features.dtype)

    def extra_repr(self) -> str:
        return f"p={self.p.item():.3g}, eps={self.eps}"


class FSPool(RankPooling):
    """``v_d = sum_k w_d(k / (N-1)) max_k(phi_d)`` with one piecewise linear function w_d per dimension.

    Each function has 21 learned knots by default. There is no softmax: weights may be negative and need not sum to one.
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


class SelfAttentionPool(Pooling):
    """One-head self-attention with a residual, then the mean.

    ``phi'_n = phi_n + sum_m softmax_m(q_n . k_m / sqrt(D)) v_m``. Three D x D maps with bias, 3.15 M at D = 1024.
    """

    def __init__(self, dim: int, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        positive_int("dim", dim)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.average = AvgPool()

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        check_width(features, self.query.in_features, type(self).__name__)
        if mask is not None:  # padding may hold NaN, which zero attention does not remove
            features = features.masked_fill(~mask.unsqueeze(-1), 0)
        attended = nn.functional.scaled_dot_product_attention(  # ONNX requires the axis of heads
            self.query(features).unsqueeze(1),
            self.key(features).unsqueeze(1),
            self.value(features).unsqueeze(1),
            attn_mask=None if mask is None else mask[:, None, None].expand(-1, 1, features.shape[1], -1),
        ).squeeze(1)
        pooled: Tensor = self.average.pool(features + attended.to(features.dtype), mask)
        return pooled

    def extra_repr(self) -> str:
        return f"dim={self.query.in_features}"

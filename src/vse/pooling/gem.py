"""GeM: the generalized mean with a learned exponent."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vse.pooling.arguments import positive_number
from vse.pooling.base import Pooling
from vse.pooling.sets import sizes_of


class GeMPool(Pooling):
    """Generalized mean ``(1/N sum_n max(phi_n, eps)^p)^(1/p)`` with one trainable p, 3 at the start.

    p = 1 is the mean, p towards infinity the maximum. Values are clamped at ``eps``, so negative features carry no
    information here: use it after a ReLU, as its authors do. Computed as ``exp((logsumexp(p log phi) - log N) / p)``,
    which neither overflows nor underflows for any p; the direct formula explodes on unbounded features. p itself is
    kept at 0.01 or more: at zero the formula has no value.
    """

    MIN_P = 1e-2

    def __init__(self, p: float = 3.0, eps: float = 1e-6, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        self.eps = positive_number("eps", eps)
        self.p = nn.Parameter(torch.tensor([positive_number("p", p, least=self.MIN_P)]))

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        dtype = torch.promote_types(features.dtype, torch.float32)
        p = self.p.to(dtype).clamp(min=self.MIN_P)
        if mask is not None:  # before the logarithm: padding may hold anything
            features = features.masked_fill(~mask.unsqueeze(-1), 1.0)
        powers = features.to(dtype).clamp(min=self.eps).log() * p  # (B, N, D)
        if mask is not None:
            powers = powers.masked_fill(~mask.unsqueeze(-1), float("-inf"))
        log_size = sizes_of(features, mask).to(dtype).log().unsqueeze(1)
        return ((powers.logsumexp(dim=1) - log_size) / p).exp().to(features.dtype)

    def extra_repr(self) -> str:
        return f"p={self.p.item():.3g}, eps={self.eps}"

"""SelfAttn: elements look at each other before they are averaged."""

from __future__ import annotations

from torch import Tensor, nn

from vse.pooling.arguments import positive_int
from vse.pooling.average import AvgPool
from vse.pooling.base import Pooling
from vse.pooling.sets import check_width


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
        if mask is not None:  # padding may hold NaN, and NaN times zero attention is still NaN
            features = features.masked_fill(~mask.unsqueeze(-1), 0)
        attended = nn.functional.scaled_dot_product_attention(  # with an axis of one head, which ONNX asks for
            self.query(features).unsqueeze(1),
            self.key(features).unsqueeze(1),
            self.value(features).unsqueeze(1),
            attn_mask=None if mask is None else mask[:, None, None].expand(-1, 1, features.shape[1], -1),
        ).squeeze(1)
        pooled: Tensor = self.average.pool(features + attended.to(features.dtype), mask)
        return pooled

    def extra_repr(self) -> str:
        return f"dim={self.query.in_features}"

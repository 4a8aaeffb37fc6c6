"""One step of reasoning over a role graph: every node takes from its neighbours what it attends to."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GraphAttention(nn.Module):
    """``x'_i = LayerNorm(x_i + dropout(W Σ_j a_ij x_j))`` with ``a_ij = softmax_j(q(x_i) . k(x_j) / √(D/2))``.

    The softmax is over the nodes j that i takes from, where ``edges[i, j]`` is not 0; how large it is does not count. A
    node that takes from none keeps itself. Queries and keys have half the width of the nodes.
    """

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(size, size // 2)
        self.key = nn.Linear(size, size // 2)
        self.context = nn.Linear(size, size, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(size)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """``nodes (B, N, D)`` and ``edges (B, N, N)`` to ``(B, N, D)``."""
        apart = edges == 0
        scores = self.query(nodes) @ self.key(nodes).mT / self.query.out_features**0.5  # (B, N, N)
        # The lowest number and not -inf: a row without edges would become NaN before it is set to zero.
        scores = scores.masked_fill(apart, torch.finfo(scores.dtype).min)
        taken = scores.softmax(dim=2).masked_fill(apart, 0) @ nodes
        reasoned: Tensor = self.norm(nodes + self.dropout(self.context(taken)))
        return reasoned

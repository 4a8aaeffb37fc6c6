"""From features of any width to the joint space, element by element."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vse.errors import InputError, unknown_choice
from vse.pooling.kernels.runtime import compiled

Head = Literal["linear", "residual-mlp"]
HEADS: tuple[Head, ...] = ("linear", "residual-mlp")


def create_projection(head: Head, features: int, size: int, hidden: int) -> Projection:
    """``linear`` or ``residual-mlp``; both take ``(features (B, N, F), mask)`` and give ``(B, N, size)``."""
    if head == "linear":
        return LinearProjection(features, size)
    if head == "residual-mlp":
        return ResidualProjection(features, size, hidden)
    raise InputError(unknown_choice("head", head, HEADS))


class Projection(nn.Module):
    """What both have: the linear map ``fc`` that leads straight to the joint space."""

    fc: nn.Linear


class LinearProjection(Projection):
    """``fc(x)``: one linear map, Xavier-uniform, zero bias."""

    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        self.fc = _xavier(nn.Linear(features, size))

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.fc(features)


class ResidualProjection(Projection):
    """``fc(x) + mlp(x)`` with ``mlp = Linear(F, H) → BatchNorm over all rows → ReLU → Linear(H, size)``.

    The statistics of the batch norm are taken over valid elements alone: padding would pull the mean towards its
    own value, by an amount that depends on how the sets happen to be batched. (Under ``torch.compile`` they are taken
    over all rows: the number of valid ones would be a shape that depends on values.)
    """

    def __init__(self, features: int, size: int, hidden: int = 512) -> None:
        super().__init__()
        self.fc = _xavier(nn.Linear(features, size))
        self.hidden = nn.Linear(features, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.out = nn.Linear(hidden, size)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        hidden = self.hidden(features)  # (B, N, H)
        if not self.training or mask is None or compiled():
            normed = self.norm(hidden.flatten(0, 1)).view_as(hidden)
        else:
            normed = torch.zeros_like(hidden)
            normed[mask] = self.norm(hidden[mask])
        return self.fc(features) + self.out(normed.relu())


def _xavier(linear: nn.Linear) -> nn.Linear:
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear

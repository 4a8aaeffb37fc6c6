"""How a rank becomes a vector: the trigonometric encoding of Transformers."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sincos_positions(
    count: int,
    width: int = 32,
    *,
    first: int = 0,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """``(count, width)``: position k gives ``sin(k w_j)`` in dimension 2j and ``cos(k w_j)`` in 2j+1.

    ``w_j = 10000^(-2j / width)``; positions run from ``first`` to ``first + count - 1``. ``width`` must be even.
    """
    place = torch.arange(first, first + count, device=device, dtype=dtype).unsqueeze(1)
    exponent = torch.arange(0, width, 2, device=device, dtype=dtype) * (-math.log(10000.0) / width)
    angle = place * exponent.exp()  # (count, width / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)

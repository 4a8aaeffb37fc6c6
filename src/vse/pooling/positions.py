"""How a rank becomes a vector: the trigonometric encoding of Transformers."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor

from vse.pooling.kernels.runtime import compiled

CACHED = 32
"""How many encodings are kept; a batch needs one, two towers two."""


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
    if compiled() or (device is not None and torch.device(device).type != "cpu"):
        place = torch.arange(first, first + count, device=device, dtype=dtype).unsqueeze(1)
        exponent = torch.arange(0, width, 2, device=device, dtype=dtype) * (-math.log(10000.0) / width)
        angle = place * exponent.exp()  # (count, width / 2)
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)
    # What is kept is no tensor: one made in inference mode, or under a fake tensor mode, would follow us elsewhere.
    return torch.tensor(_kept(count, width, first), dtype=dtype, device=device)


@functools.lru_cache(maxsize=CACHED)
def _kept(count: int, width: int, first: int) -> np.ndarray:
    place = np.arange(first, first + count)[:, None]
    angle = place * np.exp(np.arange(0, width, 2) * (-math.log(10000.0) / width))
    return np.stack((np.sin(angle), np.cos(angle)), axis=-1).reshape(count, width)

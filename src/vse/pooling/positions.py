"""How a rank becomes a vector: the trigonometric encoding of Transformers."""

from __future__ import annotations

import functools
import math

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
    On the CPU the result is shared between calls and must not be written to.
    """
    if compiled() or device is None or torch.device(device).type != "cpu":
        return _encode(count, width, first, device, dtype)
    return _kept(count, width, first, dtype)


def _encode(count: int, width: int, first: int, device: torch.device | str | None, dtype: torch.dtype) -> Tensor:
    place = torch.arange(first, first + count, device=device, dtype=dtype).unsqueeze(1)
    exponent = torch.arange(0, width, 2, device=device, dtype=dtype) * (-math.log(10000.0) / width)
    angle = place * exponent.exp()  # (count, width / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


@functools.lru_cache(maxsize=CACHED)
def _kept(count: int, width: int, first: int, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # a tensor made in inference mode could not be used in training later
        return _encode(count, width, first, "cpu", dtype)

"""The last step of every encoder."""

from __future__ import annotations

from torch import Tensor

_SMALLEST = 1e-8


def unit_norm(vectors: Tensor) -> Tensor:
    """Divide each row of ``(B, D)`` by its Euclidean length; a row of zeros stays zero."""
    return vectors / (vectors.norm(dim=-1, keepdim=True) + _SMALLEST)

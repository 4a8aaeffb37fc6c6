"""Functions on batches of sets that encoders, exports and other poolings build on.

A batch of sets is ``features (B, N, D)`` with ``lengths (B,)`` or ``mask (B, N)``; :func:`read_sets` checks it.
:func:`pool_with_contributions` gives the contribution of each element to the pooled vector, for heat maps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vse.errors import InputError
from vse.pooling.base import Pooling, RankPooling
from vse.pooling.kernels.runtime import compiled, usable_on
from vse.pooling.kernels.threads import Task, run_in_ranges
from vse.pooling.sets import Lengths, check_width, positive_int, prefix_mask, read_sets, sizes_of

__all__ = [
    "Lengths",
    "Task",
    "check_width",
    "compiled",
    "has_contributions",
    "pool_with_contributions",
    "positive_int",
    "prefix_mask",
    "read_sets",
    "run_in_ranges",
    "sizes_of",
    "usable_on",
]


def pool_with_contributions(pooling: Pooling, features: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Pool sets and return the contribution of every element.

    A rank pooling is ``v_d = sum_k theta_k max_k(phi_d)``. Element n, whose value has rank r(n, d) in dimension d,
    contributes ``theta_r(n,d) phi_nd``; over n these add up to ``v_d``. The order of equal values is unspecified.
    Padding contributes zero.

    Args:
        pooling: A pooling for which :func:`has_contributions` is true.
        features: ``(B, N, D)``.
        mask: ``(B, N)``, True for valid elements; None if all are.

    Returns:
        The pooled vectors ``(B, D)`` and the contributions ``(B, N, D)``.

    Raises:
        InputError: If the pooling does not weight ranks.
    """
    if not isinstance(pooling, RankPooling):
        raise InputError(f"{type(pooling).__name__} does not weight ranks, so an element's share is not defined")
    weights = pooling.batch_coefficients(features, mask)  # (B or 1, N[, D])
    if weights.dim() == 2:
        weights = weights.unsqueeze(-1)
    candidates = features if mask is None else features.masked_fill(~mask.unsqueeze(-1), -torch.inf)
    values, order = candidates.sort(dim=1, descending=True)  # (B, N, D)
    if mask is not None:  # padding by its place: a valid value may be infinite too
        values = values.masked_fill(~mask.unsqueeze(-1).expand_as(order).gather(1, order), 0)
    weighted = values * weights
    shares = torch.zeros_like(weighted).scatter(1, order, weighted)
    return weighted.sum(dim=1), shares


def has_contributions(pooling: Pooling) -> bool:
    """Return whether the contribution of an element is defined for this pooling."""
    if not isinstance(pooling, RankPooling):
        return False
    try:
        pooling.coefficients(1)
    except InputError:  # coefficients that depend on the features
        return False
    return True

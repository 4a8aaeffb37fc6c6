"""What each element of a set adds to the pooled vector: the ground of heat maps."""

from __future__ import annotations

import torch
from torch import Tensor

from vse.errors import InputError
from vse.pooling.base import Pooling, RankPooling


def pool_with_contributions(pooling: Pooling, features: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The pooled vectors ``(B, D)`` and the share of every element in them, ``(B, N, D)``.

    A rank pooling is ``v_d = sum_k theta_k max_k(phi_d)``. Element n, whose value has rank r(n, d) in dimension d,
    contributes ``theta_r(n,d) phi_nd``; over n these add up to ``v_d``. Which of two equal values ranks higher is
    left open. Padding contributes zero. Poolings that are not a matter of ranks have no such shares: see
    :func:`has_contributions`.
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
    """Whether every element's share in the pooled vector is defined, in advance of any features."""
    if not isinstance(pooling, RankPooling):
        return False
    try:
        pooling.coefficients(1)
    except InputError:  # coefficients that depend on the features
        return False
    return True

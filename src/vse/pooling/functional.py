"""Functions on batches of sets, used by encoders, exports and other poolings.

A batch of sets is ``features (B, N, D)`` with ``lengths (B,)`` or ``mask (B, N)``; :func:`read_sets` checks it.
:func:`pool_with_contributions` returns the contribution of each element to the pooled vector, for heat maps, and
:func:`drop_elements` is the size augmentation of training.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vse.errors import InputError
from vse.pooling.base import Pooling, RankPooling
from vse.pooling.kernels.runtime import compiled, usable_on
from vse.pooling.kernels.threads import Task, run_in_ranges
from vse.pooling.sets import Lengths, check_width, compact, positive_int, prefix_mask, read_sets, sizes_of

__all__ = [
    "Lengths",
    "SizeAugmentation",
    "Task",
    "check_width",
    "compact",
    "compiled",
    "drop_elements",
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
    contributes ``theta_r(n,d) phi_nd``; the contributions sum to ``v_d`` over n. The order of equal values is
    unspecified. Padding contributes zero.

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
    if mask is not None:  # by position: a valid value may be infinite too
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
    except InputError:  # its coefficients depend on the features
        return False
    return True


def drop_elements(
    features: Tensor,
    mask: Tensor | None = None,
    rate: float = 0.2,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Drop each valid element with probability ``rate``, independently, and close the gaps.

    Every set keeps at least one element: if all would be dropped, one chosen uniformly is kept. Order is preserved.

    Args:
        features: ``(B, N, D)``.
        mask: ``(B, N)`` boolean, any pattern; None if every element is valid.
        rate: In ``[0, 1)``.
        generator: Source of randomness; torch's global generator if None.

    Returns:
        ``(features (B, M, D), mask (B, M))`` with M the largest number kept; the mask marks the first n of each set.
    """
    _check_rate(rate)
    mask = read_sets(features, mask=mask)
    place = features.device if generator is None else generator.device
    draw = torch.rand(features.shape[:2], generator=generator, device=place).to(features.device)
    if mask is not None:
        draw = draw.masked_fill(~mask, -1.0)  # below every draw of a valid element
    keep = draw >= rate
    if mask is not None:
        keep &= mask
    if features.shape[0]:
        spared = torch.zeros_like(keep).scatter_(1, draw.argmax(dim=1, keepdim=True), True)
        keep |= spared & ~keep.any(dim=1, keepdim=True)
    kept, sizes = compact(features, keep)
    return kept, prefix_mask(sizes, kept.shape[1])


class SizeAugmentation(nn.Module):
    """Apply :func:`drop_elements` in training mode only; returns ``(features, mask or None)``."""

    def __init__(self, rate: float = 0.2) -> None:
        super().__init__()
        self.rate = _check_rate(rate)

    def forward(
        self,
        features: Tensor,
        lengths: Lengths | None = None,
        mask: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        mask = read_sets(features, lengths, mask)
        if not self.training or self.rate == 0:
            return features, mask
        return drop_elements(features, mask, self.rate, generator)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


def _check_rate(rate: float) -> float:
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not (math.isfinite(rate) and 0 <= rate < 1):
        raise InputError(f"rate must be at least 0 and below 1, got {rate!r}")
    return float(rate)

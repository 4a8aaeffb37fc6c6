"""Size augmentation: drop elements at random, so that a pooling sees many set sizes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vse.errors import InputError
from vse.pooling.sets import Lengths, compact, prefix_mask, read_sets


def drop_elements(
    features: Tensor,
    mask: Tensor | None = None,
    rate: float = 0.2,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Drop each valid element with probability ``rate``, independently, and close the gaps.

    At least one element of every set is kept: where all would go, one chosen uniformly stays. The kept elements keep
    their order.

    Args:
        features: ``(B, N, D)``.
        mask: ``(B, N)`` boolean, any pattern; None means that every element is valid.
        rate: in ``[0, 1)``.
        generator: where the randomness comes from; the global one if None.

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

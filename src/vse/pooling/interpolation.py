"""Coefficients of any set size from a fixed number of learned knots."""

from __future__ import annotations

import torch
from torch import Tensor

from vse.pooling.sets import prefix_mask


def interpolate_knots(knots: Tensor, sizes: Tensor, total: int) -> Tensor:
    """Stretch ``knots (K, D)`` over ``sizes (U,)`` ranks by linear interpolation: ``(U, total, D)``, zero past a size.

    Rank k of a set of N lies at ``k / (N - 1)`` between the first knot and the last; a set of one sits on the first.
    """
    last = knots.shape[0] - 1
    rank = torch.arange(total, device=sizes.device)
    rank = rank.to(torch.promote_types(knots.dtype, torch.float32))
    place = (rank / (sizes.unsqueeze(1) - 1).clamp(min=1) * last).clamp(max=last)  # (U, N)
    lower = place.floor().long().clamp(max=max(last - 1, 0))
    share = (place - lower).unsqueeze(-1).to(knots.dtype)
    values = knots[lower] * (1 - share) + knots[(lower + 1).clamp(max=last)] * share  # (U, N, D)
    return values.masked_fill(~prefix_mask(sizes, total).unsqueeze(-1), 0)

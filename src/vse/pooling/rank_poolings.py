"""Poolings with fixed weights per rank, and the first token of a sequence."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vse.errors import InputError
from vse.pooling.base import Pooling, RankPooling, normalised
from vse.pooling.sets import positive_int, sizes_of


class AvgPool(RankPooling):
    """Mean over the elements, ``theta_k = 1 / N``. The pooling of VSE++."""

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        return normalised(torch.ones(1, total, device=sizes.device), sizes, dtype)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return features.mean(dim=1)
        kept = features.masked_fill(~mask.unsqueeze(-1), 0)
        dtype = torch.promote_types(features.dtype, torch.float32)
        return (kept.sum(dim=1, dtype=dtype) / sizes_of(features, mask).unsqueeze(1)).to(features.dtype)


class MaxPool(RankPooling):
    """Maximum over the elements, ``theta = (1, 0, ..., 0)``. Equal maxima share the gradient."""

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        first = torch.arange(total, device=sizes.device) == 0
        return first.to(dtype or torch.get_default_dtype()).expand(sizes.shape[0], -1)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        if features.shape[0] == 0:
            return features.new_empty(0, features.shape[2])
        if mask is not None:
            features = features.masked_fill(~mask.unsqueeze(-1), float("-inf"))
        return features.amax(dim=1)


class KMaxPool(RankPooling):
    """Mean of the K largest values of every dimension; sets of fewer than K elements are averaged."""

    def __init__(self, k: int, *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        self.k = positive_int("k", k)

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        top = torch.arange(total, device=sizes.device) < self.k
        return normalised(top.unsqueeze(0), sizes, dtype)

    def extra_repr(self) -> str:
        return f"k={self.k}"


class TopPercentPool(RankPooling):
    """Mean of the ``max(1, round(N * percent / 100))`` largest values; halves round to even.

    With ``percent="search"``, training finds the percentage (``schedule.search_epochs`` of a recipe): it is a buffer,
    ``found``, which begins at 100, the average, and is saved with the weights.
    """

    CANDIDATES = (1.0, 5.0, 10.0, 20.0, 35.0, 50.0, 70.0, 100.0)
    """The percentages of a search; 1 is the maximum of a set of up to 149 elements."""

    def __init__(self, percent: float | Literal["search"], *, check_finite: bool = False) -> None:
        super().__init__(check_finite=check_finite)
        self.searched = percent == "search"
        if self.searched:
            self.register_buffer("found", torch.tensor(100.0))
            self.found: Tensor
        elif isinstance(percent, bool) or not isinstance(percent, (int, float)) or not 0 < percent <= 100:
            raise InputError(f"percent must be above 0 and at most 100, or 'search', got {percent!r}")
        self.percent = percent

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        percent: Tensor | float = self.found.double() if self.searched else float(self.percent)
        return share_weights(sizes, total, percent, dtype)

    def extra_repr(self) -> str:
        return f"percent={self.percent!r}, found={float(self.found):g}" if self.searched else f"percent={self.percent}"


def share_weights(sizes: Tensor, total: int, percent: Tensor | float, dtype: torch.dtype | None) -> Tensor:
    """Return equal weights for the largest ``percent`` of each size, at least one element: ``(U, total)``."""
    kept = torch.round(sizes.double() * percent / 100).clamp(min=1)
    top = torch.arange(total, device=sizes.device) < kept.unsqueeze(1)  # (U, N)
    return normalised(top, sizes, dtype)


class LinearDecayPool(RankPooling):
    """Weight the k-th largest of N values (k from 1) in proportion to ``N - k``; a set of one gets weight 1."""

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        rank = torch.arange(1, total + 1, device=sizes.device)
        fall = (sizes.unsqueeze(1) - rank).clamp(min=0)  # (U, N)
        single = (sizes.unsqueeze(1) == 1) & (rank == 1)
        return normalised(fall + single, sizes, dtype)


class FirstTokenPool(Pooling):
    """Return the first valid element: [CLS] of a BERT, the first word of a BiGRU. Order matters."""

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        if features.shape[0] == 0:
            return features.new_empty(0, features.shape[2])
        if mask is None:
            return features[:, 0]
        first = mask.to(torch.uint8).argmax(dim=1)
        return features[torch.arange(features.shape[0], device=features.device), first]

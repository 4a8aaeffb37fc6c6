"""The two towers as torch modules that ONNX can express: tensors in, tensors out, the pooling frozen to a table."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from vse.convert.onnx_gru import ExportableBiGRU, without_packing
from vse.encoders.bigru import BiGRUEncoder
from vse.encoders.unit_norm import unit_norm
from vse.encoders.words import WordEncoder
from vse.pooling.base import Pooling
from vse.pooling.contributions import has_contributions, pool_with_contributions


class PixelTower(nn.Module):
    """``pixels (B, 3, H, W)`` → ``embedding (B, D)`` and, where the pooling weights ranks, ``contributions``.

    ``contributions (B, N, D)`` add up to the embedding over the cells; their product with a query vector is the
    evidence of each cell for it.
    """

    def __init__(self, encoder: Any, cells: int) -> None:
        super().__init__()
        self.encoder = _frozen(encoder, cells)
        self.explains = has_contributions(self.encoder.pooling)

    def forward(self, pixels: Tensor) -> Any:
        elements, mask = self.encoder.elements(pixels)
        return embed(self.encoder.pooling, elements, mask, explain=self.explains)


class FeatureTower(nn.Module):
    """``features (B, N, F)`` and ``lengths (B,)`` → the same outputs as :class:`PixelTower`."""

    def __init__(self, encoder: Any, largest: int) -> None:
        super().__init__()
        self.encoder = _frozen(encoder, largest)
        self.explains = has_contributions(self.encoder.pooling)

    def forward(self, features: Tensor, lengths: Tensor) -> Any:
        elements, mask = self.encoder.elements(features, lengths)
        return embed(self.encoder.pooling, elements, mask, explain=self.explains)


class TextTower(nn.Module):
    """``tokens (B, L)`` and ``lengths (B,)`` → ``embedding (B, D)``."""

    def __init__(self, encoder: Any, longest: int) -> None:
        super().__init__()
        frozen = _frozen(encoder, longest)
        self.encoder = ExportableBiGRU(frozen) if isinstance(frozen, BiGRUEncoder | WordEncoder) else frozen

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        elements, mask = self.encoder.elements(tokens, lengths)
        return unit_norm(self.encoder.pooling.pool(elements, mask))


def embed(pooling: Pooling, elements: Tensor, mask: Tensor | None, *, explain: bool) -> Any:
    """The unit vector, and each element's part in it if ``explain``."""
    if not explain:
        return unit_norm(pooling.pool(elements, mask))
    pooled, shares = pool_with_contributions(pooling, elements, mask)
    unit = unit_norm(pooled)
    return unit, shares / (pooled.norm(dim=-1, keepdim=True).unsqueeze(1) + 1e-8)


def _frozen(encoder: nn.Module, largest: int) -> Any:
    """A copy whose pooling is a table where that is possible."""
    frozen: Any = copy.deepcopy(encoder).eval().requires_grad_(False)
    pooling = frozen.pooling
    if has_contributions(pooling):
        frozen.pooling = pooling.freeze(largest)
    else:
        frozen.pooling = without_packing(pooling)
    return frozen

"""The interface of vision backbones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vse.encoders.functional import evaluation_mode

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing


class Backbone(nn.Module):
    """Map ``pixels (B, 3, H, W)`` to cells ``(B, h·w, C)`` in row-major order.

    Subclasses implement :meth:`feature_map`, which returns ``(B, C, h, w)``.
    """

    channels: int

    def feature_map(self, pixels: Tensor) -> Tensor:
        """Return the features of all cells, ``(B, C, h, w)``."""
        raise NotImplementedError

    def preprocessing(self, size: int | None = None) -> ImagePreprocessing:
        """Return the image preprocessing, at the default size or at ``size`` × ``size``."""
        raise NotImplementedError

    def forward(self, pixels: Tensor) -> Tensor:
        return self.feature_map(pixels).flatten(2).transpose(1, 2)  # (B, h·w, C)

    @torch.no_grad()
    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the numbers of rows and columns of cells for an image of this size."""
        parameter = next(self.parameters())
        blank = torch.zeros(1, 3, height, width, dtype=parameter.dtype, device=parameter.device)
        with evaluation_mode(self):
            rows, columns = self.feature_map(blank).shape[2:]
        return int(rows), int(columns)

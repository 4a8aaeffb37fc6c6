"""Images as the grid of cells that a vision backbone computes."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vse.encoders.backbones.base import Backbone
from vse.encoders.projection import Projection
from vse.encoders.region import check_features
from vse.encoders.unit_norm import unit_norm
from vse.errors import InputError
from vse.pooling.base import Pooling
from vse.pooling.sets import Lengths, read_sets


class GridEncoder(nn.Module):
    """``pixels (B, 3, H, W)`` → backbone ``(B, h·w, C)`` → projection → pooling → unit norm ``(B, D)``.

    Cell features ``(B, N, C)`` that were computed before are accepted in the place of pixels and skip the backbone.
    The backbone's batch norms keep their running statistics while training; their scale and shift are trained.
    """

    def __init__(self, backbone: Backbone, projection: Projection, pooling: Pooling) -> None:
        super().__init__()
        self.backbone = backbone
        self.projection = projection
        self.pooling = pooling

    @property
    def feature_size(self) -> int:
        """The width C of a cell."""
        return self.backbone.channels

    def forward(self, pixels: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None) -> Tensor:
        projected, mask = self.elements(pixels, lengths, mask)
        return unit_norm(self.pooling.pool(projected, mask))

    def elements(
        self, pixels: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The projected cells ``(B, N, D)`` before pooling, and their mask."""
        if pixels.dim() == 4:
            if pixels.shape[1] != 3:
                raise InputError(f"pixels must have shape (B, 3, H, W), got {tuple(pixels.shape)}")
            cells = self.backbone(pixels)
        else:
            cells = check_features(pixels, self.feature_size, self.projection.fc.weight.dtype)
        mask = read_sets(cells, lengths, mask)
        return self.projection(cells, mask), mask

    def train(self, mode: bool = True) -> GridEncoder:
        super().train(mode)
        for module in self.backbone.modules():
            if isinstance(module, _BatchNorm):
                module.eval()
        return self

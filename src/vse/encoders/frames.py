"""Videos as sets of frame features."""

from __future__ import annotations

from torch import Tensor, nn

from vse.encoders.region import check_features
from vse.encoders.unit_norm import unit_norm
from vse.pooling.base import Pooling
from vse.pooling.sets import Lengths, read_sets


class FrameEncoder(nn.Module):
    """``frames (B, T, C)`` → Linear → dropout → pooling → unit norm ``(B, D)``.

    ``lengths (B,)`` says how many frames of each video are real; without it all are.
    """

    def __init__(self, feature_size: int, size: int, pooling: Pooling, dropout: float) -> None:
        super().__init__()
        self.fc = nn.Linear(feature_size, size)
        self.dropout = nn.Dropout(dropout)
        self.pooling = pooling
        self.feature_size = feature_size

    def forward(self, frames: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None) -> Tensor:
        projected, mask = self.elements(frames, lengths, mask)
        return unit_norm(self.pooling.pool(projected, mask))

    def elements(
        self, frames: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The projected frames ``(B, T, D)`` before pooling, and their mask."""
        frames = check_features(frames, self.feature_size, self.fc.weight.dtype)
        mask = read_sets(frames, lengths, mask)
        if mask is not None:  # whatever the padding holds must not reach the gradient of the weights
            frames = frames.masked_fill(~mask.unsqueeze(-1), 0)
        return self.dropout(self.fc(frames)), mask

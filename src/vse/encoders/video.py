"""Encode videos given as frame features, and compute those features with an image backbone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vse.encoders.backbones import Backbone, create_backbone
from vse.encoders.functional import evaluation_mode, state_fingerprint, unit_norm
from vse.encoders.image import check_features
from vse.encoders.third_party import offline
from vse.errors import InputError
from vse.pooling import Pooling
from vse.pooling.functional import Lengths, read_sets


class FrameEncoder(nn.Module):
    """``frames (B, T, C)`` → Linear → dropout → pooling → unit norm ``(B, D)``.

    ``lengths (B,)`` is the number of valid frames per video; by default all are valid.
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
        """Return the projected frames ``(B, T, D)`` before pooling, and their mask."""
        frames = check_features(frames, self.feature_size, self.fc.weight.dtype)
        mask = read_sets(frames, lengths, mask)
        if mask is not None:  # padding must not affect the gradient of the weights
            frames = frames.masked_fill(~mask.unsqueeze(-1), 0)
        return self.dropout(self.fc(frames)), mask


LARGEST = float(np.finfo(np.float16).max)  # 65504
NAN = "the backbone gives NaN for it"


@dataclass(frozen=True)
class FrameFeatures:
    """``rows`` are float16 ``(n, C)``, one per frame; ``clipped`` counts values beyond the range of float16."""

    rows: NDArray[np.float16]
    clipped: int


@torch.inference_mode()
def see_cells(backbone: Backbone, pixels: NDArray[Any], autocast: torch.dtype | None = None) -> Tensor:
    """Return the cell features ``(B, h·w, C)`` float32 of pixels ``(B, 3, H, W)``, on the backbone's device.

    ``autocast`` is the type in which convolutions and products are computed, by default that of the weights.
    """
    like = next(backbone.parameters())
    with torch.autocast(like.device.type, dtype=autocast, enabled=autocast is not None):
        cells: Tensor = backbone(torch.from_numpy(pixels).to(like.device, like.dtype))
    return cells.float()


def as_float16(values: Tensor) -> tuple[NDArray[np.float16], int]:
    """Round values to float16, clipped to ±65504; also return how many were clipped."""
    clipped = int((values.abs() > LARGEST).sum())
    return values.clamp(-LARGEST, LARGEST).half().cpu().numpy(), clipped


def see_frames(backbone: Backbone, pixels: NDArray[np.float32], batch_size: int) -> FrameFeatures | None:
    """Return one row per frame ``(n, 3, H, W)`` of a video, the mean over its cells; None if any value is NaN."""
    starts = range(0, len(pixels), batch_size)
    with evaluation_mode(backbone):
        means = torch.cat([see_cells(backbone, pixels[start : start + batch_size]).mean(1) for start in starts])
    if bool(means.isnan().any()):
        return None
    return FrameFeatures(*as_float16(means))


OTHERWISE = "compute the features with 'vse features' where it was used, and pass the arrays"


class FrameBackbone:
    """The frozen backbone that computed a model's frame features; neither trained nor saved with the model.

    Args:
        name: Name of the backbone, see :func:`vse.encoders.create_backbone`.
        options: Its options.
        fingerprint: Fingerprint of the published weights that the features were computed with.

    Raises:
        InputError: If the backbone is in no package and not in the hub's cache, or its weights have another
            fingerprint.
    """

    def __init__(self, name: str, options: Mapping[str, Any], fingerprint: str) -> None:
        used = f"this model encodes frames with {name!r}"
        try:
            with offline():  # a model's folder names the backbone, not the user
                self._backbone = create_backbone(name, pretrained=True, **options)
        except InputError as error:
            raise InputError(f"{used}, which is unavailable here ({error}): {OTHERWISE}") from None
        found = state_fingerprint(self._backbone.state_dict())
        if found != fingerprint:
            raise InputError(
                f"{used} and the weights {fingerprint}, but those here are {found}: install the release of the "
                f"backbone that was used, or {OTHERWISE}"
            )

    def features(
        self, pixels: NDArray[np.float32], batch_size: int, device: torch.device
    ) -> NDArray[np.float16] | None:
        """Return the features ``(n, C)`` of frames ``(n, 3, H, W)`` as ``vse features`` stores them; None if NaN."""
        found = see_frames(self._backbone.to(device), pixels, batch_size)
        return None if found is None else found.rows

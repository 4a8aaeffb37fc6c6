"""What a backbone sees in pictures, as it is kept: cells, or one row a frame, in the range of float16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vse.encoders.backbones import Backbone
from vse.encoders.evaluation_mode import evaluation_mode

LARGEST = float(np.finfo(np.float16).max)  # 65504
NAN = "the backbone gives NaN for it"


@dataclass(frozen=True)
class FrameFeatures:
    """``rows`` float16 ``(n, C)``, one a frame; ``clipped`` counts the values that float16 cannot hold."""

    rows: NDArray[np.float16]
    clipped: int


@torch.inference_mode()
def see_cells(backbone: Backbone, pixels: NDArray[Any]) -> Tensor:
    """Pixels ``(B, 3, H, W)`` to the features of their cells ``(B, h·w, C)`` float32, where the backbone is."""
    like = next(backbone.parameters())
    cells: Tensor = backbone(torch.from_numpy(pixels).to(like.device, like.dtype))
    return cells.float()


def as_float16(values: Tensor) -> tuple[NDArray[np.float16], int]:
    """Values clipped to ±65504 and rounded, and how many were clipped."""
    clipped = int((values.abs() > LARGEST).sum())
    return values.clamp(-LARGEST, LARGEST).half().cpu().numpy(), clipped


def see_frames(backbone: Backbone, pixels: NDArray[np.float32], batch_size: int) -> FrameFeatures | None:
    """Frames ``(n, 3, H, W)`` of a clip to one row each, the mean over its cells; None where the backbone gives NaN."""
    starts = range(0, len(pixels), batch_size)
    with evaluation_mode(backbone):
        means = torch.cat([see_cells(backbone, pixels[start : start + batch_size]).mean(1) for start in starts])
    if bool(means.isnan().any()):
        return None
    return FrameFeatures(*as_float16(means))

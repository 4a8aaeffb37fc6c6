"""The backbone that saw the frames a model was trained on, made again to see others."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from vse.configuration import FrameBackboneConfig
from vse.encoders.backbones import create_backbone
from vse.encoders.frame_features import see_frames
from vse.errors import InputError
from vse.fingerprints import state_fingerprint

OTHERWISE = "compute the features with 'vse features' where it was used, and pass the arrays"


class FrameBackbone:
    """A backbone by name, with its published weights, which must be those that ``config.fingerprint`` stands for.

    It is no part of the model: it is neither trained nor saved with it.
    """

    def __init__(self, config: FrameBackboneConfig) -> None:
        told = f"the frames of this model are seen by {config.name!r}"
        try:
            self._backbone = create_backbone(config.name, pretrained=True, **config.options)
        except InputError as error:
            raise InputError(f"{told}, which cannot be had here ({error}): {OTHERWISE}") from None
        found = state_fingerprint(self._backbone.state_dict())
        if found != config.fingerprint:
            raise InputError(
                f"{told} with the weights {config.fingerprint}, and those here are {found}: install the release of the "
                f"backbone that was used, or {OTHERWISE}"
            )

    def features(
        self, pixels: NDArray[np.float32], batch_size: int, device: torch.device
    ) -> NDArray[np.float16] | None:
        """Frames ``(n, 3, H, W)`` to ``(n, C)``, as ``vse features`` keeps them; None where it gives NaN."""
        seen = see_frames(self._backbone.to(device), pixels, batch_size)
        return None if seen is None else seen.rows

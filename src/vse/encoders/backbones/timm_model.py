"""Any CNN or plain vision transformer of timm."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

from vse.encoders.backbones.base import Backbone
from vse.encoders.third_party import repair_torchvision
from vse.errors import InputError, require, unknown_choice

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing

LOADING_FAILED = "its pretrained weights are unavailable (no network, or unknown weights)"


class TimmBackbone(Backbone):
    """Return the features of a timm model before its pooling and classifier.

    ``options`` are passed to ``timm.create_model``. ``pretrained=True`` downloads weights from the hub.
    """

    def __init__(self, model: str, *, pretrained: bool = False, **options: Any) -> None:
        super().__init__()
        repair_torchvision()
        timm = require("timm", "train", f"the backbone 'timm:{model}'")
        if not timm.is_model(model):
            close = timm.list_models(f"*{model.partition('_')[0]}*")[:8] or timm.list_models()[:8]
            raise InputError(unknown_choice("timm model", model, close))
        try:
            with _without_retries():
                self.model = timm.create_model(model, pretrained=pretrained, num_classes=0, global_pool="", **options)
        except (OSError, RuntimeError, TypeError) as error:
            reason = LOADING_FAILED if pretrained and not isinstance(error, TypeError) else str(error)
            raise InputError(f"timm model {model!r}: {reason}") from error
        self.channels = int(self.model.num_features)

    def feature_map(self, pixels: Tensor) -> Tensor:
        try:
            features = self.model.forward_features(pixels)
        except AssertionError as error:  # a transformer with a fixed input size
            raise InputError(f"this backbone cannot take images of {tuple(pixels.shape[2:])}: {error}") from None
        if features.dim() == 3:  # tokens of a transformer, after those without a position
            return tokens_to_map(features[:, self.model.num_prefix_tokens :], pixels)
        if features.shape[1] != self.channels and features.shape[-1] == self.channels:
            return features.permute(0, 3, 1, 2)
        return features

    def preprocessing(self, size: int | None = None) -> ImagePreprocessing:
        from vse.inputs.preprocessing import ImagePreprocessing

        card = self.model.pretrained_cfg
        side = size or int(card["input_size"][-1])
        return ImagePreprocessing(
            size=(side, side),
            resize="bilinear" if card.get("interpolation") == "bilinear" else "bicubic",
            mean=scaled(card["mean"]),
            std=scaled(card["std"]),
        )


@contextmanager
def _without_retries() -> Iterator[None]:
    """Silence the hub client's retry messages; the error reports the failure in one line."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def scaled(values: Sequence[float]) -> tuple[float, float, float]:
    """Scale three numbers from the range 0–1 to 0–255."""
    red, green, blue = (255.0 * value for value in values)
    return red, green, blue


def tokens_to_map(tokens: Tensor, pixels: Tensor) -> Tensor:
    """Reshape patch tokens ``(B, h·w, C)`` to a map ``(B, C, h, w)`` with the image's aspect ratio."""
    count = tokens.shape[1]
    rows = round(math.sqrt(count * pixels.shape[2] / pixels.shape[3]))
    if rows < 1 or count % rows:
        raise InputError(f"{count} patch tokens do not form a grid for an image of {tuple(pixels.shape[2:])}")
    return tokens.transpose(1, 2).unflatten(2, (rows, count // rows))

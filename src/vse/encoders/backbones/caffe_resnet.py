"""The ResNet of the released code, in Caffe's layout: the stride is on the first 1×1 convolution of a block.

The usual layout (torchvision, timm) has the stride on the 3×3 convolution and pads the first max-pool. Parameter names
and shapes are the same, so weights of one layout load into the other without an error and give wrong features. The
layout is therefore part of a model's configuration. Caffe's has the stride on ``conv1`` of a block, and a 3×3 max-pool
with stride 2, no padding and rounded-up size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from vse.encoders.backbones.base import Backbone
from vse.errors import InputError

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
EXPANSION = 4
PAPER_SIZE = 512


class CaffeResNet(Backbone):
    """Map ``(B, 3, H, W)`` to about ``(B, 32·width, ⌈H/32⌉, ⌈W/32⌉)``: five halvings, the second rounded up.

    ``blocks`` is the number of bottlenecks in each of the four stages. ``detector`` selects the preprocessing of the
    bottom-up attention detector (BGR, no scaling) instead of ImageNet's.
    """

    def __init__(self, blocks: Sequence[int] = BLOCKS[101], width: int = 64, *, detector: bool = False) -> None:
        super().__init__()
        if len(blocks) != 4 or min(blocks) < 1:
            raise InputError(f"a ResNet has four stages of at least one block, got blocks={list(blocks)}")
        self.detector = detector
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=0, ceil_mode=True)
        inputs = width
        for stage, count in enumerate(blocks):
            planes = width * 2**stage
            layer = [Bottleneck(inputs, planes, stride=1 if stage == 0 else 2)]
            inputs = planes * EXPANSION
            layer += [Bottleneck(inputs, planes) for _ in range(count - 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.channels = inputs
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def feature_map(self, pixels: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(pixels))))
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return x

    def preprocessing(self, size: int | None = None) -> ImagePreprocessing:
        from vse.inputs.preprocessing import butd, imagenet

        return (butd if self.detector else imagenet)(size or PAPER_SIZE)


class Bottleneck(nn.Module):
    """Convolutions 1×1 (strided), 3×3 and 1×1, with a shortcut."""

    def __init__(self, inputs: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        outputs = planes * EXPANSION
        self.conv1 = nn.Conv2d(inputs, planes, 1, stride=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))

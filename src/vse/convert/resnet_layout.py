"""Which ResNet a checkpoint of the released code holds.

Depth, width and groups can be read off the tensors. The layout cannot: Caffe's and the usual one have the same names
and shapes. The option ``backbone_source`` tells it: all plain ResNets of the released code are Caffe-style, only
``wsl`` and ``imagenet_resnext`` have the usual layout.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vse.configuration import BackboneConfig
from vse.encoders.backbones.caffe_resnet import BLOCKS
from vse.errors import InputError, unknown_choice

DEPTHS = {"imagenet": 101, "imagenet_res50": 50, "imagenet_res152": 152}
USUAL_LAYOUT = ("wsl", "imagenet_resnext")
# The same tensors are saved a second time in the order in which the released code runs them.
COPIES = {
    "base.0.": "conv1.",
    "base.1.": "bn1.",
    "base.4.": "layer1.",
    "base.5.": "layer2.",
    "base.6.": "layer3.",
    "top.0.": "layer4.",
}
UNUSED = "fc."


def resnet_tensors(image: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """The ResNet's tensors under their usual names, from ``backbone.resnet.*``; the copies must agree with them."""
    prefix = "backbone.resnet."
    tensors = {name.removeprefix(prefix): value for name, value in image.items() if name.startswith(prefix)}
    copied = {name.removeprefix("backbone."): value for name, value in image.items() if not name.startswith(prefix)}
    for name, value in copied.items():
        start = next((start for start in COPIES if name.startswith(start)), None)
        if start is None:
            raise InputError(f"{where}: 'backbone.{name}' is not expected in a grid checkpoint")
        usual = COPIES[start] + name.removeprefix(start)
        if usual in tensors and not torch.equal(tensors[usual], value):
            raise InputError(f"{where}: 'backbone.{name}' and '{prefix}{usual}' should be the same tensor and differ")
        tensors.setdefault(usual, value)
    return {name: value for name, value in tensors.items() if not name.startswith(UNUSED)}


def backbone_config(source: str, tensors: Mapping[str, Tensor], where: str) -> BackboneConfig:
    """The backbone that ``backbone_source`` names, with the sizes that the tensors have."""
    blocks = _blocks(tensors, where)
    if source in USUAL_LAYOUT or "wsl" in source:
        kernel = tensors["layer1.0.conv2.weight"].shape  # (groups × width, width, 3, 3)
        options: dict[str, Any] = {"layers": blocks, "cardinality": kernel[0] // kernel[1], "base_width": kernel[1]}
        return BackboneConfig(name="timm:resnext101_32x8d", options=options)
    detector = "detector" in source
    if not detector and source not in DEPTHS:
        raise InputError(
            f"{where}: {unknown_choice('backbone_source', source, ['detector', 'wsl', *DEPTHS, 'imagenet_resnext'])}"
        )
    depth = next((depth for depth, usual in BLOCKS.items() if list(usual) == blocks), None)
    if not detector and depth not in {None, DEPTHS[source]}:
        meant = f"backbone_source {source!r} means ResNet-{DEPTHS[source]}"
        raise InputError(f"{where}: {meant}, the tensors are those of ResNet-{depth}")
    options = {"blocks": blocks, "width": tensors["conv1.weight"].shape[0], "detector": detector}
    return BackboneConfig(name="caffe-resnet", options=options)


def _blocks(tensors: Mapping[str, Tensor], where: str) -> list[int]:
    counts = [0, 0, 0, 0]
    for name in tensors:
        match = re.match(r"layer([1-4])\.(\d+)\.", name)
        if match:
            stage = int(match[1]) - 1
            counts[stage] = max(counts[stage], int(match[2]) + 1)
    if sum(counts) > len(tensors):
        raise InputError(f"{where}: the names of the backbone's tensors make no sense: {counts} blocks")
    if any(t in tensors and tensors[t].dim() != 4 for t in ("conv1.weight", "layer1.0.conv2.weight")):
        raise InputError(f"{where}: the backbone's convolutions are not tensors of four dimensions")
    if min(counts) == 0 or "conv1.weight" not in tensors or "layer1.0.conv2.weight" not in tensors:
        raise InputError(f"{where}: the backbone is not a ResNet of four stages (blocks found: {counts})")
    return counts

"""Vision backbones by name.

``caffe-resnet50|101|152`` and ``caffe-resnet`` (own ``blocks`` and ``width``), ``efficientnet-lite0|1|2``,
``timm:NAME`` for any model of timm, ``transformers`` with an ``architecture`` or ``transformers:SOURCE`` for a
pretrained tower.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from vse._util.plugins import Registry
from vse.encoders.backbones.base import Backbone
from vse.encoders.backbones.caffe_resnet import BLOCKS, CaffeResNet
from vse.encoders.backbones.efficientnet_lite import SIZES, EfficientNetLite
from vse.encoders.backbones.timm_model import TimmBackbone
from vse.encoders.backbones.vision_transformer import VisionTransformer
from vse.encoders.third_party import repair_torchvision
from vse.errors import InputError, PluginError, unknown_choice

__all__ = ["Backbone", "CaffeResNet", "EfficientNetLite", "TimmBackbone", "VisionTransformer", "create_backbone"]

PREFIXES = ("timm:NAME", "transformers", "transformers:SOURCE")
PLUGINS: Registry[Callable[..., Backbone]] = Registry("vse.backbones")


def list_backbones() -> list[str]:
    """Return the names and name patterns that :func:`create_backbone` accepts."""
    named = [f"caffe-resnet{depth}" for depth in BLOCKS] + [f"efficientnet-lite{variant}" for variant in SIZES]
    return ["caffe-resnet", *named, *PREFIXES, *PLUGINS]


def _unknown_backbone(name: str) -> str:
    """Return the message for an unknown name; the bare name of a timm model is the likeliest mistake."""
    repair_torchvision()
    try:
        import timm
    except ImportError:
        return unknown_choice("backbone", name, list_backbones())
    spelled = {_bare(model): model for model in timm.list_models()}
    message = unknown_choice("backbone", name, list_backbones())
    if not timm.is_model(name) and _bare(name) not in spelled:
        return message
    meant = name if timm.is_model(name) else spelled[_bare(name)]
    return f"{message.partition(' (did you mean')[0]} (did you mean 'timm:{meant}'?)"


def _bare(name: str) -> str:
    """Return a name without what spellings differ in: ``resnet-50`` is ``resnet50``."""
    return name.lower().replace("-", "").replace("_", "")


def create_backbone(name: str | Backbone, *, pretrained: bool = False, **options: Any) -> Backbone:
    """Create a backbone by name; an existing backbone is returned unchanged.

    Args:
        name: See :func:`list_backbones`.
        pretrained: Load published weights: from a package for EfficientNet-Lite, from the hub for timm. The Caffe
            ResNets have none; theirs are part of converted checkpoints.
        **options: Options of the backbone.

    Raises:
        InputError: If the name is unknown or the weights are unavailable.
    """
    if isinstance(name, Backbone):
        return name
    family, _, rest = name.partition(":")
    build: Callable[..., Backbone]
    given: dict[str, Any]
    if family == "timm" and rest:
        build, given = TimmBackbone, {"model": rest, "pretrained": pretrained}
    elif family == "transformers":
        build, given = VisionTransformer, {"pretrained": rest} if rest else {}
    elif name.removeprefix("efficientnet-lite") in map(str, SIZES):
        build, given = EfficientNetLite, {"variant": int(name[-1]), "pretrained": pretrained}
    elif name == "caffe-resnet" or name.removeprefix("caffe-resnet") in map(str, BLOCKS):
        depth = name.removeprefix("caffe-resnet")
        build, given = CaffeResNet, {"blocks": BLOCKS[int(depth)]} if depth else {}
        if pretrained:
            raise InputError(f"no published weights for {name!r} here: convert a checkpoint, or use 'timm:resnet101'")
    elif name in PLUGINS:
        made = PLUGINS.call(name, pretrained=pretrained, **options)
        if not isinstance(made, Backbone):
            raise PluginError(f"{PLUGINS.origin(name)}: expected a vse.encoders.Backbone, got {type(made).__name__}")
        return made
    else:
        raise InputError(_unknown_backbone(name))
    try:
        inspect.signature(build).bind(**given, **options)
    except TypeError as error:
        raise InputError(f"backbone {name!r}: {error}") from None
    return build(**given, **options)

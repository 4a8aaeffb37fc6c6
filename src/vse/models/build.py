"""Build encoders from their configuration, and the backbone that computed frame features."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from vse.encoders.backbones import VisionTransformer, create_backbone
from vse.encoders.functional import state_fingerprint
from vse.encoders.image import GridEncoder, RegionEncoder, create_projection
from vse.encoders.text import BiGRUEncoder, WordEncoder
from vse.encoders.transformer_text import (
    TransformerTextEncoder,
    architecture_of,
    create_transformer,
    load_transformer,
)
from vse.encoders.video import FrameEncoder, see_frames
from vse.errors import InputError
from vse.models.config import (
    FrameBackboneConfig,
    FramesConfig,
    ImageConfig,
    PoolingConfig,
    RegionConfig,
    TextConfig,
    TransformerConfig,
)
from vse.pooling import create_pooling
from vse.pooling.base import Pooling
from vse.pooling.registry import pooling_builder


def build_pooling(config: PoolingConfig, size: int) -> Pooling:
    """A pooling for features of width ``size``; those that must know the width are told."""
    options = dict(config.options)
    if "dim" in inspect.signature(pooling_builder(config.name)).parameters:
        options.setdefault("dim", size)
    return create_pooling(config.name, **options)


def build_image_encoder(config: ImageConfig, size: int, *, pretrained: bool = False) -> tuple[nn.Module, ImageConfig]:
    """An image encoder and its complete configuration: preprocessing and a transformer's architecture filled in."""
    pooling = build_pooling(config.pooling, size)
    if isinstance(config, RegionConfig):
        projection = create_projection(config.head, config.feature_size, size, config.hidden_size)
        return RegionEncoder(projection, pooling, config.feature_size), config
    if isinstance(config, FramesConfig):
        return FrameEncoder(config.feature_size, size, pooling, config.dropout), config
    backbone = create_backbone(config.backbone.name, pretrained=pretrained, **config.backbone.options)
    projection = create_projection(config.head, backbone.channels, size, config.hidden_size)
    update: dict[str, Any] = {}
    if isinstance(backbone, VisionTransformer):
        described = {"architecture": backbone.architecture, "normalise": backbone.normalise}
        update["backbone"] = config.backbone.model_copy(update={"name": "transformers", "options": described})
    if config.preprocessing is None:
        update["preprocessing"] = backbone.preprocessing(config.image_size).to_json()
    return GridEncoder(backbone, projection, pooling), config.model_copy(update=update)


def build_text_encoder(config: TextConfig, size: int) -> tuple[nn.Module, TextConfig]:
    """A text encoder and its complete configuration."""
    pooling = build_pooling(config.pooling, size)
    if not isinstance(config, TransformerConfig):
        words, width = config.vocabulary_size, config.word_size
        if config.kind == "words":
            return WordEncoder(words, width, size, pooling, config.dropout), config
        return BiGRUEncoder(words, width, size, pooling), config
    if config.architecture:
        transformer = create_transformer(config.architecture)
    elif config.pretrained is not None:
        transformer = load_transformer(config.pretrained)
    else:
        raise InputError("text.kind 'transformer' needs 'pretrained' (a directory or hub id) or an 'architecture'")
    described = config.model_copy(update={"architecture": architecture_of(transformer)})
    return TransformerTextEncoder(transformer, size, pooling), described


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

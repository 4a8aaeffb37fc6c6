"""Build poolings and encoders from their configuration."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from vse.encoders.backbones import VisionTransformer, create_backbone
from vse.encoders.image import GridEncoder, RegionEncoder, create_projection
from vse.encoders.text import BiGRUEncoder, WordEncoder
from vse.encoders.transformer_text import (
    TransformerTextEncoder,
    architecture_of,
    create_transformer,
    load_transformer,
)
from vse.encoders.video import FrameEncoder
from vse.errors import InputError
from vse.models.config import (
    FramesConfig,
    ImageConfig,
    PoolingConfig,
    RegionConfig,
    TextConfig,
    TransformerConfig,
)
from vse.pooling import Pooling, create_pooling, pooling_builder


def build_pooling(config: PoolingConfig, size: int) -> Pooling:
    """Build a pooling for features of width ``size``."""
    options = dict(config.options)
    if "dim" in inspect.signature(pooling_builder(config.name)).parameters:
        options.setdefault("dim", size)
    return create_pooling(config.name, **options)


def build_image_encoder(config: ImageConfig, size: int, *, pretrained: bool = False) -> tuple[nn.Module, ImageConfig]:
    """Build an image encoder; return it with its configuration, preprocessing and architecture filled in."""
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
    """Build a text encoder; return it with its configuration, a transformer's architecture filled in."""
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

"""Build poolings and encoders from their configuration."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from vse.encoders.backbones import VisionTransformer, create_backbone
from vse.encoders.dual import DualImageEncoder, DualTextEncoder, create_dual
from vse.encoders.image import GridEncoder, RegionEncoder, create_projection
from vse.encoders.text import PluginTextEncoder, WordEncoder
from vse.encoders.transformer_text import (
    TransformerTextEncoder,
    architecture_of,
    create_transformer,
    load_transformer,
)
from vse.encoders.video import FrameEncoder
from vse.errors import InputError
from vse.models.config import (
    OWN,
    CharactersConfig,
    DualImageConfig,
    DualTextConfig,
    FramesConfig,
    GRUConfig,
    ImageConfig,
    ModelConfig,
    PluginTextConfig,
    PoolingConfig,
    RegionConfig,
    TextConfig,
    TransformerConfig,
)
from vse.models.system_config import LAST, SystemConfig
from vse.pooling import Pooling, create_pooling, pooling_builder
from vse.systems.registry import text_encoder_class
from vse.systems.text import CharacterEncoder, GRUEncoder, LastPool


def build_pooling(config: PoolingConfig, size: int) -> Pooling:
    """Build a pooling for features of width ``size``."""
    options = dict(config.options)
    if "dim" in inspect.signature(pooling_builder(config.name)).parameters:
        options.setdefault("dim", size)
    return create_pooling(config.name, **options)


def shared_dual(config: ModelConfig) -> Any:
    """Return the network whose halves both towers are, so that it is built once; None for other models."""
    image, text = config.image, config.text
    if not isinstance(image, DualImageConfig) or not isinstance(text, DualTextConfig):
        return None
    same = (image.library, image.architecture) == (text.library, text.architecture)
    return create_dual(image.library, image.architecture) if same else None


def build_image_encoder(
    config: ImageConfig, size: int, *, pretrained: bool = False, dual: Any = None
) -> tuple[nn.Module, ImageConfig]:
    """Build an image encoder; return it with its configuration, preprocessing and architecture filled in.

    ``dual`` is the network of a dual encoder, if it exists already.
    """
    if isinstance(config, DualImageConfig):
        network = dual if dual is not None else create_dual(config.library, config.architecture)
        own = config.pooling.name == OWN
        pooling = None if own else build_pooling(config.pooling, size)
        return DualImageEncoder(config.library, network, pooling), config
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
    return GridEncoder(backbone, projection, pooling, config.windows), config.model_copy(update=update)


def build_text_encoder(
    config: TextConfig, size: int, *, dual: Any = None, system: SystemConfig | None = None
) -> tuple[nn.Module, TextConfig]:
    """Build a text encoder; return it with its configuration, a transformer's architecture filled in."""
    if isinstance(config, DualTextConfig):
        network = dual if dual is not None else create_dual(config.library, config.architecture)
        return DualTextEncoder(config.library, network, config.pad_to, config.pad_id), config
    if isinstance(config, GRUConfig | CharactersConfig):
        pooling = LastPool() if config.pooling.name == LAST else build_pooling(config.pooling, size)
        if isinstance(config, GRUConfig):
            return GRUEncoder(config.vocabulary_size, config.word_size, size, pooling), config
        options = config.model_dump(exclude={"kind", "vocabulary_size", "pooling"})
        return CharacterEncoder(config.vocabulary_size, size, pooling, **options), config
    pooling = build_pooling(config.pooling, size)
    if not isinstance(config, TransformerConfig):
        encoder: nn.Module
        words = config.vocabulary_size
        if isinstance(config, PluginTextConfig):
            encoder = PluginTextEncoder(config.encoder, words, size, pooling, config.options)
        elif config.kind == "words":
            encoder = WordEncoder(words, config.word_size, size, pooling, config.dropout)
        else:
            encoder = text_encoder_class(system)(words, config.word_size, size, pooling)
        return encoder, config
    if config.architecture:
        transformer = create_transformer(config.architecture)
    elif config.pretrained is not None:
        transformer = load_transformer(config.pretrained)
    else:
        raise InputError("text.kind 'transformer' needs 'pretrained' (a directory or hub id) or an 'architecture'")
    described = config.model_copy(update={"architecture": architecture_of(transformer)})
    return TransformerTextEncoder(transformer, size, pooling), described

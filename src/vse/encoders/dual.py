"""Both towers of a public dual encoder: CLIP, SigLIP, Chinese-CLIP, AltCLIP, MetaCLIP 2 and the models of open_clip.

A dual encoder is one network; here its halves are two encoders with the calls of all others. ``transformers`` models
are used through ``get_image_features`` and ``get_text_features``, open_clip's through ``visual`` and ``encode_text``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vse.encoders.functional import unit_norm
from vse.encoders.text import check_tokens
from vse.encoders.third_party import (
    check_numbers,
    check_size,
    describe_config,
    import_transformers,
    load_pretrained,
    network_config,
    offline,
    repair_torchvision,
    stored_shapes,
)
from vse.errors import InputError, first_line, require
from vse.pooling import Pooling
from vse.pooling.functional import Lengths, read_sets

Library = Literal["transformers", "open_clip"]
MODEL_TYPES = ("clip", "siglip", "chinese_clip", "altclip", "metaclip_2")
"""Dual encoders of transformers that can be used; SigLIP 2 of a fixed size is a ``siglip``."""
UNMASKED = ("siglip",)
"""Models that were trained without an attention mask: padding is a part of the text."""
OPEN_CLIP_WEIGHTS = "open_clip_model.safetensors"
OPEN_CLIP_CONFIG = "open_clip_config.json"


def create_dual(library: Library, architecture: Mapping[str, Any]) -> Any:
    """Build a dual encoder with random weights from its configuration.

    Raises:
        InputError: If the library does not know the architecture.
    """
    if library == "open_clip":
        text = architecture.get("text_cfg", {})
        if isinstance(text, Mapping) and "hf_model_name" in text:
            raise InputError(
                f"this open_clip model has a text tower of the hub ({text['hf_model_name']}), which a saved model does "
                "not describe: use an export of the original ('vse pull')"
            )
        return _open_clip(dict(architecture))
    transformers = import_transformers("a CLIP-like model")
    config = network_config(transformers, architecture, MODEL_TYPES, "a dual encoder")
    try:
        return transformers.AutoModel.from_config(config)
    except (ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise InputError(f"transformers cannot build this {config.model_type!r} model: {first_line(error)}") from None


def load_dual(library: Library, folder: Path, architecture: Mapping[str, Any], weights: Sequence[Path]) -> Any:
    """Load a dual encoder from a folder of published files; only safetensors are read, and nothing is fetched.

    Args:
        library: What it was published for.
        folder: Its files.
        architecture: Its configuration.
        weights: Its safetensors files.

    Raises:
        InputError: If files do not belong together, or the configuration asks for other ones.
    """
    shapes = stored_shapes(weights)
    if library == "transformers":
        transformers = import_transformers("a CLIP-like model")
        config = network_config(transformers, architecture, MODEL_TYPES, str(folder), parts=len(shapes))
        with offline():
            check_size(lambda: transformers.AutoModel.from_config(config), shapes, str(folder))
            return load_pretrained(transformers, str(folder), config=config, local_files_only=True)
    check_numbers(architecture, len(shapes), str(folder / OPEN_CLIP_CONFIG))
    text = architecture.get("text_cfg", {})
    outside = text.get("hf_model_name") if isinstance(text, Mapping) else None
    try:
        with offline():
            check_size(lambda: _open_clip(dict(architecture)), shapes, str(folder))
            model = _open_clip(dict(architecture))
    except InputError as error:
        if outside is None:
            raise
        raise InputError(
            f"{folder}: its text tower is that of {outside!r}, whose configuration has to be in the hub's cache "
            f"('hf download {outside} config.json'): {error}"
        ) from None
    safetensors = require("safetensors.torch", "train", f"loading {str(folder)!r}")
    path = folder / OPEN_CLIP_WEIGHTS
    try:
        state = safetensors.load_file(path)
    except Exception as error:
        raise InputError(f"{path}: not a complete safetensors file ({first_line(error)})") from error
    own = model.state_dict()
    wrong = sorted(own.keys() ^ state.keys()) or [name for name in own if own[name].shape != state[name].shape]
    if wrong:
        raise InputError(f"{path}: {len(wrong)} tensors do not fit open_clip_config.json ({', '.join(wrong[:3])}, …)")
    model.load_state_dict(state)
    return model


def dual_architecture(library: Library, model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration from which :func:`create_dual` builds the same network."""
    return dict(given) if library == "open_clip" else describe_config(model.config)


def _open_clip(config: dict[str, Any]) -> Any:
    repair_torchvision()  # open_clip imports it, and a build that does not match torch's fails
    open_clip = require("open_clip", "open-clip", "an open_clip model")
    text = config.get("text_cfg", {})
    if isinstance(text, Mapping):  # the weights come from the file: nothing is to be fetched while building
        config = config | {"text_cfg": {**text, "hf_model_pretrained": False}}
    vision = config.get("vision_cfg", {})
    if isinstance(vision, Mapping):
        config = config | {"vision_cfg": {**vision, "timm_model_pretrained": False}}
    custom = config.pop("custom_text", False) or (isinstance(text, Mapping) and "hf_model_name" in text)
    try:
        return (open_clip.CustomTextCLIP if custom else open_clip.CLIP)(**config)
    except Exception as error:  # of several libraries
        raise InputError(f"open_clip cannot build this model: {first_line(error)}") from error


def _half(model: Any, *, drop: tuple[str, ...]) -> Any:
    """Return the network without the parts whose names begin with ``drop``, and without its temperature."""
    part = copy.copy(model)
    part._modules = {name: child for name, child in model._modules.items() if not name.startswith(drop)}
    part._parameters = {
        name: value
        for name, value in model._parameters.items()
        if not name.startswith(("logit_", *drop)) and value is not None
    }
    return part


class DualImageEncoder(nn.Module):
    """``pixels (B, 3, H, W)`` → the image half of a dual encoder → unit norm ``(B, D)``.

    With a pooling, the embedding is ``own + gate · pool(patches)``: patch tokens are projected as the model projects
    its own pooled token, pooled, and added. ``gate`` starts at 0, so that a new model is the published one.
    """

    def __init__(self, library: Library, model: Any, pooling: Pooling | None = None) -> None:
        super().__init__()
        if library == "open_clip" and pooling is not None:
            raise InputError(
                "model.image.pooling: patches of open_clip models cannot be pooled; take the model from transformers"
            )
        self.library: Library = library
        self.pooling = pooling
        if pooling is not None:
            self.gate = nn.Parameter(torch.zeros(()))
        self.backbone: Any = model.visual if library == "open_clip" else _half(model, drop=("text",))

    @classmethod
    def around(cls, encoder: DualImageEncoder, pooling: Pooling) -> DualImageEncoder:
        """Return an encoder with the network of ``encoder`` and a pooling over patch tokens."""
        return cls(encoder.library, encoder.backbone, pooling)

    @property
    def feature_size(self) -> int:
        """Width of a patch token; images are what the encoder takes."""
        if self.library == "open_clip":
            return int(getattr(self.backbone, "output_dim", 0) or 1)
        return int(self.backbone.config.vision_config.hidden_size)

    @property
    def patches(self) -> int:
        """Number of patches of an image of the model's own size."""
        vision = self.backbone.config.vision_config
        return int(vision.image_size // vision.patch_size) ** 2

    def forward(self, pixels: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None) -> Tensor:
        if pixels.dim() != 4 or pixels.shape[1] != 3:
            raise InputError(f"pixels must have shape (B, 3, H, W), got {tuple(pixels.shape)}")
        if self.library == "open_clip":
            return unit_norm(_first(self.backbone(pixels)))
        found = self.backbone.get_image_features(pixel_values=pixels)
        own = _pooled(found)
        if self.pooling is None:
            return unit_norm(own)
        return unit_norm(own + self.gate * self.pooling.pool(self._patches(found.last_hidden_state), mask))

    def _patches(self, tokens: Tensor) -> Tensor:
        """Return the projected patch tokens ``(B, N, D)``, without the class token."""
        vision, projection = self.backbone.vision_model, getattr(self.backbone, "visual_projection", None)
        if projection is None:  # SigLIP: no class token, no projection, and the norm is already applied
            return tokens
        return projection(vision.post_layernorm(tokens[:, 1:]))


class DualTextEncoder(nn.Module):
    """``tokens (B, L)`` → the text half of a dual encoder → unit norm ``(B, D)``.

    ``pad_to`` is the length that all texts are padded to with ``pad_id``, for models whose padding is part of the text
    or whose networks take one length only.
    """

    def __init__(self, library: Library, model: Any, pad_to: int | None = None, pad_id: int = 0) -> None:
        super().__init__()
        self.library: Library = library
        self.pad_to, self.pad_id = pad_to, pad_id
        self.transformer: Any = _half(model, drop=("vis",))

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens that the network has embeddings of."""
        if self.library == "open_clip":
            return int(getattr(self.transformer, "vocab_size", 0) or self.transformer.text.vocab_size)
        return int(self.transformer.config.text_config.vocab_size)

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of tokens of a text."""
        if self.library == "open_clip":
            return int(getattr(self.transformer, "context_length", 0) or self.transformer.text.context_length)
        config = self.transformer.config.text_config
        positions = getattr(config, "max_position_embeddings", None)
        if positions is not None and config.model_type in {"altclip_text_model", "xlm-roberta"}:
            positions -= (config.pad_token_id or 0) + 1  # positions are numbered from the padding id
        return positions

    def forward(self, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:
        tokens = check_tokens(tokens, self.vocabulary_size)
        longest = self.max_tokens
        if longest is not None and tokens.shape[1] > longest:
            raise InputError(f"a text of {tokens.shape[1]} tokens is longer than the {longest} this model reads")
        mask = read_sets(tokens.unsqueeze(-1).float(), lengths)
        if mask is not None:
            tokens = tokens.masked_fill(~mask, self.pad_id)
        if self.pad_to is not None:
            missing = self.pad_to - tokens.shape[1]
            tokens = nn.functional.pad(tokens, (0, missing), value=self.pad_id)
            mask = None if mask is None else nn.functional.pad(mask, (0, missing), value=False)
        if self.library == "open_clip":
            return unit_norm(_first(self.transformer.encode_text(tokens)))
        if self.transformer.config.model_type in UNMASKED:
            return unit_norm(_pooled(self.transformer.get_text_features(input_ids=tokens)))
        attended = torch.ones_like(tokens) if mask is None else mask.long()
        return unit_norm(_pooled(self.transformer.get_text_features(input_ids=tokens, attention_mask=attended)))


def _pooled(found: Any) -> Tensor:
    """Return the embedding from the output of transformers 4 (a tensor) or 5 (an object)."""
    return found if isinstance(found, Tensor) else found.pooler_output


def _first(found: Any) -> Tensor:
    return found[0] if isinstance(found, tuple) else found

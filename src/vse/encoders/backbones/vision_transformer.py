"""Patch tokens of a vision transformer: ViT, CLIP, SigLIP, DINOv2 and similar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from vse.encoders.backbones.base import Backbone
from vse.encoders.backbones.timm_model import scaled, tokens_to_map
from vse.encoders.third_party import (
    VISION_TYPES,
    describe_config,
    import_transformers,
    load_pretrained,
    network_config,
    published_config,
)
from vse.errors import InputError, first_line, require

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing

Triple = tuple[float, float, float]
HALF: tuple[Triple, Triple] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))  # ViT and SigLIP
IMAGENET: tuple[Triple, Triple] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# Mean and standard deviation by family, for weights without a preprocessing configuration.
USUAL: dict[str, tuple[Triple, Triple]] = {
    "clip_vision_model": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "dinov2": IMAGENET,
    "dinov2_with_registers": IMAGENET,
    "deit": IMAGENET,
}
WHOLE_TYPES = (*VISION_TYPES, "altclip", "chinese_clip", "clip", "metaclip_2", "siglip", "siglip2")
"""Published models whose image tower can be taken."""


class VisionTransformer(Backbone):
    """Return the last hidden states of the patches, without tokens that have no position (CLS, registers).

    Args:
        architecture: Hugging Face configuration of a model with random weights.
        pretrained: Local folder or hub id of a model to load instead; ``architecture`` is then read from it.
        normalise: Mean and standard deviation of the pretrained preprocessing, in 0–1 units.
    """

    def __init__(
        self,
        architecture: Mapping[str, Any] | None = None,
        *,
        pretrained: str | None = None,
        normalise: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        transformers = import_transformers("a vision transformer backbone")
        if (architecture is None) == (pretrained is None):
            raise InputError("a vision transformer needs either an architecture or the name of a pretrained model")
        try:
            if pretrained is not None:
                config = published_config(transformers, pretrained, WHOLE_TYPES, "a vision transformer")
                model = load_pretrained(transformers, pretrained, config=config)
                normalise = normalise or _published_preprocessing(pretrained)
            else:
                config = network_config(transformers, architecture or {}, VISION_TYPES, "a vision transformer")
                model = transformers.AutoModel.from_config(config)
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
            source = pretrained or "this architecture"
            raise InputError(f"no vision transformer from {source!r}: {first_line(error)}") from None
        self.model: Any = getattr(model, "vision_model", model)
        _freeze_unused(self.model)
        config = self.model.config
        if not hasattr(config, "patch_size"):
            raise InputError(f"a {config.model_type!r} is not a vision transformer: it has no patches")
        self.patch = int(config.patch_size)
        self.channels = int(config.hidden_size)
        self.architecture = describe_config(config)
        self.normalise = dict(normalise or {})

    def feature_map(self, pixels: Tensor) -> Tensor:
        rows, columns = pixels.shape[2] // self.patch, pixels.shape[3] // self.patch
        native = int(self.model.config.image_size)
        options = {} if (pixels.shape[2], pixels.shape[3]) == (native, native) else {"interpolate_pos_encoding": True}
        tokens = self.model(pixel_values=pixels, **options).last_hidden_state  # (B, extra + h·w, C)
        return tokens_to_map(tokens[:, tokens.shape[1] - rows * columns :], pixels)

    def preprocessing(self, size: int | None = None) -> ImagePreprocessing:
        from vse.inputs.preprocessing import ImagePreprocessing

        side = size or int(self.model.config.image_size)
        usual = USUAL.get(self.model.config.model_type, HALF)
        mean, std = self.normalise.get("mean", usual[0]), self.normalise.get("std", usual[1])
        return ImagePreprocessing(
            size=(side, side),
            resize="bicubic",
            mean=scaled(mean),
            std=scaled(std),
        )


def _freeze_unused(model: Any) -> None:
    """Freeze parts that the patch tokens never pass through: distributed training waits for every gradient."""
    unused = ["pooler", "head", "embeddings.mask_token"]
    if model.config.model_type == "clip_vision_model":
        unused.append("post_layernorm")  # only the CLS token passes through it; SigLIP's is for all tokens
    for name, parameter in model.named_parameters():
        if name.startswith(tuple(unused)):
            parameter.requires_grad_(False)


def _published_preprocessing(source: str) -> dict[str, Any]:
    """Return mean and standard deviation from ``preprocessor_config.json`` beside the weights, if any."""
    path = Path(source) / "preprocessor_config.json"
    if not path.is_file():
        try:
            hub = require("huggingface_hub", "train", f"loading {source!r} from the hub")
            path = Path(hub.hf_hub_download(source, "preprocessor_config.json"))
        except (OSError, ValueError):
            return {}
    card = json.loads(path.read_text(encoding="utf-8"))
    return {"mean": card["image_mean"], "std": card["image_std"]} if "image_mean" in card else {}

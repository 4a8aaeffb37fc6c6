"""GPO inside networks of timm and transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from vse.errors import InputError
from vse.pooling import Pooling, create_pooling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEADS = ("global_pool", "head.global_pool")
"""Where timm keeps the pooling of convolutional networks."""


class MapPooling(nn.Module):
    """Pool a feature map ``(B, C, H, W)``, or ``(B, H, W, C)``, to ``(B, C)``, as timm's ``global_pool`` does.

    Args:
        pooling: A pooling over sets, or its name.
        channels_last: The map is ``(B, H, W, C)``.
        keep_map: Return ``(B, C, 1, 1)``, or ``(B, 1, 1, C)``, for heads that flatten afterwards.
        options: Of a pooling that is named.

    Example:
        >>> MapPooling("gpo")(torch.randn(2, 8, 7, 7)).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        pooling: str | Pooling = "gpo",
        *,
        channels_last: bool = False,
        keep_map: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.pooling = create_pooling(pooling, **(options or {})) if isinstance(pooling, str) else pooling
        self.channels_last, self.keep_map = channels_last, keep_map
        self.pool_type = "vse"  # timm asks for it, and refuses to build this one anew

    def forward(self, features: Tensor) -> Tensor:
        if features.dim() != 4:
            raise InputError(f"expected a feature map of four dimensions, got {tuple(features.shape)}")
        cells = features.flatten(1, 2) if self.channels_last else features.flatten(2).transpose(1, 2)  # (B, H·W, C)
        pooled: Tensor = self.pooling(cells)
        if not self.keep_map:
            return pooled
        return pooled[:, None, None] if self.channels_last else pooled[:, :, None, None]

    def is_identity(self) -> bool:
        """Return whether maps pass through, as timm's heads ask."""
        return False

    def feat_mult(self) -> int:
        """Return how many times wider the output is than the map has channels."""
        return 1


def set_global_pool(model: nn.Module, pooling: str | Pooling = "gpo", **options: Any) -> nn.Module:
    """Replace the global pooling of a convolutional timm model in place, and return the model.

    Args:
        model: Such as ``timm.create_model("resnet50", num_classes=10)``.
        pooling: A pooling or its name.
        options: Of a pooling that is named.

    Returns:
        The same model. Its classifier and ``forward_features`` are unchanged, and ``model.reset_classifier(10)`` keeps
        the pooling, with its weights, unless it names another one.

    Raises:
        InputError: The model has no global pooling over a feature map, as vision transformers.

    Example:
        >>> model = set_global_pool(timm.create_model("resnet18"), start="average")  # doctest: +SKIP
    """
    for path in HEADS:
        parent_path, _, name = path.rpartition(".")
        try:
            parent = model.get_submodule(parent_path)
            old = parent.get_submodule(name)
        except AttributeError:
            continue
        if isinstance(old, MapPooling):
            channels_last, keep_map = old.channels_last, old.keep_map
        else:
            inner = getattr(old, "pool", old)
            layout = getattr(inner, "input_fmt", "NCHW")
            channels_last = str(getattr(layout, "value", layout)).upper() == "NHWC"
            keep_map = not (isinstance(getattr(old, "flatten", None), nn.Flatten) or getattr(inner, "flatten", False))
        setattr(parent, name, MapPooling(pooling, channels_last=channels_last, keep_map=keep_map, options=options))
        if hasattr(model, "reset_classifier"):
            # Unlike a closure or a method, a partial is copied and pickled together with the model that it names.
            cast(Any, model).reset_classifier = partial(_reset_classifier, model, path)
        return model
    raise InputError(
        f"{type(model).__name__} has no global pooling over a feature map: pool its tokens with vse.pooling instead"
    )


def _reset_classifier(model: Any, path: str, num_classes: int, global_pool: str | None = None, **options: Any) -> None:
    """Give a timm model a new classifier, and its pooling back: timm would build another by the name of its type."""
    pooling = model.get_submodule(path)
    keep = global_pool is None and isinstance(pooling, MapPooling)
    type(model).reset_classifier(model, num_classes, "avg" if keep else global_pool, **options)
    if keep:
        model.set_submodule(path, pooling)


class FeatureExtraction:
    """Embed texts with a transformers model and a pooling, called like ``pipeline("feature-extraction")``.

    Args:
        model: A transformers encoder, whose output has ``last_hidden_state``.
        tokenizer: Its tokenizer.
        pooling: A pooling or its name; a trained module keeps its weights.
        normalize: Divide embeddings by their norm.

    Example:
        >>> extract = FeatureExtraction(model, tokenizer, pooling="avg")  # doctest: +SKIP
        >>> extract(["two dogs", "a cake"]).shape  # doctest: +SKIP
        (2, 768)
    """

    def __init__(
        self, model: nn.Module, tokenizer: Any, pooling: str | Pooling = "gpo", *, normalize: bool = True
    ) -> None:
        self.model, self.tokenizer, self.normalize = model, tokenizer, normalize
        self.pooling = create_pooling(pooling) if isinstance(pooling, str) else pooling
        self.pooling.to(next(model.parameters()).device)

    @torch.inference_mode()
    def __call__(self, texts: str | Sequence[str], *, batch_size: int = 32) -> NDArray[np.float32]:
        """Return embeddings ``(n, D)``; one text gives one row."""
        wanted = [texts] if isinstance(texts, str) else list(texts)
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        if not wanted:
            raise InputError("no texts: give at least one")
        device = next(self.model.parameters()).device
        was_training, rows = self.model.training, []
        self.model.eval()
        try:
            for start in range(0, len(wanted), batch_size):
                batch = self.tokenizer(
                    wanted[start : start + batch_size], padding=True, truncation=True, return_tensors="pt"
                ).to(device)
                states = self.model(**batch).last_hidden_state
                rows.append(self.pooling(states, attention_mask=batch["attention_mask"]).float().cpu())
        finally:
            self.model.train(was_training)
        pooled = torch.cat(rows)
        found: NDArray[np.float32] = (nn.functional.normalize(pooled, dim=1) if self.normalize else pooled).numpy()
        return found

"""Image encoders: project and pool region features or grid cells."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vse.encoders.backbones.base import Backbone
from vse.encoders.functional import unit_norm
from vse.errors import InputError, unknown_choice
from vse.inputs.regions import window_weights
from vse.pooling import Pooling
from vse.pooling.functional import Lengths, compiled, read_sets

Head = Literal["linear", "residual-mlp", "leaky-unit", "class-words"]
HEADS: tuple[Head, ...] = ("linear", "residual-mlp", "leaky-unit", "class-words")


def create_projection(head: Head, features: int, size: int, hidden: int) -> Projection:
    """Create one of ``HEADS``; each maps ``(features (B, N, F), mask)`` to ``(B, N, size)``.

    ``hidden`` is the width of the hidden layer for ``residual-mlp``, and the number of classes for ``class-words``.
    """
    if head == "linear":
        return LinearProjection(features, size)
    if head == "residual-mlp":
        return ResidualProjection(features, size, hidden)
    if head == "leaky-unit":
        return LeakyUnitProjection(features, size)
    if head == "class-words":
        return ClassWordsProjection(features, size, hidden)
    raise InputError(unknown_choice("head", head, HEADS))


class Projection(nn.Module):
    """Map features of width F to ``size`` for the valid elements of sets; padding becomes zero.

    Padding costs nothing and never affects statistics or gradients. Under ``torch.compile`` and in exports all elements
    are mapped, since the number of valid ones would be a data-dependent shape. ``fc`` is the linear map to the joint
    space.
    """

    fc: nn.Linear
    padded_norm = False
    """Whether padding is mapped in training too, and counts in batch statistics, as in the released code."""

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None or compiled() or (self.padded_norm and self.training):
            if mask is not None and self.training:  # NaN in the padding would reach the gradients
                features = features.masked_fill(~mask.unsqueeze(-1), 0)
            return self.project(features)
        valid = mask.flatten().nonzero().squeeze(1)
        projected = self.project(features.flatten(0, 1).index_select(0, valid))
        padded = projected.new_zeros(mask.numel(), projected.shape[1]).index_copy_(0, valid, projected)
        return padded.unflatten(0, features.shape[:2])

    def project(self, elements: Tensor) -> Tensor:
        """Map ``(…, F)`` to ``(…, size)``."""
        raise NotImplementedError


class LinearProjection(Projection):
    """``fc(x)``: one linear map, Xavier-uniform, zero bias."""

    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        self.fc = _xavier(nn.Linear(features, size))

    def project(self, elements: Tensor) -> Tensor:
        return self.fc(elements)


class LeakyUnitProjection(LinearProjection):
    """``leaky(fc(x))`` with slope 0.1, scaled to unit length: LIWE's regions before their mean."""

    def project(self, elements: Tensor) -> Tensor:
        return unit_norm(nn.functional.leaky_relu(self.fc(elements), 0.1))


class ResidualProjection(Projection):
    """``fc(x) + mlp(x)`` with ``mlp = Linear(F, H) → BatchNorm over all rows → ReLU → Linear(H, size)``.

    Batch norm statistics cover valid elements only: padding would shift the mean depending on how sets are batched.
    (Under ``torch.compile`` they cover all rows.)
    """

    def __init__(self, features: int, size: int, hidden: int = 512) -> None:
        super().__init__()
        self.fc = _xavier(nn.Linear(features, size))
        self.hidden = nn.Linear(features, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.out = nn.Linear(hidden, size)

    def project(self, elements: Tensor) -> Tensor:
        hidden = self.hidden(elements)  # (…, H)
        normed = self.norm(hidden.flatten(0, -2)).view_as(hidden)
        return self.fc(elements) + self.out(normed.relu())


class ClassWordsProjection(Projection):
    """``fc(x) + words(softmax(classes(x) / T))``: the classes that a classifier sees, as embeddings of their names.

    ``classes`` (F to C) is the classifier that the features were trained with. It stays frozen, so that no distinction
    is lost if few of its classes occur in training. ``words`` (C to ``size``) and ``fc`` are trained.
    :func:`vse.encoders.class_words.begin_with_class_words` initialises both parts.
    """

    TEMPERATURE = 2.0
    """Of the softmax. At the classifier's 1 nearly all weight is on one class, which describes a scene poorly."""

    def __init__(self, features: int, size: int, classes: int = 1000) -> None:
        super().__init__()
        self.fc = _xavier(nn.Linear(features, size))
        self.words = nn.Linear(classes, size)
        self.register_buffer("classes_weight", torch.zeros(classes, features))
        self.register_buffer("classes_bias", torch.zeros(classes))
        self.classes_weight: Tensor
        self.classes_bias: Tensor

    def project(self, elements: Tensor) -> Tensor:
        classes = nn.functional.linear(elements, self.classes_weight, self.classes_bias)  # (…, classes)
        return self.fc(elements) + self.words((classes / self.TEMPERATURE).softmax(-1))


def _xavier(linear: nn.Linear) -> nn.Linear:
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


class RegionEncoder(nn.Module):
    """``features (B, N, F)`` → projection → pooling → unit norm ``(B, D)``.

    ``lengths (B,)`` is the number of valid regions per image; by default all are valid.
    """

    def __init__(self, projection: Projection, pooling: Pooling, feature_size: int) -> None:
        super().__init__()
        self.projection = projection
        self.pooling = pooling
        self.feature_size = feature_size

    def forward(self, features: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None) -> Tensor:
        projected, mask = self.elements(features, lengths, mask)
        return unit_norm(self.pooling.pool(projected, mask))

    def elements(
        self, features: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the projected regions ``(B, N, D)`` before pooling, and their mask."""
        features = check_features(features, self.feature_size, self.projection.fc.weight.dtype)
        mask = read_sets(features, lengths, mask)
        return self.projection(features, mask), mask


def check_features(features: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Check the shape of features and convert them to the dtype of the weights (stores hold float16)."""
    if features.dim() == 3 and features.shape[2] == width:
        return features if features.requires_grad else features.to(dtype)
    hint = "; these look like pixels, but this model takes features" if features.dim() == 4 else ""
    raise InputError(f"image features must have shape (B, N, {width}), got {tuple(features.shape)}{hint}")


class GridEncoder(nn.Module):
    """``pixels (B, 3, H, W)`` → backbone ``(B, h·w, C)`` → projection → pooling → unit norm ``(B, D)``.

    With ``windows`` the cells are first averaged inside that many windows of several sizes,
    :func:`vse.inputs.regions.window_boxes`, which take their place. Precomputed features ``(B, N, C)`` of cells or
    windows are accepted instead of pixels and skip the backbone. In training, the backbone's batch norms keep their
    running statistics fixed; their scale and shift are trained.
    """

    def __init__(
        self, backbone: Backbone, projection: Projection, pooling: Pooling, windows: int | None = None
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.projection = projection
        self.pooling = pooling
        self.windows = windows

    @property
    def feature_size(self) -> int:
        """Width C of a cell."""
        return self.backbone.channels

    def forward(self, pixels: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None) -> Tensor:
        projected, mask = self.elements(pixels, lengths, mask)
        return unit_norm(self.pooling.pool(projected, mask))

    def elements(
        self, pixels: Tensor, lengths: Lengths | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the projected cells ``(B, N, D)`` before pooling, and their mask."""
        if pixels.dim() == 4:
            if pixels.shape[1] != 3:
                raise InputError(f"pixels must have shape (B, 3, H, W), got {tuple(pixels.shape)}")
            cells = self.backbone(pixels) if self.windows is None else self._window_means(pixels, self.windows)
        else:
            cells = check_features(pixels, self.feature_size, self.projection.fc.weight.dtype)
        mask = read_sets(cells, lengths, mask)
        return self.projection(cells, mask), mask

    def cells(self, height: int, width: int) -> int:
        """Return how many cells or windows an image of that size has."""
        if self.windows is not None:
            return self.windows
        rows, columns = self.backbone.grid(height, width)
        return int(rows * columns)

    def _window_means(self, pixels: Tensor, windows: int) -> Tensor:
        """Return the mean of the cells in each window, ``(B, windows, C)``."""
        cells = self.backbone.feature_map(pixels)  # (B, C, h, w)
        weights = torch.tensor(window_weights(windows, *cells.shape[2:]), dtype=cells.dtype, device=cells.device)
        return weights @ cells.flatten(2).transpose(1, 2)

    def train(self, mode: bool = True) -> GridEncoder:
        super().train(mode)
        for module in self.backbone.modules():
            if isinstance(module, _BatchNorm):
                module.eval()
        return self

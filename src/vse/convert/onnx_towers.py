"""The two towers as torch modules that ONNX can express: tensors in, tensors out, the pooling frozen to a table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from vse.encoders.dual import DualTextEncoder
from vse.encoders.functional import unit_norm
from vse.encoders.text import BiGRUEncoder, WordEncoder
from vse.errors import require
from vse.pooling import Pooling, Seq2SeqPool
from vse.pooling.functional import has_contributions, pool_with_contributions, prefix_mask, sizes_of
from vse.systems.readouts import Readout

INT32 = 6  # ONNX's number for the type


class ExportableGRU(nn.Module):
    """A ``torch.nn.GRU`` of one layer whose directions are averaged: ``(B, L, W)`` and lengths to ``(B, L, D)``.

    ONNX orders the gates update, reset, new; torch reset, update, new.
    """

    weights: Tensor
    recurrent: Tensor
    biases: Tensor

    def __init__(self, gru: nn.GRU) -> None:
        super().__init__()
        directions = ("", "_reverse") if gru.bidirectional else ("",)

        def stacked(name: str) -> Tensor:
            return torch.stack([_reordered(getattr(gru, f"{name}_l0{direction}")) for direction in directions])

        self.register_buffer("weights", stacked("weight_ih"))  # (directions, 3·D, W)
        self.register_buffer("recurrent", stacked("weight_hh"))  # (directions, 3·D, D)
        self.register_buffer("biases", torch.cat((stacked("bias_ih"), stacked("bias_hh")), dim=1))  # (…, 6·D)

    def forward(self, sequence: Tensor, lengths: Tensor) -> Tensor:
        operator = _operators()[len(self.weights) - 1]
        return operator(sequence, lengths, self.weights, self.recurrent, self.biases)


class ExportableBiGRU(nn.Module):
    """A :class:`BiGRUEncoder` up to its pooling, with the recurrence as one operator."""

    def __init__(self, encoder: BiGRUEncoder | WordEncoder) -> None:
        super().__init__()
        self.embed = encoder.embed
        self.rnn = ExportableGRU(encoder.rnn)
        self.pooling: Pooling = encoder.pooling

    def elements(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return states ``(B, L, D)`` and mask, as :meth:`BiGRUEncoder.elements` does."""
        return self.rnn(self.embed(tokens), lengths), prefix_mask(lengths, tokens.shape[1])


class ExportableSeq2Seq(Pooling):
    """A :class:`Seq2SeqPool` for sets whose valid elements come first, as towers receive them."""

    def __init__(self, pooling: Seq2SeqPool) -> None:
        super().__init__()
        self.gru = ExportableGRU(pooling.gru)

    def pool(self, features: Tensor, mask: Tensor | None) -> Tensor:
        sizes = sizes_of(features, mask)
        states = self.gru(features, sizes)
        return states.gather(1, (sizes - 1).view(-1, 1, 1).expand(-1, 1, states.shape[2])).squeeze(1)


def without_packing(pooling: Pooling) -> Pooling:
    """Return the pooling with every :class:`Seq2SeqPool` in it replaced by an exportable one."""
    if isinstance(pooling, Seq2SeqPool):
        return ExportableSeq2Seq(pooling)
    for name, child in pooling.named_children():
        if isinstance(child, Seq2SeqPool):
            setattr(pooling, name, ExportableSeq2Seq(child))
    return pooling


def gru_translations(tower: nn.Module) -> dict[Any, Callable[..., Any]]:
    """Return how the exporter writes the recurrences of ``tower`` in ONNX."""
    found = next((module for module in tower.modules() if isinstance(module, ExportableGRU)), None)
    if found is None:
        return {}
    hidden = found.recurrent.shape[2]  # the joint space: the same for every recurrence of a tower
    names = ("forward", "bidirectional")
    return {operator: _translation(name, hidden) for operator, name in zip(_operators(), names, strict=True)}


@cache
def _operators() -> tuple[Any, Any]:
    """Return the operators of one and two directions, registered on first use; they are traced, never run."""
    made = []
    for name in ("gru", "bigru"):

        @torch.library.custom_op(f"vse::{name}", mutates_args=())
        def recurrence(words: Tensor, lengths: Tensor, weights: Tensor, recurrent: Tensor, biases: Tensor) -> Tensor:
            return words.new_zeros(words.shape[0], words.shape[1], recurrent.shape[2])

        @recurrence.register_fake
        def _(words: Tensor, lengths: Tensor, weights: Tensor, recurrent: Tensor, biases: Tensor) -> Tensor:
            return words.new_empty(words.shape[0], words.shape[1], recurrent.shape[2])

        made.append(getattr(torch.ops.vse, name).default)
    return made[0], made[1]


def _translation(direction: str, hidden: int) -> Callable[..., Any]:
    op = require("onnxscript", "train", "exporting to ONNX").opset18

    def translate(words: Any, lengths: Any, weights: Any, recurrent: Any, biases: Any) -> Any:
        states, _ = op.GRU(
            op.Transpose(words, perm=[1, 0, 2]),
            weights,
            recurrent,
            biases,
            op.Cast(lengths, to=INT32),
            direction=direction,
            hidden_size=hidden,
            linear_before_reset=1,
        )  # (L, directions, B, D)
        averaged = op.ReduceMean(states, op.Constant(value_ints=[1]), keepdims=0)
        return op.Transpose(averaged, perm=[1, 0, 2])

    return translate


def _reordered(gates: Tensor) -> Tensor:
    reset, update, new = gates.detach().chunk(3)
    return torch.cat((update, reset, new))


class PixelTower(nn.Module):
    """``pixels (B, 3, H, W)`` → ``embedding (B, D)`` and, where the pooling weights ranks, ``contributions``.

    ``contributions (B, N, D)`` add up to the embedding over the cells; their product with a query vector is the
    evidence of each cell for it.
    """

    def __init__(self, encoder: Any, cells: int) -> None:
        super().__init__()
        self.encoder = _frozen(encoder, cells)
        self.explains = has_contributions(self.encoder.pooling)

    def forward(self, pixels: Tensor) -> Any:
        elements, mask = self.encoder.elements(pixels)
        return embed(self.encoder.pooling, elements, mask, explain=self.explains)


class FeatureTower(nn.Module):
    """``features (B, N, F)`` and ``lengths (B,)`` → the same outputs as :class:`PixelTower`."""

    def __init__(self, encoder: Any, largest: int) -> None:
        super().__init__()
        self.encoder = _frozen(encoder, largest)
        self.explains = has_contributions(self.encoder.pooling)

    def forward(self, features: Tensor, lengths: Tensor) -> Any:
        elements, mask = self.encoder.elements(features, lengths)
        return embed(self.encoder.pooling, elements, mask, explain=self.explains)


class DualTower(nn.Module):
    """The image half of a dual encoder: ``pixels (B, 3, H, W)`` → ``embedding (B, D)``."""

    explains = False

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder).eval().requires_grad_(False)
        if has_contributions(self.encoder.pooling):
            rows = self.encoder.patches
            self.encoder.pooling = self.encoder.pooling.freeze(rows)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.encoder(pixels)


class TextTower(nn.Module):
    """``tokens (B, L)`` and ``lengths (B,)`` → ``embedding (B, D)``."""

    def __init__(self, encoder: Any, longest: int) -> None:
        super().__init__()
        if isinstance(encoder, DualTextEncoder):
            self.encoder: Any = copy.deepcopy(encoder).eval().requires_grad_(False)
            return
        frozen = _frozen(encoder, longest)
        self.encoder = ExportableBiGRU(frozen) if isinstance(frozen, BiGRUEncoder | WordEncoder) else frozen

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        if isinstance(self.encoder, DualTextEncoder):
            return self.encoder(tokens, lengths)
        elements, mask = self.encoder.elements(tokens, lengths)
        return unit_norm(self.encoder.pooling.pool(elements, mask))


def embed(pooling: Pooling, elements: Tensor, mask: Tensor | None, *, explain: bool) -> Any:
    """Return the embedding, and each element's contribution if ``explain``."""
    if not explain:
        return unit_norm(pooling.pool(elements, mask))
    pooled, shares = pool_with_contributions(pooling, elements, mask)
    unit = unit_norm(pooled)
    return unit, shares / (pooled.norm(dim=-1, keepdim=True).unsqueeze(1) + 1e-8)


def _frozen(encoder: nn.Module, largest: int) -> Any:
    """Return a copy whose pooling is a table where possible."""
    frozen: Any = copy.deepcopy(encoder).eval().requires_grad_(False)
    if isinstance(frozen.pooling, Readout):
        frozen.pooling.inner = _frozen_pooling(frozen.pooling.inner, largest)
    else:
        frozen.pooling = _frozen_pooling(frozen.pooling, largest)
    return frozen


def _frozen_pooling(pooling: Any, largest: int) -> Pooling:
    return pooling.freeze(largest) if has_contributions(pooling) else without_packing(pooling)

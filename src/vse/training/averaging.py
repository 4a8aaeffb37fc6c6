"""An exponential average of the weights, which often ranks better than the last ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class AveragedWeights:
    """``a ← d · a + (1 - d) · w`` after every step, with ``d = min(decay, (1 + n) / (10 + n))`` at step n.

    The early steps are forgotten quickly: with a constant decay the random weights of the beginning would stay in the
    average of a short run. Buffers (statistics, counters) are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self._averaged = {name for name, _ in model.named_parameters()}
        self.tensors = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights after a step."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        self.steps += 1
        for name, value in model.state_dict().items():
            if name in self._averaged:
                self.tensors[name].lerp_(value, 1 - decay)
            else:
                self.tensors[name].copy_(value)

    def load(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        """Go on from a checkpoint."""
        for name, value in tensors.items():
            self.tensors[name].copy_(value)
        self.steps = steps

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights for as long as the block lasts."""
        kept = {name: value.detach().clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.tensors, strict=True)
        try:
            yield
        finally:
            model.load_state_dict(kept, strict=True)

"""Functions shared by all encoders: unit norm, evaluation mode, fingerprint of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

SMALLEST_NORM = 1e-8


def unit_norm(vectors: Tensor) -> Tensor:
    """Divide each row of ``(B, D)`` by its Euclidean norm; zero rows stay zero."""
    return vectors / (vectors.norm(dim=-1, keepdim=True) + SMALLEST_NORM)


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put every submodule in evaluation mode within the context, then restore the mode of each."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


DIGITS = 16


def state_fingerprint(state: Mapping[str, Tensor], extra: str = "") -> str:
    """Return the first 16 digits of a SHA-256 over names, dtypes, shapes and values of all tensors, and ``extra``."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    digest.update(extra.encode())
    return digest.hexdigest()[:DIGITS]

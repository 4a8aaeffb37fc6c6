"""Functions that all encoders share: unit norm, evaluation mode, fingerprint of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

SMALLEST_NORM = 1e-8


def unit_norm(vectors: Tensor) -> Tensor:
    """Divide each row of ``(B, D)`` by its Euclidean length; a row of zeros stays zero."""
    return vectors / (vectors.norm(dim=-1, keepdim=True) + SMALLEST_NORM)


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put every submodule in evaluation mode within the context, and restore each one's mode afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


DIGITS = 16


def state_fingerprint(state: Mapping[str, Tensor], extra: str = "") -> str:
    """Return SHA-256 over names, types, shapes and values of all tensors and ``extra``, cut to 16 digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    digest.update(extra.encode())
    return digest.hexdigest()[:DIGITS]

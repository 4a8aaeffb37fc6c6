"""Short names for exact weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

DIGITS = 16


def state_fingerprint(state: Mapping[str, Tensor], extra: str = "") -> str:
    """SHA-256 over the names, types, shapes and values of all tensors and over ``extra``, cut to 16 digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    digest.update(extra.encode())
    return digest.hexdigest()[:DIGITS]

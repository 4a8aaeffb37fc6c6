"""What a text encoder checks before it looks anything up."""

from __future__ import annotations

import torch
from torch import Tensor

from vse.errors import InputError
from vse.pooling.kernels.runtime import compiled


def check_tokens(tokens: Tensor, vocabulary_size: int) -> Tensor:
    """The tokens as int64, if they are ``(B, L)`` whole numbers from 0 to ``vocabulary_size - 1``."""
    if tokens.dim() != 2 or tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise InputError(f"tokens must be integers of shape (B, L), got {tokens.dtype} of {tuple(tokens.shape)}")
    tokens = tokens.long()
    if compiled() or not tokens.numel():
        return tokens
    smallest, largest = (int(bound) for bound in tokens.aminmax())
    if smallest < 0 or largest >= vocabulary_size:
        bad = smallest if smallest < 0 else largest
        raise InputError(
            f"token id {bad} is outside the vocabulary of {vocabulary_size}: was the text tokenized for another model?"
        )
    return tokens

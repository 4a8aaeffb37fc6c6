"""Videos as frames to features of three levels."""

from __future__ import annotations

from torch import Tensor, nn

from vse.errors import InputError
from vse.hgr.level_features import VideoFeatures
from vse.pooling.base import Pooling
from vse.pooling.sets import Lengths, read_sets

LEVELS = 3


class VideoEncoder(nn.Module):
    """``frames (B, F, C)`` through a Linear and dropout for each level: level 0 is pooled, 1 and 2 stay frames."""

    def __init__(self, feature_size: int, size: int, pooling: Pooling, dropout: float) -> None:
        super().__init__()
        self.levels = nn.ModuleList(nn.Linear(feature_size, size) for _ in range(LEVELS))
        self.dropout = nn.Dropout(dropout)
        self.pooling = pooling
        self.feature_size = feature_size

    def forward(self, frames: Tensor, lengths: Lengths | None = None) -> VideoFeatures:
        """``lengths (B,)`` says how many frames of each video are real; without it all are."""
        if frames.dim() != 3 or frames.shape[2] != self.feature_size:
            raise InputError(f"frames must have shape (B, F, {self.feature_size}), got {tuple(frames.shape)}")
        if not frames.requires_grad:
            frames = frames.to(next(self.parameters()).dtype)  # stores hold float16
        mask = read_sets(frames, lengths)
        padding = None if mask is None else ~mask.unsqueeze(-1)
        if padding is not None:  # whatever it holds must not reach the gradient of the weights
            frames = frames.masked_fill(padding, 0)
        whole, verb, noun = (self.dropout(level(frames)) for level in self.levels)
        if padding is not None:
            verb, noun = verb.masked_fill(padding, 0), noun.masked_fill(padding, 0)
        valid = frames.new_ones(frames.shape[:2]).bool() if mask is None else mask
        return VideoFeatures(self.pooling.pool(whole, mask), verb, noun, valid)

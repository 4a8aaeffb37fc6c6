"""A pooling, a loss, a backbone and a text encoder. Only training and torch models import this module."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vse.encoders import Backbone
from vse.inputs import ImagePreprocessing, imagenet
from vse.pooling import RankPooling


class MedianPool(RankPooling):
    """The median of each dimension: the middle value, or the mean of the two middle ones."""

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        rank = torch.arange(total, device=sizes.device)
        low, high = ((sizes - 1) // 2).unsqueeze(1), (sizes // 2).unsqueeze(1)  # (U, 1)
        weights = (rank == low).float() + (rank == high).float()  # (U, N)
        return (weights / 2).to(dtype or torch.get_default_dtype())


def sigmoid_loss(scores: Tensor, image_ids: Tensor | None = None, *, scale: float = 10.0, bias: float = -5.0) -> Tensor:
    """The pairwise sigmoid loss of SigLIP: every pair of the batch is a yes-or-no question.

    Args:
        scores: ``(B, B)`` with images in rows and texts in columns; the pairs are on the diagonal.
        image_ids: ``(B,)``, the image of each pair: other captions of the same image are left out.
        scale: Factor of the scores.
        bias: Added to the scaled scores.
    """
    same = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    others = ~same if image_ids is None else image_ids.unsqueeze(0) != image_ids.unsqueeze(1)
    logits = scale * scores + bias
    return (F.softplus(-logits)[same].sum() + F.softplus(logits)[others].sum()) / len(scores)


class Patches(Backbone):
    """One convolution over patches of 16 pixels: fast, and blind to almost everything."""

    def __init__(self, *, pretrained: bool = False, channels: int = 64) -> None:
        super().__init__()
        del pretrained  # there are no published weights
        self.channels = channels
        self.convolution = nn.Conv2d(3, channels, kernel_size=16, stride=16)

    def feature_map(self, pixels: Tensor) -> Tensor:
        return self.convolution(pixels)  # (B, C, h, w)

    def preprocessing(self, size: int | None = None) -> ImagePreprocessing:
        return imagenet(size or 64)


class ConvolvedWords(nn.Module):
    """Words with their neighbours: an embedding and one convolution over the text."""

    def __init__(self, *, vocabulary_size: int, size: int, word_size: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary_size, word_size)
        self.convolution = nn.Conv1d(word_size, size, kernel_size=3, padding=1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        valid = torch.arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)  # (B, L)
        words = self.embed(tokens) * valid.unsqueeze(-1)  # padding must not reach its neighbours
        return self.convolution(words.transpose(1, 2)).transpose(1, 2)  # (B, L, D)

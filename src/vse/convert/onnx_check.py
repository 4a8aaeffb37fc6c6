"""How far an exported model is from the one it was made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vse.encoding import Vectors
from vse.evaluation import retrieval_metrics


@dataclass(frozen=True)
class TowerAgreement:
    """Two sets of vectors ``(n, D)`` for the same inputs, compared."""

    max_difference: float
    mean_cosine: float
    twins_lost: float  # percent of vectors whose own twin is not the nearest one on the other side

    @classmethod
    def between(cls, expected: Vectors, found: Vectors) -> TowerAgreement:
        """Compare row by row; NaN anywhere makes the difference NaN, which is no agreement."""
        scores = found @ expected.T
        own = np.diagonal(scores)
        lost = (scores > own[:, None]).any(axis=1)
        return cls(
            float(np.abs(expected - found).max()),
            float((expected * found).sum(axis=1).mean()),
            100.0 * float(lost.mean()),
        )

    def to_json(self) -> dict[str, float]:
        """The three figures."""
        return {
            "max_difference": self.max_difference,
            "mean_cosine": self.mean_cosine,
            "twins_lost_percent": self.twins_lost,
        }


def recalls(images: Vectors, texts: Vectors, text_to_image: NDArray[np.int64]) -> dict[str, float]:
    """R@1, 5, 10 in percent, both ways."""
    figures = retrieval_metrics(images, texts, text_to_image).figures()
    return {name: value for name, value in figures.items() if re.search(r"_r\d+$", name)}


def random_token_batches(vocabulary: int, longest: int, seed: int = 0) -> list[tuple[Any, Any]]:
    """Batches of several sizes and lengths, one text of a single token and one of the greatest length among them."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for count, length in ((1, 1), (2, min(7, longest)), (200, min(14, longest)), (2, longest)):
        tokens = torch.randint(0, vocabulary, (count, length), generator=generator)
        lengths = torch.randint(1, length + 1, (count,), generator=generator)
        lengths[0] = length
        batches.append((tokens.numpy(), lengths.numpy()))
    return batches


def random_feature_batches(width: int, largest: int, seed: int = 0) -> list[tuple[Any, Any]]:
    """Batches of several sizes, one set of a single element and one of the greatest size among them."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for count, size in ((1, 1), (2, min(5, largest)), (100, min(36, largest)), (1, largest)):
        features = torch.randn(count, size, width, generator=generator)
        lengths = torch.randint(1, size + 1, (count,), generator=generator)
        lengths[0] = size
        batches.append((features.numpy(), lengths.numpy()))
    return batches

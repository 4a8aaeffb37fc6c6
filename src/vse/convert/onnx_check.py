"""How far an exported model is from the one it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vse.encoding import Vectors

CUTOFFS = (1, 5, 10)


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
    """R@1, 5, 10 in percent, both ways, ties counted against the truth."""
    out: dict[str, float] = {}
    scores = texts @ images.T  # (texts, images)
    own = np.take_along_axis(scores, text_to_image[:, None], axis=1)
    text_ranks = (scores >= own).sum(axis=1)  # 1 is best
    image_ranks = np.full(len(images), len(texts) + 1)
    for text, image in enumerate(text_to_image):
        rank = int((scores[:, image] >= scores[text, image]).sum())
        others = int(((text_to_image == image) & (scores[:, image] > scores[text, image])).sum())
        image_ranks[image] = min(image_ranks[image], rank - others)
    for name, ranks in (("i2t", image_ranks), ("t2i", text_ranks)):
        for cutoff in CUTOFFS:
            out[f"{name}_r{cutoff}"] = 100.0 * float((ranks <= cutoff).mean())
    return out


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

"""A model in numpy, for tests that start many processes: it loads at once and survives a fork."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from vse.inputs import Vocabulary
from vse.inputs.preprocessing import ImagePreprocessing, imagenet
from vse.models.encode import EncodingMethods, VideoMethods
from vse.models.protocols import Capabilities, ParallelCalls

SIDE = 8
WORDS = ["a red square", "a green square", "a blue square on the beach"]


class NumpyModel(EncodingMethods, VideoMethods):
    """Project pixels, and the words of a text, by random matrices of a seed."""

    feature_size, takes_frames = SIDE, False
    capabilities = Capabilities(images=True, texts=True, videos=False, evidence=False, features=False)

    def __init__(self, seed: int = 1, embed_size: int = 16) -> None:
        random = np.random.default_rng(seed)
        self.seed, self.embed_size = seed, embed_size
        self.preprocessing: ImagePreprocessing = imagenet(SIDE)
        self.tokenizer = Vocabulary.build(WORDS, min_count=1).tokenizer(20)
        self._pixels = random.standard_normal((3 * SIDE * SIDE, embed_size)).astype(np.float32)
        self._words = random.standard_normal((self.tokenizer.vocab_size, embed_size)).astype(np.float32)

    def embed_images(self, batch: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
        return _unit(np.stack([each.reshape(-1) @ self._pixels for each in batch]))  # alike in a batch of any size

    def embed_tokens(self, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        pairs = zip(tokens, lengths, strict=True)
        return _unit(np.stack([self._words[row[:length]].mean(axis=0) for row, length in pairs]))

    @contextmanager
    def parallel_calls(self, batch_size: int) -> Iterator[ParallelCalls]:
        yield ParallelCalls(1, batch_size)

    def fingerprint(self) -> str:
        return f"numpy-{self.seed}-{self.embed_size}"

    def backbone_fingerprint(self) -> None:
        return None

    def pooling_curves(self) -> tuple[Any, ...]:
        return ()

    def architecture(self) -> dict[str, Any]:
        return {"image": {"kind": "grid"}, "text": {"kind": "bigru"}}


def _unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

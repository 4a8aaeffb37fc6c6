"""Pixels to the vectors of moments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from vse.encoding import ParallelCalls, Towers, direction
from vse.index.collection import Moment, Vectors
from vse.index.indexing.parts import Part, Pixels


class IndexModel(Towers, Protocol):
    """A model whose vectors fill a collection: any that :func:`vse.load` returns and that reads pictures."""

    def fingerprint(self) -> str:
        """A name for exactly these weights."""

    def parallel_calls(self, batch_size: int) -> AbstractContextManager[ParallelCalls]:
        """For the time of the block several threads may call ``embed_images`` at once; the value says how many."""


def embed_parts(model: Towers, parts: Sequence[Part], batch_size: int) -> list[tuple[Moment, ...]]:
    """The moments of each part; a shot without a direction, as of a frame for which the model gives NaN, has none."""
    pixels = [frame for part in parts for shot in part.shots for frame in shot.frames]
    vectors = _embed(model, pixels, batch_size)
    row, result = 0, []
    for part in parts:
        moments = []
        for shot in part.shots:
            vector = direction(vectors[row : row + len(shot.frames)])
            row += len(shot.frames)
            if vector is not None:
                moments.append(Moment(vector, shot.start, shot.end))
        result.append(tuple(moments))
    return result


def count_frames(parts: Iterable[Part]) -> int:
    """Frames in all shots."""
    return sum(len(shot.frames) for part in parts for shot in part.shots)


def _embed(model: Towers, pixels: Sequence[Pixels], batch_size: int) -> Vectors:
    if not pixels:
        return np.zeros((0, model.embed_size), np.float32)
    starts = range(0, len(pixels), batch_size)
    return np.concatenate([model.embed_images(np.stack(pixels[start : start + batch_size])) for start in starts])

"""The candidates of VSE: random unit vectors in a collection on disk, as pictures would be indexed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from vse.index.collection import Entry, Moment
from vse.index.embedded import EmbeddedCollection
from vse.index.media_file import MediaFile

BLOCK = 5_000


class Gallery:
    """A collection in a temporary folder, which grows and is removed at the end; 100,000 vectors take 0.9 GB there."""

    def __init__(self, dimensions: int, seed: int) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="vse-speed-"))
        self._dimensions = dimensions
        self._generator = np.random.default_rng(seed)
        self._size = 0
        self._open: EmbeddedCollection | None = None

    def of(self, size: int) -> EmbeddedCollection:
        """The collection with ``size`` items, open for reading: what it was, and more. It never shrinks."""
        if self._open is not None and size == self._size:
            return self._open
        self._release()
        with self._writer() as writer:
            for start in range(self._size, size, BLOCK):
                vectors = self._generator.standard_normal((min(BLOCK, size - start), self._dimensions), np.float32)
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
                writer.add([_entry(start + row, vector) for row, vector in enumerate(vectors)])
        self._size = size
        self._open = EmbeddedCollection.open(self._place)
        return self._open

    def close(self) -> None:
        """Remove the collection."""
        self._release()
        shutil.rmtree(self._place)

    def _writer(self) -> EmbeddedCollection:
        if self._size:
            return EmbeddedCollection.open(self._place, write=True)
        return EmbeddedCollection.create(
            self._place, model="random", model_source="random vectors", dimensions=self._dimensions
        )

    def _release(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _entry(number: int, vector: np.ndarray) -> Entry:
    name = f"{number:06}.jpg"
    return Entry(MediaFile("/pictures", name, "image", 1, 1, name, 640, 480), (Moment(vector),))

"""Collections on disk for the tests, and paths of their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.index.examples import DIMENSIONS, VECTORS, entry

from vse.index.store import EmbeddedCollection
from vse.index.types import Entry, Vectors
from vse.progress import SilentProgress


class Watched(SilentProgress):
    """Records [description, total, done] of each stage, and whether one is running.

    ``during`` is called on every advance, in the working thread; it may raise, like Ctrl-C.
    """

    def __init__(self, during: Callable[[str, int], None] | None = None) -> None:
        self.stages: list[list[Any]] = []
        self.running = False
        self._during = during

    def start(self, total: int, description: str) -> None:
        self.stages.append([description, total, 0])
        self.running = True

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        self.stages[-1][2] += steps
        if self._during is not None:
            self._during(self.stages[-1][0], self.stages[-1][2])

    def finish(self) -> None:
        self.running = False

    def told(self, word: str) -> list[tuple[int, int]]:
        """Return total and done of the stages whose description contains ``word``."""
        return [(total, done) for description, total, done in self.stages if word in description]


def create(folder: Path, dimensions: int = DIMENSIONS, model: str = "old") -> EmbeddedCollection:
    """Create an empty collection, open for writing."""
    return EmbeddedCollection.create(folder, model=model, model_source="models/old", dimensions=dimensions)


def filled(folder: Path) -> Path:
    """Return a closed collection of one image for each of ``VECTORS``."""
    with create(folder) as writer:
        writer.add(batch(VECTORS))
    return folder


def batch(vectors: Vectors, name: str = "") -> list[Entry]:
    """Return an image with a caption for each vector; the caption has the same vector."""
    made = []
    for row, vector in enumerate(vectors):
        plain = entry(f"{name}{row:05}.jpg", vector, captions=(f"caption {name}{row}",))
        made.append(Entry(plain.file, plain.moments, vector[None]))
    return made


def database(folder: Path, generation: int = 1) -> Path:
    return folder / f"generation-{generation:04}" / "items.sqlite"


def cache(folder: Path, generation: int = 1) -> Path:
    return folder / f"generation-{generation:04}" / "cache"

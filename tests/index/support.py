"""Collections on disk for the tests, and a look into their files."""

from __future__ import annotations

from pathlib import Path

from tests.index.examples import DIMENSIONS, entry

from vse.index.collection import Entry, Vectors
from vse.index.embedded import EmbeddedCollection


def create(folder: Path, dimensions: int = DIMENSIONS) -> EmbeddedCollection:
    """A new collection, open for writing."""
    return EmbeddedCollection.create(folder, model="old", model_source="models/old", dimensions=dimensions)


def batch(vectors: Vectors, name: str = "") -> list[Entry]:
    """A picture with a caption for each vector; the caption has the same vector."""
    made = []
    for row, vector in enumerate(vectors):
        plain = entry(f"{name}{row:05}.jpg", vector, captions=(f"caption {name}{row}",))
        made.append(Entry(plain.file, plain.moments, vector[None]))
    return made


def database(folder: Path, generation: int = 1) -> Path:
    return folder / f"generation-{generation:04}" / "items.sqlite"


def cache(folder: Path, generation: int = 1) -> Path:
    return folder / f"generation-{generation:04}" / "cache"

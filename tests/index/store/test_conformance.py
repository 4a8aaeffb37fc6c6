"""The conformance suite for the embedded collection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.index.conformance import Conformance
from tests.index.histories import Backend

from vse.index.store import EmbeddedCollection
from vse.index.types import Collection


@dataclass(frozen=True)
class Embedded:
    """A collection in ``folder``."""

    folder: Path

    def create(self, *, model: str, model_source: str, dimensions: int) -> Collection:
        return EmbeddedCollection.create(self.folder, model=model, model_source=model_source, dimensions=dimensions)

    def open(self, *, write: bool) -> Collection:
        return EmbeddedCollection.open(self.folder, write=write)


class TestEmbedded(Conformance):
    @staticmethod
    def backend_in(folder: Path) -> Backend:
        return Embedded(folder)

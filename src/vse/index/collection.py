"""What a collection is, whatever keeps it: files with their vectors, to be added, removed and searched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from vse.index.filters import Filter
from vse.index.media_file import MediaFile

Vectors = NDArray[np.float32]
Backend = Literal["embedded", "milvus"]


@dataclass(frozen=True)
class Moment:
    """One vector of a file: the whole of a picture (``start`` and ``end`` None), or some seconds of a clip."""

    vector: Vectors
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Entry:
    """A file with its vectors, as it is added; ``caption_vectors (C, D)`` belong to its captions, in order."""

    file: MediaFile
    moments: tuple[Moment, ...]
    caption_vectors: Vectors | None = None


@dataclass(frozen=True)
class Item:
    """One moment of one file, as it is found. ``id`` stays the same for as long as the file does."""

    id: int
    file: MediaFile
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Hits:
    """The best items for a vector, the best first: by score, and where scores are equal by id.

    ``exact`` says whether every vector was compared, or an approximate index was asked.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    exact: bool


@dataclass(frozen=True)
class CollectionInfo:
    """What a collection holds. ``model`` is the fingerprint of the model whose vectors these are."""

    where: str
    backend: Backend
    model: str
    model_source: str
    dimensions: int
    generation: int
    files: int
    items: int
    captions: int
    roots: tuple[str, ...]


class Collection(Protocol):
    """Files and vectors behind one interface. One writer at a time, any number of readers.

    Vectors are unit vectors; a score is their dot product. ``add`` and ``remove`` have happened when they return: a
    process or machine that dies afterwards does not undo them, and one that dies before leaves no half of them.
    """

    def info(self) -> CollectionInfo:
        """Counts and origin, as of now."""

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files, all of them or none. A file whose (root, path) is known is replaced, its old vectors purged."""

    def remove(self, files: Iterable[tuple[str, str]]) -> int:
        """Forget files by (root, path), purge their vectors, and return how many there were."""

    def move(self, moves: Sequence[tuple[tuple[str, str], MediaFile]]) -> None:
        """Files that are elsewhere now: the old (root, path), and the file as it is. Items keep their ids."""

    def search(self, vector: Vectors, k: int, *, where: Filter | None = None, exact: bool | None = None) -> Hits:
        """The ``k`` best items. ``exact=True`` forces comparison with every vector, None lets the size decide.

        The best 5 are the first 5 of the best 15.
        """

    def search_captions(self, vector: Vectors, k: int) -> list[tuple[str, int, float]]:
        """The best captions as (caption, id of its file's first item, score)."""

    def items(self, ids: Sequence[int]) -> list[Item]:
        """The items with these ids, in this order; one that is gone is an error."""

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """Their vectors ``(n, D)``, in this order."""

    def all_vectors(self, block: int = 8192) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Every id with its vector, ascending, in blocks."""

    def files(self, root: str | None = None) -> Iterator[MediaFile]:
        """Every file, by root and path."""

    def close(self) -> None:
        """Release what is held; harmless when closed already."""

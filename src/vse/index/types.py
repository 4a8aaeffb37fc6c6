"""What a collection is, whatever keeps it: files with their vectors, to be added, removed and searched."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.filters import Filter
from vse.inputs.files import MediaKind
from vse.progress import ProgressReporter

Place = tuple[str, str]
"""The root and path of a file."""


@dataclass(frozen=True)
class MediaFile:
    """One file. ``root`` is the folder that was indexed, ``path`` the place below it with ``/`` between its parts.

    ``digest`` is the hash of the content: with size and time it tells a changed file from a touched one, and a moved
    file from a new one. ``taken`` is the local time at which the image was taken, in seconds since 1970 as if it were
    UTC (cameras do not tell their zone), ``latitude`` and ``longitude`` where; all from the file's own data.
    ``captions`` are captions found with it.
    """

    root: str
    path: str
    kind: MediaKind
    size: int
    modified: int
    digest: str
    width: int
    height: int
    taken: float | None = None
    latitude: float | None = None
    longitude: float | None = None
    duration: float | None = None
    captions: tuple[str, ...] = ()


def full_path(file: MediaFile) -> str:
    """Where the file is."""
    return f"{file.root.rstrip('/')}/{file.path}"


def readable(path: str) -> str:
    """A path as text that can be sent: bytes that are not UTF-8 become replacement characters."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


VectorTable = Literal["items", "captions"]
VECTOR_TABLES: tuple[VectorTable, ...] = ("items", "captions")


@dataclass(frozen=True)
class FolderCount:
    """How many files lie in a folder and below it. ``path`` is a ``Filter.folder``: below every root that has it."""

    path: str
    files: int


@dataclass(frozen=True)
class Facets:
    """Files of each kind, and the folders with most files, by path.

    ``first`` and ``last`` are the smallest and the largest ``MediaFile.taken``, None when no file has one.
    """

    images: int
    videos: int
    first: float | None
    last: float | None
    folders: tuple[FolderCount, ...]


def folder_counts(paths: Iterable[str], max_folders: int) -> tuple[FolderCount, ...]:
    """Of the folders of these files the ``max_folders`` with the most files, ties by path; returned by path.

    Paths are those of ``MediaFile``. A file counts in each folder above it, but not in the root, which has no name.
    """
    if max_folders < 0:
        raise InputError(f"folders {max_folders}: expected 0 at least")
    direct = Counter(path.rpartition("/")[0] for path in paths)
    below: Counter[str] = Counter()
    for folder, files in direct.items():
        for each in _upwards(folder):
            below[each] += files
    largest = heapq.nsmallest(max_folders, below.items(), key=lambda each: (-each[1], each[0]))
    return tuple(FolderCount(path, files) for path, files in sorted(largest))


def _upwards(folder: str) -> Iterator[str]:
    """The folder and those that hold it, without the root."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


Vectors = NDArray[np.float32]
Backend = Literal["embedded", "milvus"]


@dataclass(frozen=True)
class Moment:
    """One vector of a file: the whole of an image (``start`` and ``end`` None), or some seconds of a clip."""

    vector: Vectors
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Entry:
    """A file with its vectors, as it is added: one moment at least.

    ``caption_vectors (C, D)`` belong to its captions, in order; None where the model reads no text.
    """

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
    """What a collection holds. ``model`` is the fingerprint of the model whose vectors these are.

    ``changes`` counts the items that were added and those that are gone since: it rises by as many, in a generation,
    with whatever changes its vectors, and by 2 for one that is replaced. ``root_files`` counts the files of each root.
    """

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
    changes: int
    root_files: tuple[int, ...]


class Collection(Protocol):
    """Files and vectors behind one interface. One writer at a time, any number of readers.

    Vectors are unit vectors; a score is their dot product. ``add`` and ``remove`` have happened when they return: a
    process or machine that dies afterwards does not undo them, and one that dies before leaves no half of them.
    """

    @property
    def superseded(self) -> bool:
        """Whether something else serves here now: open the collection again to use it.

        An upgrade has switched to a newer generation or, where that can be told, the collection was made again.
        """

    def info(self) -> CollectionInfo:
        """Counts and origin, as of now."""

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files, all of them or none; of a file that is named twice the last counts.

        A file whose (root, path) is known is replaced, its old vectors purged.
        """

    def remove(self, files: Iterable[tuple[str, str]]) -> int:
        """Forget files by (root, path), purge their vectors, and return how many there were."""

    def move(self, moves: Sequence[tuple[tuple[str, str], MediaFile]]) -> None:
        """Files that are elsewhere now: the old (root, path), and the file as it is. Items keep their ids.

        All moves happen at once, so that files may change places; a file that was at a new place is forgotten.
        """

    def search(self, vector: Vectors, k: int, *, where: Filter | None = None, exact: bool | None = None) -> Hits:
        """The ``k`` best items, ``k`` from 1 up; fewer where there are fewer. ``vector`` has length 1.

        ``exact=True`` forces comparison with every vector, None lets the size decide. The best 5 are the first 5 of
        the best 15.
        """

    def search_captions(self, vector: Vectors, k: int) -> list[tuple[str, int, float]]:
        """The best captions as (caption, id of its file's first item, score); as for :meth:`search`."""

    def items(self, ids: Sequence[int]) -> list[Item]:
        """The items with these ids, in this order; one that is gone is an error."""

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """Their vectors ``(n, D)``, in this order."""

    def all_vectors(self, block: int = 8192) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Every id with its vector, ascending, in blocks."""

    def sample(self, count: int) -> Vectors:
        """Vectors ``(n, D)`` of at most ``count`` items, by id: those that :mod:`vse.index.scoring` chooses."""

    def files(self, root: str | None = None) -> Iterator[MediaFile]:
        """Every file, by root and path."""

    def recent(self, k: int, *, offset: int = 0, where: Filter | None = None) -> list[Item]:
        """The files that pass, the newest first, as the first item of each: ``k`` of them after ``offset``.

        The newest are those with the largest :func:`vse.index.types.recency`; where it is equal, ids ascend.
        """

    def facets(self, folders: int = 200) -> Facets:
        """What the files are and where they lie, as of now; of the folders the ``folders`` with the most files."""

    def settle(self, *, progress: ProgressReporter | None = None) -> None:
        """Make what was added fast to search, which may take minutes. The collection is open for writing.

        Whoever closes without it waits for the same work, and sees no progress. What was added stays whatever happens
        here; searches are right before, and go on meanwhile.
        """

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> NextGeneration:
        """The generation after this one, for the vectors of another model, to be filled while this one serves.

        It is empty, or what an attempt that was not finished has left, when that was for the same model and dimensions;
        what is left for another model is discarded. The collection is open for writing, and stays so until the new
        generation is committed or closed. ``progress`` receives how far what is left has been read and checked.
        """

    def unfinished(self) -> CollectionInfo | None:
        """What an upgrade that goes on or was not finished has made so far; None when there is none."""

    def set_model_source(self, model_source: str) -> None:
        """Record that the model of these vectors is found elsewhere now. The collection is open for writing."""

    def close(self) -> None:
        """Release what is held; harmless when closed already."""


class NextGeneration(Collection, Protocol):
    """A generation that serves after :meth:`commit`; closed without it, the next upgrade resumes it.

    A file that is added with the root, path, digest and moments that it has in the generation that serves keeps the ids
    of its items; other items get ids that neither has used. What an unfinished attempt has left is held to that: files
    whose items have other ids by now are no longer in it.
    """

    def commit(self, *, progress: ProgressReporter | None = None) -> None:
        """Let this generation serve, in one step, and close it; open the collection again to use it.

        It is made fast to search first, while the old one serves.
        """

    def discard(self) -> None:
        """Discard what was made, and close; the generation that serves goes on serving."""


def recency(taken: float | None, modified: int) -> float:
    """Seconds since 1970: the time an image was taken or, where that is unknown, the file was changed.

    The first is local time and the second UTC, so that between files of both kinds the order may be off by some hours.
    """
    return modified / 1e9 if taken is None else taken

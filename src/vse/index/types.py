"""The interface of a collection, whatever its backend: files with their embeddings."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.filters import Filter
from vse.index.storage import DEFAULT_STORAGE, Storage
from vse.inputs.files import MediaKind
from vse.progress import ProgressReporter

Place = tuple[str, str]
"""Root and path of a file."""


@dataclass(frozen=True)
class MediaFile:
    """One file of a collection.

    Attributes:
        root: The folder that was indexed.
        path: Path below ``root``, with ``/`` between its parts.
        kind: ``"image"`` or ``"video"``.
        size: Bytes.
        modified: Time of the last change, in nanoseconds since 1970.
        digest: Hash of the content; it distinguishes changed from touched files, and moved from new ones.
        width: Pixels, upright.
        height: Pixels, upright.
        taken: Local time at which it was taken, in seconds since 1970 as if in UTC (cameras record no time zone).
        latitude: Degrees, from the metadata.
        longitude: Degrees, from the metadata.
        duration: Seconds, of a video.
        captions: Captions found with the file.
        camera: Make and model, from the metadata.
        place: Name of the place at the coordinates, like "Munich, Bavaria, Germany".
        title: From the metadata, as are the next two.
        description: A longer text.
        keywords: Each may be several words.
        ocr: Text recognised in the image; "" if there is none, None if nobody looked.
        metadata_version: Version of :mod:`vse.index.scan.metadata` that read the fields above, with a hash of the
            sidecars in its upper bits; 0 before there were any.
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
    camera: str | None = None
    place: str | None = None
    title: str | None = None
    description: str | None = None
    keywords: tuple[str, ...] = ()
    ocr: str | None = None
    metadata_version: int = 0


def full_path(file: MediaFile) -> str:
    """Return the absolute path of a file."""
    return f"{file.root.rstrip('/')}/{file.path}"


def readable(path: str) -> str:
    """Return a path as valid text; bytes that are not UTF-8, and lone surrogates, become replacement characters."""
    try:
        return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # Windows allows any surrogate in a name
        return "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in path)


VectorTable = Literal["items", "captions"]
VECTOR_TABLES: tuple[VectorTable, ...] = ("items", "captions")


@dataclass(frozen=True)
class FolderCount:
    """Number of files in a folder and below; ``path`` is as in ``Filter.folder``, summed over all roots."""

    path: str
    files: int


@dataclass(frozen=True)
class NameCount:
    """Number of files with this place name or camera."""

    name: str
    files: int


FACET_NAMES = 100
"""Places and cameras that are counted, at most."""


@dataclass(frozen=True)
class Facets:
    """Files of each kind, and the folders with the most files, ordered by path.

    ``first`` and ``last`` are the smallest and largest ``MediaFile.taken``, None if no file has one. ``places`` and
    ``cameras`` come with the largest first, ties by name, at most :data:`FACET_NAMES` of each; Milvus counts neither.
    """

    images: int
    videos: int
    first: float | None
    last: float | None
    folders: tuple[FolderCount, ...]
    places: tuple[NameCount, ...] = ()
    cameras: tuple[NameCount, ...] = ()


def folder_counts(paths: Iterable[str], max_folders: int) -> tuple[FolderCount, ...]:
    """Return the ``max_folders`` folders with the most files (ties by path), ordered by path.

    Paths are as in ``MediaFile``. A file counts in each folder above it except the root, which has no name.
    """
    if max_folders < 0:
        raise InputError(f"folders {max_folders}: expected at least 0")
    direct = Counter(path.rpartition("/")[0] for path in paths)
    below: Counter[str] = Counter()
    for folder, files in direct.items():
        for each in _upwards(folder):
            below[each] += files
    largest = heapq.nsmallest(max_folders, below.items(), key=lambda each: (-each[1], each[0]))
    return tuple(FolderCount(path, files) for path, files in sorted(largest))


def _upwards(folder: str) -> Iterator[str]:
    """Yield the folder and its parents, without the root."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


Vectors = NDArray[np.float32]
Backend = Literal["embedded", "milvus", "postgresql"]


@dataclass(frozen=True)
class Moment:
    """One embedding of a file: a whole image (``start`` and ``end`` None), or a few seconds of a video."""

    vector: Vectors
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Entry:
    """A file to add, with at least one moment.

    ``caption_vectors (C, D)`` are the embeddings of its captions, in order; None if the model does not read text.
    """

    file: MediaFile
    moments: tuple[Moment, ...]
    caption_vectors: Vectors | None = None


@dataclass(frozen=True)
class Item:
    """One moment of one file, as found. ``id`` is stable for the lifetime of the file."""

    id: int
    file: MediaFile
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Hits:
    """The best items for a query, ordered by descending score, ties by id.

    ``exact`` says whether every embedding was compared, or an approximate index was used.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    exact: bool


@dataclass(frozen=True)
class WordHits:
    """Files found by words, each as its best item for a query: by descending share, then score, then by id.

    ``shares`` say how much of the weight of the words a file holds; see :meth:`Collection.search_words`.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    shares: NDArray[np.float64]


NO_WORD_HITS = WordHits(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float64))


@dataclass(frozen=True)
class CollectionInfo:
    """Contents and origin of a collection.

    Attributes:
        where: Its address.
        backend: What stores it.
        model: Fingerprint of the model that encoded it.
        model_source: Folder or name of that model.
        dimensions: Width of the embeddings.
        generation: Number of the generation being served; an upgrade adds one.
        files: Number of files.
        items: Number of items.
        captions: Number of captions.
        roots: The indexed folders.
        changes: Items added plus items removed within this generation; replacing an item counts 2.
        root_files: Number of files of each root.
        lost_changes: Committed changes that are missing because the database was damaged. Index the folders again, and
            then accept the loss: nothing else lowers the number.
        storage: How the embeddings are stored; a server may store them otherwise.
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
    lost_changes: int = 0
    storage: Storage = DEFAULT_STORAGE


class Collection(Protocol):
    """Files and embeddings behind one interface. One writer at a time, any number of readers.

    Embeddings are unit vectors; a score is their dot product. ``add`` and ``remove`` are atomic, and durable once they
    return, even if the process or machine crashes. On Milvus several may write, and a call is not atomic: see
    ``docs/collections.md``.
    """

    @property
    def superseded(self) -> bool:
        """Whether a newer generation is being served or, where detectable, the collection was recreated.

        Reopen the collection to use it.
        """

    def info(self) -> CollectionInfo:
        """Return current counts and origin."""

    def add(self, entries: Sequence[Entry]) -> None:
        """Add files, all or none; if a file occurs twice, the last one counts.

        A file whose (root, path) is known is replaced, and its old embeddings are purged.
        """

    def remove(self, files: Iterable[tuple[str, str]]) -> int:
        """Remove files by (root, path), purge their embeddings, and return how many there were."""

    def move(
        self, moves: Sequence[tuple[tuple[str, str], MediaFile]], *, captions: Mapping[str, Vectors] | None = None
    ) -> None:
        """Move or update files, given as the old (root, path) and the file as it is now. Items keep their ids.

        All moves are simultaneous, so files may swap places; a file at a target that does not move is removed. A
        caption that stays keeps its embedding; ``captions`` has those of new ones, by text, and others have none.
        """

    def search(self, vector: Vectors, k: int, *, where: Filter | None = None, exact: bool | None = None) -> Hits:
        """Return the ``k`` best items for a unit ``vector``, or fewer if there are fewer.

        ``exact=True`` compares every embedding; None decides by size. Results are prefix-stable: the best 5 are the
        first 5 of the best 15.
        """

    def search_captions(self, vector: Vectors, k: int) -> list[tuple[str, int, float]]:
        """Return the best captions as (caption, id of the first item of its file, score); see :meth:`search`."""

    def items(self, ids: Sequence[int]) -> list[Item]:
        """Return the items with these ids, in this order; raise if one no longer exists."""

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """Return the embeddings of these items, ``(n, D)``, in this order."""

    def all_vectors(self, block: int = 8192) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Yield all ids with their embeddings, ascending, in blocks."""

    def sample(self, count: int) -> Vectors:
        """Return embeddings ``(n, D)`` of at most ``count`` items, by id, chosen by :mod:`vse.index.scoring`."""

    def files(self, root: str | None = None) -> Iterator[MediaFile]:
        """Yield every file, ordered by root and path."""

    def recent(self, k: int, *, offset: int = 0, where: Filter | None = None) -> list[Item]:
        """Return the first item of each matching file, newest first: ``k`` of them after ``offset``.

        Newest means largest :func:`vse.index.types.recency`; ties are ordered by id.
        """

    def facets(self, folders: int = 200) -> Facets:
        """Return current counts by kind and folder; only the ``folders`` largest folders."""

    def word_counts(self, words: Sequence[str]) -> dict[str, int]:
        """Return in how many files each word occurs, as split by :func:`vse.index.words.fold`.

        All are 0 where words cannot be searched: on Milvus, and in a collection that an older version wrote.
        """

    def search_words(
        self, words: Mapping[str, float], vector: Vectors, k: int, *, where: Filter | None = None
    ) -> WordHits:
        """Return the ``k`` files whose words weigh most, each as its best item for a unit ``vector``.

        ``words`` are weights of words as split by :func:`vse.index.words.fold`. The share of a file is the sum of the
        weights of those it holds, each times the largest :data:`vse.index.words.RANKED` of the fields that hold it;
        files below :data:`vse.index.words.MIN_SHARE` are left out. Results are prefix-stable. There are none where
        :meth:`word_counts` are all 0.
        """

    def items_with_words(self, ids: Sequence[int], texts: Sequence[str]) -> set[int]:
        """Return those of the items ``ids`` whose file holds one of ``texts``, word by word.

        Only the fields :data:`vse.index.words.NAMED` count, and the words of a text from the first to the last one that
        says something. Ids that no longer exist are left out.
        """

    def settle(self, *, progress: ProgressReporter | None = None) -> None:
        """Build whatever makes recently added items fast to search, which may take minutes. Needs write access.

        :meth:`close` does the same work otherwise, without progress. Added items are safe whatever happens here;
        searches are correct before, and possible meanwhile.
        """

    def new_generation(
        self, *, model: str, model_source: str, dimensions: int, progress: ProgressReporter | None = None
    ) -> NextGeneration:
        """Return the next generation, to be filled with another model's embeddings while this one is served.

        It is empty, or resumes an unfinished attempt for the same model and dimensions; an attempt for another model is
        discarded. Needs write access, held until the new generation is committed or closed. ``progress`` reports how
        far an unfinished attempt has been read and checked.
        """

    def unfinished(self) -> CollectionInfo | None:
        """Return the info of a running or unfinished upgrade; None if there is none."""

    def set_model_source(self, model_source: str) -> None:
        """Record where the collection's model is now. Needs write access."""

    def settings(self) -> dict[str, Any]:
        """Return what :meth:`set_settings` recorded: a JSON object, empty at first; upgrades keep it."""

    def set_settings(self, settings: Mapping[str, Any]) -> None:
        """Record how the collection is kept up to date, as a JSON object. Needs write access."""

    def close(self) -> None:
        """Release all resources; idempotent."""


class NextGeneration(Collection, Protocol):
    """A generation that is served after :meth:`commit`; if closed before, the next upgrade resumes it.

    A file added with the same root, path, digest and moments as in the current generation keeps the ids of its items;
    other items get ids used in neither. On resuming, files whose items have other ids by now are dropped.
    """

    def commit(self, *, progress: ProgressReporter | None = None) -> None:
        """Switch to this generation atomically and close it; reopen the collection to use it.

        It is made fast to search first, while the old one is still served.
        """

    def discard(self) -> None:
        """Discard this generation and close it; the current one is still served."""


def recency(taken: float | None, modified: int) -> float:
    """Return when an image was taken or, if unknown, when the file was changed, in seconds since 1970.

    The former is local time and the latter UTC, so files of both kinds may be a few hours out of order.
    """
    return modified / 1e9 if taken is None else taken

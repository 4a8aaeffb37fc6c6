"""Find near-duplicates: copies, resized versions and bursts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.scoring import rounding
from vse.index.types import Collection, Item, Place, Vectors, full_path
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.models.protocols import Towers

NEAR = 0.9
"""Cosine from which two images count as near-duplicates.

Chosen on Flickr8k with EfficientNet-Lite0, alone and below three trained towers. Of images larger than the model's
input, copies at another JPEG quality, half the size or another brightness reach it in 91 to 100 % of cases, and with
5 % cropped in 75 to 95 % for three of the four. Of the 32 million pairs of different images, one to three do: a second
copy in the dataset, and shots of one scene seconds apart.
"""
BLOCK = 2048
SLACK = 1e-3
"""Room for rounding in the bound between two lists."""
FLAT = ((0, 0, 0), (40, 40, 40), (128, 128, 128), (255, 255, 255), (0, 0, 160))
"""Colours of uniform frames."""
AT_ONCE = 512
"""Rows whose leaders are searched together."""


@dataclass(frozen=True)
class Duplicates:
    """Groups of items, one per file; most pixels first within a group, groups ordered by their lowest id."""

    threshold: float
    items: int
    groups: tuple[tuple[Item, ...], ...]

    def to_json(self) -> dict[str, Any]:
        groups = [[_described(item) for item in group] for group in self.groups]
        return {"threshold": self.threshold, "items": self.items, "groups": groups}


def near_duplicates(
    collection: Collection,
    threshold: float = NEAR,
    *,
    flat: Vectors | None = None,
    lists: int | None = None,
    progress: ProgressReporter | None = None,
) -> Duplicates:
    """Group files connected by a chain of near-duplicates.

    Two images are near-duplicates if their cosine is at least ``threshold``. Two videos are if, of each, at least half
    of its distinct moments (two of two, one of one, otherwise at least two) have a cosine of at least ``threshold``
    with a moment of the other: a common title or a black start is not enough. Moments of a video that are alike count
    once. An image and a video are never joined.

    The result is that of comparing every pair. Embeddings are divided into lists around centroids, as in an
    inverted-file index, and only those near the border between two lists are compared across it: if the angle between
    ``x`` and ``y`` is at most ``θ``, and ``y`` is closer to centroid ``b`` than to ``a``, then
    ``x · (b - a) / |b - a| ≥ -sin θ``. They are kept in a temporary file, not in memory.

    Args:
        collection: An open collection.
        threshold: Smallest cosine, up to rounding; 1 finds exact copies.
        flat: Embeddings of uniform images ``(n, D)``, see :func:`flat_vectors`; moments as near to one of them as
            ``threshold`` are ignored.
        lists: Number of lists; default: about the square root of the number of items.
        progress: Advances once per list.

    Raises:
        InputError: ``threshold`` or ``lists`` is out of range.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold {threshold}: expected a cosine above 0, at most 1; {NEAR} finds copies")
    if lists is not None and lists < 1:
        raise InputError(f"lists {lists}: expected at least 1")
    reporter = progress or SilentProgress()
    with TemporaryDirectory(prefix="vse-duplicates-") as folder:
        rows = _read_rows(collection, Path(folder), flat, threshold)
        sorted_rows = _divided(rows, lists, Path(folder))
        labels = np.arange(rows.count)
        videos = _Videos(rows, threshold)
        reporter.start(len(sorted_rows.starts) - 1, "lists")
        for first, second in _near_pairs(sorted_rows, threshold, reporter):
            files = rows.files[first], rows.files[second]
            still = ~rows.video[first] & ~rows.video[second]
            _join(labels, files[0][still], files[1][still])
            videos.add(first, second)
        reporter.finish()
        for one, other in videos.joined():
            _join(labels, np.array([one]), np.array([other]))
        del sorted_rows  # Windows cannot delete a mapped file
    return Duplicates(threshold, len(rows.ids), _groups(collection, rows, labels))


def flat_vectors(model: Towers) -> Vectors:
    """Return the embeddings of uniform images ``(n, D)``: black, greys, white and blue, as in starts and titles."""
    from vse.inputs.preprocessing import prepare
    from vse.models.encode import direction

    how = model.preprocessing
    if how is None:
        raise InputError("the model takes sets of features, not images: use one that reads images")
    images = [np.full((64, 64, 3), colour, np.uint8) for colour in FLAT]
    vectors = model.embed_images(np.stack([prepare(image, how) for image in images]))
    found = [direction(vector[None]) for vector in vectors]
    return np.stack([vector for vector in found if vector is not None]).astype(np.float32)


@dataclass
class _Rows:
    """What is held of each item: its id, the number of its file, its kind, and where its embedding is."""

    ids: NDArray[np.int64]
    files: NDArray[np.int64]
    video: NDArray[np.bool_]
    ignored: NDArray[np.bool_]
    vectors: Vectors
    count: int


def _read_rows(collection: Collection, folder: Path, flat: Vectors | None, threshold: float) -> _Rows:
    numbers: dict[Place, int] = {}
    ids, files, video, ignored = [], [], [], []
    path, width = folder / "vectors", 0
    with path.open("wb") as file:
        for some, vectors in collection.all_vectors(BLOCK):
            width = vectors.shape[1]
            file.write(np.ascontiguousarray(vectors, np.float32).tobytes())
            items = collection.items(some.tolist())
            ids.append(some)
            files.append(np.array([numbers.setdefault(_place(item), len(numbers)) for item in items], np.int64))
            kinds = np.array([item.file.kind == "video" for item in items], np.bool_)
            video.append(kinds)
            near_flat = np.zeros(len(some), np.bool_)
            if flat is not None and kinds.any():
                near_flat = kinds & ((vectors @ flat.T).max(axis=1) >= threshold)
            ignored.append(near_flat)
    count = sum(map(len, ids))
    mapped = np.memmap(path, np.float32, "r", shape=(count, width)) if count else np.zeros((0, 1), np.float32)
    return _Rows(
        np.concatenate([np.zeros(0, np.int64), *ids]),
        np.concatenate([np.zeros(0, np.int64), *files]),
        np.concatenate([np.zeros(0, np.bool_), *video]),
        np.concatenate([np.zeros(0, np.bool_), *ignored]),
        mapped,
        len(numbers),
    )


@dataclass
class _Lists:
    """Embeddings sorted by list; list ``n`` is ``rows[starts[n]:starts[n + 1]]``, around ``centroids[n]``."""

    vectors: Vectors
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    centroids: Vectors


def _divided(rows: _Rows, lists: int | None, folder: Path) -> _Lists:
    wanted = np.flatnonzero(~rows.ignored)
    count = max(1, min(len(wanted), math.isqrt(len(wanted)) // 2 if lists is None else lists))
    centroids = _centroids(rows.vectors, wanted, count)
    nearest = np.zeros(len(wanted), np.int64)
    for start in range(0, len(wanted), BLOCK):
        some = wanted[start : start + BLOCK]
        nearest[start : start + BLOCK] = (rows.vectors[some] @ centroids.T).argmax(axis=1)
    order = np.argsort(nearest, kind="stable")
    path = folder / "sorted"
    with path.open("wb") as file:
        for start in range(0, len(order), BLOCK):
            file.write(np.ascontiguousarray(rows.vectors[wanted[order[start : start + BLOCK]]]).tobytes())
    width = rows.vectors.shape[1]
    mapped = np.memmap(path, np.float32, "r", shape=(len(order), width)) if len(order) else rows.vectors[:0]
    starts = np.searchsorted(nearest[order], np.arange(count + 1))
    return _Lists(mapped, wanted[order], starts, centroids)


def _centroids(vectors: Vectors, wanted: NDArray[np.int64], count: int) -> Vectors:
    """Return unit centroids of a sample by spherical k-means; which ones only decides how fast the search is."""
    if count == 1 or not len(wanted):
        return np.ones((1, vectors.shape[1]), np.float32)
    import faiss

    sample = wanted[:: max(1, len(wanted) // (64 * count))]
    means = faiss.Kmeans(vectors.shape[1], count, niter=8, spherical=True, seed=1, min_points_per_centroid=1)
    means.train(np.ascontiguousarray(vectors[sample]))
    return np.asarray(means.centroids, np.float32).reshape(count, -1)


Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


def _near_pairs(lists: _Lists, threshold: float, reporter: ProgressReporter) -> Iterator[Pairs]:
    """Yield the rows of pairs with a cosine of at least ``threshold``, block by block; each pair once."""
    width = lists.vectors.shape[1]
    lowest = threshold - 2 * rounding(width)
    sine = -math.sqrt(max(0.0, 1 - lowest * lowest)) - SLACK
    count = len(lists.starts) - 1
    for own in range(count):
        mine = np.asarray(lists.vectors[lists.starts[own] : lists.starts[own + 1]])
        scores = mine @ lists.centroids.T  # (own, lists)
        for other in range(own, count):
            theirs = np.arange(lists.starts[other], lists.starts[other + 1])
            ours = np.arange(lists.starts[own], lists.starts[own + 1])
            if other != own:
                step = lists.centroids[other] - lists.centroids[own]
                bound = sine * float(np.linalg.norm(step))
                ours = ours[scores[:, other] - scores[:, own] >= bound]
                if not len(ours) or not len(theirs):
                    continue
                theirs = theirs[np.asarray(lists.vectors[theirs[0] : theirs[-1] + 1]) @ -step >= bound]
            yield from _compared(lists, ours, theirs, threshold)
        reporter.advance()


def _compared(lists: _Lists, ours: NDArray[np.int64], theirs: NDArray[np.int64], threshold: float) -> Iterator[Pairs]:
    for start in range(0, len(ours), BLOCK):
        some = ours[start : start + BLOCK]
        for begin in range(0, len(theirs), BLOCK):
            others = theirs[begin : begin + BLOCK]
            first, second = _alike(lists.vectors[some], lists.vectors[others], threshold)
            if len(first):
                yield lists.rows[some[first]], lists.rows[others[second]]


class _Videos:
    """Counts, for pairs of videos, the distinct moments of each that the other has."""

    def __init__(self, rows: _Rows, threshold: float) -> None:
        self._rows = rows
        self._matched: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
        self._stretch = np.arange(len(rows.ids))  # moments of one video that are alike share one
        self._distinct: dict[int, int] = {}
        order = np.flatnonzero(rows.video & ~rows.ignored)
        order = order[np.argsort(rows.files[order], kind="stable")]
        edges = np.flatnonzero(np.diff(rows.files[order], prepend=-1))
        for own in np.split(order, edges[1:]) if len(order) else []:
            leading = own[leaders(np.asarray(rows.vectors[own]), threshold)]
            self._stretch[own] = leading
            self._distinct[int(rows.files[own[0]])] = len(set(leading.tolist()))

    def add(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
        files = self._rows.files
        both = self._rows.video[first] & self._rows.video[second] & (files[first] != files[second])
        for one, other in zip(first[both].tolist(), second[both].tolist(), strict=True):
            low, high = (one, other) if files[one] < files[other] else (other, one)
            found = self._matched.setdefault((int(files[low]), int(files[high])), (set(), set()))
            found[0].add(int(self._stretch[low]))
            found[1].add(int(self._stretch[high]))

    def joined(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of videos that share enough."""
        for (one, other), (ours, theirs) in self._matched.items():
            if len(ours) >= needed(self._distinct[one]) and len(theirs) >= needed(self._distinct[other]):
                yield one, other


def needed(moments: int) -> int:
    """Return how many distinct moments of a video another one must have: half, and two if there are several."""
    return min(moments, max(2, -(-moments // 2)))


def leaders(vectors: Vectors, threshold: float) -> NDArray[np.int64]:
    """Return, for each row of ``(n, D)``, the most similar earlier leader, or the row itself if it is a leader.

    A row follows a leader if their cosine is at least ``threshold``, up to rounding. Rows are processed in order, so
    the leaders of the first rows do not depend on later ones.
    """
    bound = threshold - rounding(vectors.shape[1])  # the product of an embedding with its copy is often just below 1
    found = np.arange(len(vectors))
    leading = np.empty(0, np.int64)
    for start in range(0, len(vectors), AT_ONCE):
        rows = np.arange(start, min(start + AT_ONCE, len(vectors)))
        best, scores = _best_of(vectors, rows, leading)
        within = vectors[rows] @ vectors[rows].T
        for row in rows - start:
            before = np.flatnonzero(found[rows[:row]] == rows[:row])
            if len(before) and within[row, before].max() > scores[row]:
                nearest = before[np.argmax(within[row, before])]
                best[row], scores[row] = rows[nearest], within[row, nearest]
            if scores[row] >= bound:
                found[rows[row]] = best[row]
        leading = np.concatenate([leading, rows[found[rows] == rows]])
    return found


def _best_of(
    vectors: Vectors, rows: NDArray[np.int64], others: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the best of ``others`` for each of ``rows`` (first on ties) and its score, in blocks to save memory."""
    best, scores = np.zeros(len(rows), np.int64), np.full(len(rows), -np.inf, np.float32)
    for start in range(0, len(others), BLOCK):
        some = others[start : start + BLOCK]
        products = vectors[rows] @ vectors[some].T
        top = products.argmax(axis=1)
        higher = products[np.arange(len(rows)), top] > scores
        best[higher], scores[higher] = some[top[higher]], products.max(axis=1)[higher]
    return best, scores


def _alike(first: Vectors, second: Vectors, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of rows with a cosine of at least ``threshold``, up to rounding; borderline ones in float64."""
    scores, room = first @ second.T, rounding(first.shape[1])
    bound = threshold - room
    rows, columns = np.nonzero(scores >= bound - room)
    near = np.flatnonzero(scores[rows, columns] < bound + room)
    sure = np.ones(len(rows), np.bool_)
    for start in range(0, len(near), BLOCK):
        some = near[start : start + BLOCK]
        pairs = first[rows[some]].astype(np.float64), second[columns[some]].astype(np.float64)
        sure[some] = (pairs[0] * pairs[1]).sum(axis=1) >= bound
    return rows[sure], columns[sure]


def _join(labels: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    """Union similar files in place under the lowest label; on return every label is a root."""
    pairs = np.stack([labels[first], labels[second]], axis=1)
    for one, other in np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).tolist():
        low, high = sorted((_lowest(labels, one), _lowest(labels, other)))
        labels[high] = low
    while not np.array_equal(labels, labels[labels]):
        labels[:] = labels[labels]


def _lowest(labels: NDArray[np.int64], label: int) -> int:
    while labels[label] != label:
        label = int(labels[label])
    return label


def _groups(collection: Collection, rows: _Rows, labels: NDArray[np.int64]) -> tuple[tuple[Item, ...], ...]:
    """Return the groups of several files, each file as its first item."""
    _, first_rows = np.unique(rows.files, return_index=True)  # by number, which is the order of first items
    members: dict[int, list[int]] = {}
    for file, row in enumerate(first_rows.tolist()):
        members.setdefault(int(labels[file]), []).append(int(rows.ids[row]))
    several = [ids for ids in members.values() if len(ids) > 1]
    return tuple(tuple(sorted(collection.items(ids), key=_largest_first)) for ids in several)


def _largest_first(item: Item) -> tuple[int, int, int]:
    return -item.file.width * item.file.height, -item.file.size, item.id


def _place(item: Item) -> Place:
    return item.file.root, item.file.path


def _described(item: Item) -> dict[str, Any]:
    file = item.file
    return {
        "id": item.id,
        "path": full_path(file),
        "kind": file.kind,
        "width": file.width,
        "height": file.height,
        "bytes": file.size,
        "taken": file.taken,
    }

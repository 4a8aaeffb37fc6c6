"""Find near-duplicates: copies, resized versions and bursts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.scoring import rounding
from vse.index.types import Collection, Item, Place, Vectors, full_path
from vse.progress import ProgressReporter, SilentProgress

NEAR = 0.9
"""Cosine from which two images count as near-duplicates.

Chosen on Flickr8k with EfficientNet-Lite0, alone and below three trained towers. Of images larger than the model's
input, copies at another JPEG quality, half the size or another brightness reach it in 91 to 100 % of cases, and with
5 % cropped in 75 to 95 % for three of the four. Of the 32 million pairs of different images, one to three do: a second
copy in the dataset, and shots of one scene seconds apart.
"""
BLOCK = 2048
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
    block: int = BLOCK,
    progress: ProgressReporter | None = None,
) -> Duplicates:
    """Group files connected by a chain of items with a cosine of at least ``threshold``.

    Every pair is compared, so the result is exact: n items take n²/2 products, and all embeddings are held in memory.
    One common moment connects two videos; moments of the same video are not compared.

    Args:
        collection: An open collection.
        threshold: Smallest cosine, up to rounding; 1 finds exact copies.
        block: Items compared at once.
        progress: Advances once per block.

    Raises:
        InputError: ``threshold`` or ``block`` is out of range.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold {threshold}: expected a cosine above 0, at most 1; {NEAR} finds copies")
    if block < 1:
        raise InputError(f"block {block}: expected at least 1 item")
    reporter = progress or SilentProgress()
    blocks = list(collection.all_vectors(block))
    ids = np.concatenate([some for some, _ in blocks]) if blocks else np.empty(0, np.int64)
    items = [item for some, _ in blocks for item in collection.items(some.tolist())]
    number_of = {place: number for number, place in enumerate(dict.fromkeys(_place(item) for item in items))}
    files = np.array([number_of[_place(item)] for item in items], np.int64)  # (items,)
    labels = np.arange(len(number_of))
    reporter.start(len(blocks), "blocks")
    for first, second in _pairs(blocks, reporter):
        rows, columns = _alike(blocks[first][1], blocks[second][1], threshold)
        _join(labels, files[first * block + rows], files[second * block + columns])
    reporter.finish()
    return Duplicates(threshold, len(ids), _groups(items, files, labels))


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


def _pairs(blocks: list[Any], reporter: ProgressReporter) -> Iterator[tuple[int, int]]:
    for first in range(len(blocks)):
        for second in range(first, len(blocks)):
            yield first, second
        reporter.advance()


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


def _groups(items: list[Item], files: NDArray[np.int64], labels: NDArray[np.int64]) -> tuple[tuple[Item, ...], ...]:
    first_items: dict[int, Item] = {}
    for item, file in zip(items, files.tolist(), strict=True):
        first_items.setdefault(file, item)
    groups: dict[int, list[Item]] = {}
    for file, item in first_items.items():
        groups.setdefault(int(labels[file]), []).append(item)
    several = [group for group in groups.values() if len(group) > 1]
    return tuple(tuple(sorted(group, key=_largest_first)) for group in several)


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

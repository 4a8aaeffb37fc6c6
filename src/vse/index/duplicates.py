"""Files that look the same to the model: copies, other sizes, bursts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.collection import Collection, Item, Vectors
from vse.index.media_file import MediaFile
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from rich.console import Console

NEAR = 0.97
"""The cosine from which two pictures count as the same one; copies at another size or quality are above it."""
BLOCK = 2048
ROOM = 1e-4
"""Above the rounding of a float32 product of unit vectors: what is this near to the threshold is computed again."""


@dataclass(frozen=True)
class Duplicates:
    """Groups of items, one for each file: within a group the most pixels first, groups by their lowest id."""

    threshold: float
    items: int
    groups: tuple[tuple[Item, ...], ...]

    def to_json(self) -> dict[str, Any]:
        groups = [[_described(item) for item in group] for group in self.groups]
        return {"threshold": self.threshold, "items": self.items, "groups": groups}

    def render(self, console: Console) -> None:
        """A paragraph for each group."""
        from rich.text import Text

        def say(text: str) -> None:
            console.print(Text(text), soft_wrap=True)  # Text: a bracket in a file name is no markup

        files = sum(map(len, self.groups))
        say(f"{len(self.groups)} groups with {files} files, cosine {self.threshold:g} or more, of {self.items} items")
        for number, group in enumerate(self.groups, 1):
            say(f"group {number}")
            for item in group:
                file = item.file
                say(f"  {item.id}  {printable(full_path(file))}  {file.width} × {file.height}, {file.size:,} bytes")


def near_duplicates(
    collection: Collection,
    threshold: float = NEAR,
    *,
    block: int = BLOCK,
    progress: ProgressReporter | None = None,
) -> Duplicates:
    """Files joined by a chain of items whose cosines are at least ``threshold``.

    Every pair is compared, block by block, so the answer is exact; n items take n²/2 products, and their vectors are
    held in memory. One moment in common joins two clips; moments of one clip are not compared with each other.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold {threshold}: expected a cosine above 0, at most 1; {NEAR} finds copies")
    if block < 1:
        raise InputError(f"block {block}: expected 1 item at least")
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
    """For each row of ``(n, D)``, the best row before it that leads and is alike, or itself: then it leads.

    Rows are taken in order, so that the leaders of the first rows do not depend on those that follow.
    """
    found = np.arange(len(vectors))
    scores = vectors @ vectors.T
    for row in range(1, len(vectors)):
        before = np.flatnonzero(found[:row] == np.arange(row))
        best = before[np.argmax(scores[row, before])]
        if scores[row, best] >= threshold:
            found[row] = best
    return found


def full_path(file: MediaFile) -> str:
    """Where the file is."""
    return f"{file.root.rstrip('/')}/{file.path}"


def printable(text: str) -> str:
    """Line ends and bytes that are no text, which file names may contain, written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _pairs(blocks: list[Any], reporter: ProgressReporter) -> Iterator[tuple[int, int]]:
    for first in range(len(blocks)):
        for second in range(first, len(blocks)):
            yield first, second
        reporter.advance()


def _alike(first: Vectors, second: Vectors, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of both with a cosine of at least ``threshold`` in double precision."""
    scores = first @ second.T
    rows, columns = np.nonzero(scores >= threshold - ROOM)
    near = np.flatnonzero(scores[rows, columns] < threshold + ROOM)
    sure = np.ones(len(rows), np.bool_)
    for start in range(0, len(near), BLOCK):
        some = near[start : start + BLOCK]
        pairs = first[rows[some]].astype(np.float64), second[columns[some]].astype(np.float64)
        sure[some] = (pairs[0] * pairs[1]).sum(axis=1) >= threshold
    return rows[sure], columns[sure]


def _join(labels: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    """Give files that are alike one label, the lowest, in place; on return every label is its own label."""
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


def _place(item: Item) -> tuple[str, str]:
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

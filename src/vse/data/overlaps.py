"""What several splits have in common: a model tested on what it was trained on looks better than it is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from vse.data.image_files import file_digest, file_size
from vse.progress import ProgressReporter


def shared(items: Mapping[str, Iterable[Hashable]]) -> Iterator[tuple[str, str, int]]:
    """Each pair of splits that have items in common, with the number of distinct ones."""
    where: defaultdict[Hashable, set[str]] = defaultdict(set)
    for split, values in items.items():
        for value in values:
            where[value].add(split)
    order = {split: i for i, split in enumerate(items)}
    pairs: Counter[tuple[str, str]] = Counter()
    for splits in where.values():
        pairs.update(combinations(sorted(splits, key=order.__getitem__), 2))
    for first, second in combinations(items, 2):
        if pairs[first, second]:
            yield first, second, pairs[first, second]


def file_contents(files: Mapping[str, Sequence[Path]], progress: ProgressReporter) -> dict[str, set[bytes]]:
    """Digests of the files that may be in several splits: only files of the same size can be equal, so the others are
    not read."""
    by_size: defaultdict[int, list[tuple[str, Path]]] = defaultdict(list)
    for split, paths in files.items():
        for path in paths:
            size = file_size(path)
            if size:
                by_size[size].append((split, path))
    candidates = [pair for group in by_size.values() if len({split for split, _ in group}) > 1 for pair in group]
    digests: dict[str, set[bytes]] = {split: set() for split in files}
    if candidates:
        progress.start(len(candidates), "comparing files of equal size")
    for split, path in candidates:
        digest = file_digest(path)
        if digest is not None:
            digests[split].add(digest)
        progress.advance()
    return digests

"""A reference implementation of a collection in plain Python."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from vse.index.filters import Box, Filter
from vse.index.types import Collection, Entry, Facets, FolderCount, Item, MediaFile, NameCount, Vectors

Place = tuple[str, str]


@dataclass
class Kept:
    """A file, its moments as (start, end, vector), its captions with vectors, and the learnt ids."""

    file: MediaFile
    moments: list[tuple[float | None, float | None, Vectors]]
    captions: list[tuple[str, Vectors | None]]
    ids: list[int] = field(default_factory=list)


class Twin:
    """What a collection should hold. Ids are up to the implementation: :meth:`learn` adopts them.

    With ``hashed_ids``, a file that is added again may have the id that it had.
    """

    def __init__(self, *, hashed_ids: bool = False) -> None:
        self.hashed_ids = hashed_ids
        self.kept: dict[Place, Kept] = {}
        self.used: set[int] = set()

    def add(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            vectors = entry.caption_vectors if entry.caption_vectors is not None else [None] * len(entry.file.captions)
            self.kept[entry.file.root, entry.file.path] = Kept(
                entry.file,
                [(moment.start, moment.end, moment.vector) for moment in entry.moments],
                list(zip(entry.file.captions, vectors, strict=True)),
            )

    def remove(self, places: Iterable[Place]) -> int:
        return sum(self.kept.pop(place, None) is not None for place in places)

    def move(self, moves: Sequence[tuple[Place, MediaFile]], captions: Mapping[str, Vectors] | None = None) -> None:
        taken = [self.kept.pop(old) for old, _ in moves]
        for kept, (_, file) in zip(taken, moves, strict=True):
            vectors = {**(captions or {}), **{text: vector for text, vector in kept.captions if vector is not None}}
            kept.file, kept.captions = file, [(text, vectors.get(text)) for text in file.captions]
            self.kept[file.root, file.path] = kept

    def learn(self, collection: Collection) -> None:
        """Compare the contents of ``collection`` with this, and adopt the ids of new items.

        Existing items must keep their ids; ids of new ones must never have been used.
        """
        blocks = list(collection.all_vectors(block=3))
        ids = [int(each) for block, _ in blocks for each in block]
        assert ids == sorted(set(ids))
        assert all(len(block) == 3 for block, _ in blocks[:-1])
        vectors = {each: vector for block, some in blocks for each, vector in zip(block.tolist(), some, strict=True)}
        found: dict[Place, list[Item]] = {}
        for item in collection.items(ids):
            found.setdefault((item.file.root, item.file.path), []).append(item)
        assert found.keys() == self.kept.keys()
        for place, kept in self.kept.items():
            items = found[place]
            assert all(item.file == kept.file for item in items)
            assert [(item.start, item.end) for item in items] == [moment[:2] for moment in kept.moments]
            assert all((vectors[item.id] == moment[2]).all() for item, moment in zip(items, kept.moments, strict=True))
            given = [item.id for item in items]
            if kept.ids:
                assert given == kept.ids, "an item changed its id"
            else:
                assert self.hashed_ids or not self.used & set(given), "an id was used again"
            kept.ids = given
            self.used.update(given)
        assert list(collection.files()) == self.files()
        info = collection.info()
        assert info.files == len(self.kept)
        assert info.items == len(ids)
        assert info.captions == sum(len(kept.captions) for kept in self.kept.values())
        assert info.roots == tuple(sorted({place[0] for place in self.kept}))

    def files(self, root: str | None = None) -> list[MediaFile]:
        return [self.kept[place].file for place in sorted(self.kept) if root in (None, place[0])]

    def search(self, query: Vectors, k: int, where: Filter | None = None) -> tuple[list[int], NDArray[np.float64]]:
        scored = [
            (-dot(query, moment[2]), each)
            for kept in self.kept.values()
            for each, moment in zip(kept.ids, kept.moments, strict=True)
            if where is None or passes(kept.file, where)
        ]
        best = sorted(scored)[:k]
        return [each for _, each in best], np.array([-score for score, _ in best])

    def search_captions(self, query: Vectors, k: int) -> list[tuple[str, int, float]]:
        scored = [
            (text, kept.ids[0], dot(query, vector))
            for kept in self.kept.values()
            for text, vector in kept.captions
            if vector is not None
        ]
        return sorted(scored, key=lambda each: -each[2])[:k]

    def search_words(
        self, words: dict[str, float], query: Vectors, k: int, where: Filter | None = None
    ) -> tuple[list[int], list[float]]:
        """Return the best item of each file, and how much of the words the file holds."""
        scored = []
        for kept in self.kept.values():
            held = round(sum(weight * strength(kept.file, word) for word, weight in words.items()), 9)
            if held >= 0.25 and (where is None or passes(kept.file, where)):
                best = min((-dot(query, moment[2]), each) for each, moment in zip(kept.ids, kept.moments, strict=True))
                scored.append((-held, *best))
        return [each for _, _, each in sorted(scored)[:k]], [-held for held, _, _ in sorted(scored)[:k]]

    def items_with_words(self, wanted: str) -> set[int]:
        """Return the items of files with these adjacent words in a text that names what they show."""
        found = (kept for kept in self.kept.values() if holds(naming(kept.file), wanted))
        return {each for kept in found for each in kept.ids}

    def recent(self, where: Filter | None = None) -> list[int]:
        """Return the ids of the first items of all matching files."""
        passing = [kept for kept in self.kept.values() if where is None or passes(kept.file, where)]
        aged = [(newness(kept.file), -kept.ids[0]) for kept in passing]
        return [-each for _, each in sorted(aged, reverse=True)]

    def facets(self) -> Facets:
        files = self.files()
        kinds = [file.kind for file in files]
        times = sorted(file.taken for file in files if file.taken is not None)
        above = [str(folder) for file in files for folder in PurePosixPath(file.path).parents if str(folder) != "."]
        folders = tuple(FolderCount(each, above.count(each)) for each in sorted(set(above)))
        first, last = (times[0], times[-1]) if times else (None, None)
        places, cameras = (
            tuple(NameCount(*each) for each in Counter(sorted(names)).most_common())
            for names in ([file.place for file in files if file.place], [file.camera for file in files if file.camera])
        )
        return Facets(kinds.count("image"), kinds.count("video"), first, last, folders, places, cameras)


def newness(file: MediaFile) -> float:
    """Return when it was taken or, if unknown, modified."""
    return file.taken if file.taken is not None else file.modified / 1_000_000_000


def dot(first: Vectors, second: Vectors) -> float:
    """Return the dot product to six digits, so that ties are exact."""
    return round(sum(float(a) * float(b) for a, b in zip(first, second, strict=True)), 6)


def passes(file: MediaFile, where: Filter) -> bool:
    """Return whether all conditions hold."""
    return (
        (where.root is None or file.root == where.root)
        and (where.folder is None or file.path.startswith(where.folder + "/"))
        and (where.kind is None or file.kind == where.kind)
        and (where.after is None or (file.taken is not None and file.taken >= where.after))
        and (where.before is None or (file.taken is not None and file.taken < where.before))
        and (where.within is None or inside(file.latitude, file.longitude, where.within))
        and all(
            getattr(where, field) is None or holds([getattr(file, field) or ""], getattr(where, field))
            for field in ("camera", "place")
        )
        and (where.name is None or holds([file.path.rpartition("/")[2]], where.name))
        and all(holds(texts(file), text) for text in where.words)
    )


def texts(file: MediaFile) -> list[str]:
    """Return every text of a file."""
    name, lists = file.path.rpartition("/"), ["\n".join(file.captions), "\n".join(file.keywords)]
    others = [file.title, file.description, file.camera, file.place, file.ocr]
    return [name[2], f"{PurePosixPath(file.root).name}/{name[0]}", *lists, *(text or "" for text in others)]


def naming(file: MediaFile) -> list[str]:
    """Return the texts that name what a file shows."""
    return [file.path.rpartition("/")[2], *file.captions, *file.keywords, file.title or "", file.place or ""]


def strength(file: MediaFile, word: str) -> float:
    """Return how much a word of a file counts: half in a folder, a description or recognised text."""
    if holds(naming(file), word):
        return 1.0
    folder = f"{PurePosixPath(file.root).name}/{file.path.rpartition('/')[0]}"
    return 0.5 if holds([folder, file.description or "", file.ocr or ""], word) else 0.0


def holds(texts: Sequence[str], wanted: str) -> bool:
    """Return whether the words of ``wanted`` follow each other in one of the texts; ``*`` stands for an ending."""
    words = plain(wanted)
    for text in texts:
        found = plain(text)
        for start in range(len(found) - len(words) + 1):
            *rest, last = found[start : start + len(words)]
            if rest == words[:-1] and (last.startswith(words[-1]) if wanted.endswith("*") else last == words[-1]):
                return True
    return False


def plain(text: str) -> list[str]:
    """Return words of the letters and digits that the examples use, without accents."""
    return re.findall("[a-z0-9]+", text.lower().translate(str.maketrans("äé", "ae")))


def inside(latitude: float | None, longitude: float | None, box: Box) -> bool:
    """Return whether a place is in a box, edges included."""
    if latitude is None or longitude is None or not box.south <= latitude <= box.north:
        return False
    if box.west <= box.east:
        return box.west <= longitude <= box.east
    return longitude >= box.west or longitude <= box.east

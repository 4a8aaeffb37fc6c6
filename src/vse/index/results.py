"""What a search returns: items with their scores, page by page, as JSON and as lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vse.index.types import Item, Vectors, full_path
from vse.inputs.files import MediaKind

NAMED = 3
"""Files of a group that are named."""


@dataclass(frozen=True)
class Result:
    """One item that was found. ``group`` are the ids of results behind it that look the same, when these are joined.

    ``alike`` are the files of the first :data:`NAMED` of them, for people.
    """

    item: Item
    score: float
    confidence: float
    group: tuple[int, ...] = ()
    alike: tuple[str, ...] = ()

    @property
    def id(self) -> int:
        return self.item.id

    @property
    def path(self) -> str:
        """Where its file is."""
        return full_path(self.item.file)

    @property
    def start(self) -> float | None:
        """Seconds into a video; None for an image."""
        return self.item.start

    @property
    def end(self) -> float | None:
        return self.item.end

    @property
    def kind(self) -> MediaKind:
        return self.item.file.kind

    @property
    def taken(self) -> float | None:
        """The local time at which it was taken, like ``MediaFile.taken``."""
        return self.item.file.taken

    def to_json(self) -> dict[str, Any]:
        names = ("id", "path", "score", "confidence", "start", "end", "kind", "taken")
        return {**{name: getattr(self, name) for name in names}, "group": list(self.group)}


@dataclass(frozen=True)
class SearchResults:
    """One page: results ``offset + 1`` and following. ``more`` says whether another page follows.

    ``exact`` says whether every vector was compared. ``unknown`` are words of the query that the model does not know,
    ``cut`` texts of which it read the beginning only. ``vector (D,)`` is the query as it was compared: what evidence
    is about.
    """

    query: str
    exact: bool
    results: tuple[Result, ...]
    offset: int = 0
    more: bool = False
    unknown: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    vector: Vectors | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        results = [result.to_json() for result in self.results]
        lists = {"unknown": list(self.unknown), "cut": list(self.cut)}
        head = {"query": self.query, "exact": self.exact, "results": results}
        return {**head, "offset": self.offset, "more": self.more, **lists}


def clock(seconds: float) -> str:
    """Minutes and seconds, as in ``1:02.5``."""
    minutes, rest = divmod(round(max(seconds, 0.0), 1), 60)
    return f"{int(minutes)}:{rest:04.1f}"

"""Search results: items with their scores, page by page, and their JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vse.index.types import Item, Vectors, full_path
from vse.inputs.files import MediaKind

NAMED = 3
"""Files named per group."""


@dataclass(frozen=True)
class Result:
    """One item found.

    Attributes:
        item: The item.
        score: Cosine with the query.
        confidence: Probability that it is what was meant; see :mod:`vse.index.confidence`. None if the model has no
            coefficients.
        group: Ids of lower-ranked near-duplicates, if results are grouped.
        alike: Files of the first :data:`NAMED` of them, for display.
    """

    item: Item
    score: float
    confidence: float | None
    group: tuple[int, ...] = ()
    alike: tuple[str, ...] = ()

    @property
    def id(self) -> int:
        return self.item.id

    @property
    def path(self) -> str:
        """Path of the file."""
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
        """Local time at which it was taken, as in ``MediaFile.taken``."""
        return self.item.file.taken

    def to_json(self) -> dict[str, Any]:
        names = ("id", "path", "score", "confidence", "start", "end", "kind", "taken")
        return {**{name: getattr(self, name) for name in names}, "group": list(self.group)}


@dataclass(frozen=True)
class SearchResults:
    """One page of results, starting at ``offset``.

    Attributes:
        query: The query in words.
        exact: Whether every embedding was compared.
        results: Best first.
        offset: Results before this page.
        more: Whether another page follows.
        unknown: Words of the query that the model does not know.
        cut: Texts that the model truncated.
        vector: Embedding of the query ``(D,)``, needed for evidence.
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
    """Format seconds as ``1:02.5``."""
    minutes, rest = divmod(round(max(seconds, 0.0), 1), 60)
    return f"{int(minutes)}:{rest:04.1f}"

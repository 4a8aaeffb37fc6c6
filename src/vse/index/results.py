"""Search results: items with their scores, page by page, and their JSON."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

from vse.index.relevance import Grade, grade_of
from vse.index.types import Item, MediaFile, Vectors, full_path
from vse.inputs.files import MediaKind

NAMED = 3
"""Files named per group."""


def is_missing(file: MediaFile) -> bool:
    """Return whether a file does not exist where it was indexed; one that is merely unreadable does."""
    try:
        os.stat(full_path(file))  # noqa: PTH116 - a path of bytes that are no text, often called
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:
        return False
    return False


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
        moments: Matching moments of the same video that it stands for, if videos are grouped.
        relevance: Probability that it fits the query; see :mod:`vse.index.relevance`. None if the model has no
            coefficients for it, or the query contains images or items.
        matched: Fields that hold words of the query, as in :data:`vse.index.words.FIELDS`; see :mod:`vse.index.fusion`.
        rerank_score: Score of the re-ranker, whose order the results have; None without one, and behind its depth.
    """

    item: Item
    score: float
    confidence: float | None
    group: tuple[int, ...] = ()
    alike: tuple[str, ...] = ()
    relevance: float | None = None
    moments: int = 1
    matched: tuple[str, ...] = ()
    rerank_score: float | None = None

    @property
    def grade(self) -> Grade | None:
        """Relevance in a word; None below weak, and without relevance."""
        return grade_of(self.relevance)

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

    @property
    def missing(self) -> bool:
        """Whether the file is gone now; looks at the disk."""
        return is_missing(self.item.file)

    def to_json(self) -> dict[str, Any]:
        names = ("id", "path", "score", "confidence", "relevance", "grade", "start", "end", "kind", "taken")
        found = {name: getattr(self, name) for name in names}
        lists = {"matched": list(self.matched), "group": list(self.group)}
        again = {} if self.rerank_score is None else {"rerank_score": self.rerank_score}
        return {**found, **again, **lists, "moments": self.moments, "missing": self.missing}


@dataclass(frozen=True)
class EmptyReason:
    """Which condition leaves no result.

    Attributes:
        condition: ``"relevance"`` or ``"confidence"`` (a minimum), ``"exclude"`` (excluded words), the name of a field
            of :class:`~vse.index.filters.Filter`, ``"filters"`` (several together), or ``"collection"`` (it is empty).
        without: Results there would be without that condition, counted up to the best 256.
    """

    condition: str
    without: int = 0


@dataclass(frozen=True)
class Reranking:
    """How results were re-ranked.

    Attributes:
        model: The re-ranker.
        depth: Candidates that were to be re-ranked.
        scored: Those that were.
        unreadable: Those whose file could not be read; they come behind the others.
        complete: Whether time sufficed for all of them. If not, the rest has the order of the first stage.
    """

    model: str
    depth: int
    scored: int
    unreadable: int
    complete: bool


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
        empty_reason: Why there is no result at all; None if there are some, on this page or before it.
        notes: What should be said about the query, each as ``"code: words"``; see :mod:`vse.index.language`.
        reranking: How the results were re-ranked; None if they were not. See :mod:`vse.index.rerank`.
    """

    query: str
    exact: bool
    results: tuple[Result, ...]
    offset: int = 0
    more: bool = False
    unknown: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    vector: Vectors | None = field(default=None, compare=False, repr=False)
    empty_reason: EmptyReason | None = None
    notes: tuple[str, ...] = ()
    reranking: Reranking | None = None

    def to_json(self) -> dict[str, Any]:
        results = [result.to_json() for result in self.results]
        lists: dict[str, Any] = {"unknown": list(self.unknown), "cut": list(self.cut), "notes": list(self.notes)}
        lists["empty_reason"] = None if self.empty_reason is None else asdict(self.empty_reason)
        head = {"query": self.query, "exact": self.exact, "results": results}
        again = {} if self.reranking is None else {"reranking": asdict(self.reranking)}
        return {**head, "offset": self.offset, "more": self.more, **lists, **again}


def clock(seconds: float) -> str:
    """Format seconds as ``1:02.5``."""
    minutes, rest = divmod(round(max(seconds, 0.0), 1), 60)
    return f"{int(minutes)}:{rest:04.1f}"

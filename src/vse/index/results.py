"""What a search returns: items with their scores, page by page, as JSON and as lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from vse.index.types import Item, Vectors, full_path
from vse.inputs.files import MediaKind
from vse.inputs.text import printable

if TYPE_CHECKING:
    from rich.console import Console

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
        """Seconds into a clip; None for a picture."""
        return self.item.start

    @property
    def end(self) -> float | None:
        return self.item.end

    @property
    def kind(self) -> MediaKind:
        return self.item.file.kind

    @property
    def taken(self) -> float | None:
        """The local time at which it was taken, in the manner of ``MediaFile.taken``."""
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

    def lines(self) -> list[str]:
        """A line for each result, the path last and whole."""
        lines = about_words(self.unknown, self.cut)
        if not self.results:
            lines.append("nothing found" if not self.offset else "no more results")
        lines += [_line(number, result) for number, result in enumerate(self.results, self.offset + 1)]
        if self.results and not self.exact:
            lines.append("searched with an approximate index")
        return lines

    def render(self, console: Console) -> None:
        """The lines, beside what else is drawn."""
        say(console, self.lines())


def about_words(unknown: tuple[str, ...], cut: tuple[str, ...]) -> list[str]:
    """Lines for what the model did not read of a query."""
    lines = [f"words the model does not know: {printable(', '.join(unknown))}"] if unknown else []
    return lines + [f"too long for the model, which read its beginning: {printable(text[:60])} …" for text in cut]


def say(console: Console, lines: list[str]) -> None:
    """The lines as they are, however long."""
    from rich.text import Text

    for line in lines:
        console.print(Text(line), soft_wrap=True)  # Text: a bracket in a file name is no markup


def _line(number: int, result: Result) -> str:
    """Rank, confidence, score, id, then what is known of it, and the path."""
    parts = [f"{number:>4}.  {result.confidence:>4.0%}  {result.score:.3f}  {result.id:>7}"]
    if result.taken is not None:
        parts.append(_date(result.taken))
    parts.append(printable(result.path))
    if result.start is not None and result.end is not None:
        parts.append(f"{clock(result.start)}–{clock(result.end)}")
    if result.group:
        parts.append(_alike(result))
    return "  ".join(parts)


def _alike(result: Result) -> str:
    names = dict.fromkeys(printable(path.rpartition("/")[2]) for path in result.alike)  # moments of a clip have one
    rest = " …" if len(result.group) > len(result.alike) else ""
    return f"and {len(result.group)} alike: {', '.join(names)}{rest}"


def _date(taken: float) -> str:
    try:
        return datetime.fromtimestamp(taken, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):  # a camera may claim any year
        return "date unknown"


def clock(seconds: float) -> str:
    """Minutes and seconds, as in ``1:02.5``."""
    minutes, rest = divmod(round(max(seconds, 0.0), 1), 60)
    return f"{int(minutes)}:{rest:04.1f}"

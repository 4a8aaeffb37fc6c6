"""Search results as lines: one for each image, moment or caption."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vse.cli.render import lines_of
from vse.index.results import clock
from vse.inputs.text import printable
from vse.models.protocols import NO_EVIDENCE

if TYPE_CHECKING:
    from vse.cli.search import Page
    from vse.index.caption_search import CaptionResults
    from vse.index.explanation import Explained
    from vse.index.results import Result, SearchResults

CUT_TEXT = 60
"""Characters shown of a text that the model truncated."""


def page_lines(page: Page) -> list[str]:
    """Return the lines of the results, and how to get the next page."""
    return lines_of(page.found) + ([f"more with --page {page.number + 1}"] if page.more else [])


def search_lines(results: SearchResults) -> list[str]:
    """Return a line for each result, the whole path last."""
    lines = _query_notes(results.unknown, results.cut)
    if not results.results:
        lines.append("nothing found" if not results.offset else "no more results")
    lines += [_result_line(number, result) for number, result in enumerate(results.results, results.offset + 1)]
    if results.results and not results.exact:
        lines.append("searched with an approximate index")
    return lines


def explained_lines(explained: Explained) -> list[str]:
    """Return the lines of the results, then the evidence files under the numbers of the results."""
    lines = search_lines(explained.results)
    if explained.explanations and all(each.note == NO_EVIDENCE for each in explained.explanations):
        return [*lines, f"no evidence: {NO_EVIDENCE}"]
    for number, each in enumerate(explained.explanations, explained.results.offset + 1):
        file = f"{each.file} (replaced)" if each.replaced else each.file
        text = "; ".join(part for part in (file, each.note) if part is not None)
        lines.append(f"{number:>4}.  evidence: {printable(text)}")
    return lines


def caption_lines(results: CaptionResults) -> list[str]:
    """Return a line for each caption, followed by its file."""
    lines = _query_notes(results.unknown, results.cut)
    if not results.captions:
        lines.append("no more captions")
    return lines + [
        f"{number:>4}.  {each.score:.3f}  {each.id:>7}  {printable(each.caption)}  ({printable(each.path)})"
        for number, each in enumerate(results.captions, results.offset + 1)
    ]


def _query_notes(unknown: tuple[str, ...], cut: tuple[str, ...]) -> list[str]:
    """Which parts of the query the model did not read."""
    lines = [f"words the model does not know: {printable(', '.join(unknown))}"] if unknown else []
    return lines + [f"truncated by the model: {printable(text[:CUT_TEXT])} …" for text in cut]


def _result_line(number: int, result: Result) -> str:
    """Rank, confidence if known, score, id, date, path, time within a video, where words match, duplicates."""
    confidence = "" if result.confidence is None else f"{result.confidence:>4.0%}  "
    parts = [f"{number:>4}.  {confidence}{result.score:.3f}  {result.id:>7}"]
    if result.taken is not None:
        parts.append(_date(result.taken))
    parts.append(printable(result.path))
    if result.start is not None and result.end is not None:
        parts.append(f"{clock(result.start)}–{clock(result.end)}")
    if result.matched:
        parts.append(f"({', '.join(result.matched)})")
    if result.moments > 1:
        parts.append(f"({result.moments} moments)")
    if result.group:
        parts.append(_duplicates(result))
    if result.missing:
        parts.append("(the file is missing)")
    return "  ".join(parts)


def _duplicates(result: Result) -> str:
    names = dict.fromkeys(printable(path.rpartition("/")[2]) for path in result.alike)  # moments of a video share one
    rest = " …" if len(result.group) > len(result.alike) else ""
    return f"and {len(result.group)} alike: {', '.join(names)}{rest}"


def _date(taken: float) -> str:
    try:
        return datetime.fromtimestamp(taken, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):  # a camera may claim any year
        return "date unknown"

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
    from vse.index.results import EmptyReason, Reranking, Result, SearchResults

CUT_TEXT = 60
"""Characters shown of a text that the model truncated."""
COUNTED = 256
"""Results are counted up to this number when there are none."""


def page_lines(page: Page) -> list[str]:
    """Return the lines of the results, and how to get more of them."""
    lines = lines_of(page.found)
    if page.more:
        lines.append(f"more with --page {page.number + 1}")
    elif page.cut:
        lines.append("results that match less are left out: --all shows them")
    return lines


def search_lines(results: SearchResults) -> list[str]:
    """Return a line for each result, the whole path last."""
    lines = _query_notes(results.unknown, results.cut, results.notes)
    if not results.results:
        lines.append("no more results" if results.offset else _empty(results.query, results.empty_reason))
    lines += [_result_line(number, result) for number, result in enumerate(results.results, results.offset + 1)]
    if results.results and not results.exact:
        lines.append("searched with an approximate index")
    if results.reranking is not None:
        lines.append(_reranking(results.reranking))
    return lines


def _reranking(how: Reranking) -> str:
    """How many results were ordered again, and what was left."""
    line = f"{how.scored} results re-ranked by {printable(how.model)}"
    if how.unreadable:
        line += f"; {how.unreadable} files could not be read and come behind them"
    if not how.complete:
        line += "; time was up, so the rest keeps its order: raise --rerank-seconds or lower --depth"
    return line


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
    lines = _query_notes(results.unknown, results.cut, ())
    if not results.captions:
        lines.append("no more captions")
    return lines + [
        f"{number:>4}.  {each.score:.3f}  {each.id:>7}  {printable(each.caption)}  ({printable(each.path)})"
        for number, each in enumerate(results.captions, results.offset + 1)
    ]


OPTIONS = {"kind": "--type", "within": "--near", "root": "--folder"}
"""Filters whose option has another name."""


def _empty(query: str, reason: EmptyReason | None) -> str:
    """Say what leaves no result, and how to drop it."""
    if reason is None:
        return "nothing found"
    condition, without = reason.condition, f"{reason.without:,}" + ("+" if reason.without >= COUNTED else "")
    if condition == "filters" and not reason.without:
        return "nothing passes the filters"
    said = {
        "collection": "nothing found: the collection is empty",
        "relevance": f"Nothing here matches {printable(query)!r}; --all shows the closest anyway",
        "confidence": f"nothing reaches --min-confidence: leave it out for {without} results",
        "exclude": f"everything found shows what --not excludes: leave it out for {without} results",
        "filters": f"nothing passes all filters: leave them out for {without} results",
    }
    option = "the words in quotes" if condition == "words" else OPTIONS.get(condition, f"--{condition}")
    return said.get(condition, f"nothing found with {option}: leave it out for {without} results")


def _query_notes(unknown: tuple[str, ...], cut: tuple[str, ...], notes: tuple[str, ...]) -> list[str]:
    """Which parts of the query the model did not read, and what else is to be said about it."""
    lines = [f"words the model does not know: {printable(', '.join(unknown))}"] if unknown else []
    lines += [f"truncated by the model: {printable(text[:CUT_TEXT])} …" for text in cut]
    return lines + [printable(note.partition(": ")[2]) for note in notes]


def _result_line(number: int, result: Result) -> str:
    """Rank, how well it matches, id, date, path, time within a video, where words match, duplicates.

    How well it matches is a word if the model has relevance, else its confidence, if known, and its score. The score
    of a re-ranker follows it.
    """
    if result.relevance is not None:
        match = f"{result.grade or ('by words' if result.matched else 'unlikely'):<8}"
    else:
        match = ("" if result.confidence is None else f"{result.confidence:>4.0%}  ") + f"{result.score:.3f}"
    if result.rerank_score is not None:
        match = f"{match}  {result.rerank_score:>7.3f}"
    parts = [f"{number:>4}.  {match}  {result.id:>7}"]
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

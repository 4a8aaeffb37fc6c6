"""Re-rank the best results of a search with a model that scores pairs of an image and a text. No torch here.

The first stage finds candidates by their embeddings; a re-ranker, which compares every word with every part of an
image, orders the first of them. It is far slower, so its time is bounded: candidates that it does not reach in time
keep their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, VSEError
from vse.index.results import Reranking, Result, SearchResults
from vse.index.types import Item, full_path
from vse.models.protocols import NO_RERANKER, PairScorer
from vse.progress import ProgressReporter, SilentProgress

DEPTH = 50
"""Candidates that are re-ranked by default."""
MAX_DEPTH = 1000
SECONDS = 30.0
"""Default time limit of re-ranking one search."""
TOGETHER = 8
"""Images scored between two looks at the clock."""
Read = Callable[[Item], Any]
"""Returns what a re-ranker reads of an item: a path, the bytes of a file or an array; raises VSEError or OSError."""


class Reranker(Protocol):
    """Scores images for a text; larger is better."""

    @property
    def name(self) -> str:
        """What results call it."""

    def score(self, images: Sequence[Any], text: str) -> NDArray[np.floating[Any]]:
        """Return the scores ``(n,)`` of images: paths, bytes of files, or arrays of pixels.

        Raises:
            VSEError: An image cannot be read.
        """


class Known(Protocol):
    """A cache of scores by text, item and content."""

    def get(self, key: tuple[str, int, str], /) -> float | None: ...

    def put(self, key: tuple[str, int, str], value: float, /) -> None: ...


@dataclass(frozen=True)
class PairReranker:
    """A model of pairs as a re-ranker.

    Raises:
        InputError: The model has embeddings in place of scores, or cannot read image files or texts.
    """

    model: PairScorer
    name: str = "re-ranker"

    def __post_init__(self) -> None:
        if not isinstance(self.model, PairScorer):
            raise InputError(f"{self.name}: {NO_RERANKER}")
        able = self.model.capabilities
        if not able.texts:
            raise InputError(f"{self.name}: without a vocabulary it reads no texts, so it cannot re-rank")
        if not able.images:
            raise InputError(
                f"{self.name} takes features of images and cannot read image files: re-rank a search with a model that "
                "reads pixels, such as ViLT or BLIP; 'vse eval --rerank' takes features"
            )

    def score(self, images: Sequence[Any], text: str) -> NDArray[np.floating[Any]]:
        return self.model.score_pairs(images, [text], unknown="allow")[:, 0]


def load_reranker(source: str, *, device: str | None = None, threads: int | None = None) -> PairReranker:
    """Load a re-ranker of image files: a folder or a hub id, as for :func:`vse.load`.

    Raises:
        InputError: It cannot be loaded, does not score pairs, or cannot read image files.
    """
    from vse.models.sources import load_reranker as load_model

    return PairReranker(load_model(source, device=device, threads=threads), source)


def check_reranking(depth: int, seconds: float, texts: Sequence[str], sort: str = "relevance") -> None:
    """Raise InputError for a depth or time out of range, a query without text, or another order than by match."""
    if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= MAX_DEPTH:
        raise InputError(f"depth {str(depth)[:60]}: expected a whole number from 0 to {MAX_DEPTH:,}")
    if not seconds > 0:
        raise InputError(f"a time limit of {seconds} s: expected a number above 0")
    if not texts:
        raise InputError("a re-ranker compares images with a text, and this query has none: add one, or do not re-rank")
    if sort != "relevance":
        raise InputError(f"sort {sort!r} orders results by date: sort by relevance to re-rank them")


def search_reranked(
    find: Callable[[int, int], SearchResults],
    reranker: Reranker,
    texts: Sequence[str],
    *,
    k: int,
    offset: int = 0,
    depth: int = DEPTH,
    seconds: float = SECONDS,
    read: Read | None = None,
    known: Known | None = None,
    progress: ProgressReporter | None = None,
) -> SearchResults:
    """Return one page of a search whose first ``depth`` results are re-ranked.

    Args:
        find: Runs the search for a page: results per page, and results to skip.
        reranker: Orders the candidates.
        texts: The texts that are searched for; several are compared as one.
        k: Results per page.
        offset: Results to skip.
        depth: Candidates that are re-ranked; 0 leaves the first stage's order. Later results keep it.
        seconds: Time limit. What is not scored by then keeps its order, behind what was; see ``Reranking.complete``.
        read: Returns what the re-ranker reads of an item; by default its file, or the middle frame of a moment.
        known: Scores that were computed before; new ones are added.
        progress: Advances once per candidate.

    Raises:
        InputError: The depth or the time is out of range, or there is no text.
    """
    check_reranking(depth, seconds, texts)
    if offset >= depth:  # behind what is re-ranked, where the order is that of the first stage
        found = find(k, offset)
        return replace(found, reranking=Reranking(reranker.name, depth, 0, 0, complete=True))
    found = find(max(depth, offset + k), 0)
    ordered, reranking = _ordered(
        found.results[:depth], reranker, ", ".join(texts), depth, seconds, read or item_source, known, progress
    )
    every = (*ordered, *found.results[depth:])
    page = every[offset : offset + k]
    return replace(found, results=page, offset=offset, more=found.more or len(every) > offset + k, reranking=reranking)


def _ordered(
    candidates: Sequence[Result],
    reranker: Reranker,
    text: str,
    depth: int,
    seconds: float,
    read: Read,
    known: Known | None,
    progress: ProgressReporter | None,
) -> tuple[list[Result], Reranking]:
    """Return the candidates by their second score; those without one behind, in the order of the first stage."""
    report, until = progress or SilentProgress(), time.monotonic() + seconds
    scores: list[float | None] = [None] * len(candidates)
    bad, reached = 0, 0
    report.start(len(candidates), "re-ranking")
    for start in range(0, len(candidates), TOGETHER):
        if time.monotonic() >= until:
            break
        chunk = candidates[start : start + TOGETHER]
        found, unread = _score(reranker, chunk, text, read, known)
        scores[start : start + len(chunk)] = found
        bad += unread
        reached += len(chunk)
        report.advance(len(chunk))
    report.finish()
    order = sorted(range(len(candidates)), key=lambda place: _falling(scores[place]))  # stable: ties keep their order
    ordered = [replace(candidates[place], rerank_score=scores[place]) for place in order]
    return ordered, Reranking(reranker.name, depth, reached - bad, bad, complete=reached == len(candidates))


def _falling(score: float | None) -> tuple[bool, float]:
    return score is None, 0.0 if score is None else -score


def _score(
    reranker: Reranker, chunk: Sequence[Result], text: str, read: Read, known: Known | None
) -> tuple[list[float | None], int]:
    """Return the scores of some candidates, None for files that cannot be read, and the number of these."""
    keys = [(text, each.id, each.item.file.digest) for each in chunk]
    scores = [None if known is None else known.get(key) for key in keys]
    sources: dict[int, Any] = {}
    for place, each in enumerate(chunk):
        if scores[place] is None:
            try:
                sources[place] = read(each.item)
            except (VSEError, OSError):
                continue
    for place, value in _readable(reranker, sources, text).items():
        scores[place] = value
        if known is not None:
            known.put(keys[place], value)
    return scores, sum(score is None for score in scores)


def _readable(reranker: Reranker, sources: dict[int, Any], text: str) -> dict[int, float]:
    """Return the scores of what can be read; one bad image does not take those beside it along."""
    if not sources:
        return {}
    places = list(sources)
    try:
        found = np.asarray(reranker.score([sources[place] for place in places], text), dtype=np.float64)
    except VSEError:
        if len(places) == 1:
            return {}
        halves = places[: len(places) // 2], places[len(places) // 2 :]
        return {
            place: value
            for half in halves
            for place, value in _readable(reranker, {each: sources[each] for each in half}, text).items()
        }
    if found.shape != (len(places),):
        raise InputError(f"{reranker.name} returned scores of shape {found.shape} for {len(places)} images")
    return {place: float(value) for place, value in zip(places, found, strict=True) if np.isfinite(value)}


def item_source(item: Item) -> Any:
    """Return the path of an image, or the middle frame of a moment of a video ``(H, W, 3)``."""
    if item.start is None:
        return full_path(item.file)
    return middle_frame(full_path(item.file), item)


def middle_frame(path: Any, item: Item) -> NDArray[np.uint8]:
    """Return the middle one of the frames that were indexed as a moment."""
    from vse.index.evidence import moment_frames

    frames = moment_frames(path, item.start or 0.0).frames
    return frames[len(frames) // 2]

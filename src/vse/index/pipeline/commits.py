"""Commit entries to a collection in small batches, so that a killed process loses little."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vse.index.scan import Problem, ScanLimits, read_captions
from vse.index.types import Collection, Entry, MediaFile, Moment
from vse.models.encode import encode_texts
from vse.models.protocols import ParallelCalls, Towers

MAX_ROW_PROBLEMS = 1000
"""Unusable rows of caption files that are listed; the others are counted."""
NO_WORDS = "the model has no vocabulary: captions are kept, but cannot be searched"


class Commits:
    """Buffers entries and commits them every ``files`` files or ``seconds`` seconds, whichever comes first."""

    def __init__(
        self,
        collection: Collection,
        model: Towers,
        *,
        files: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.notes: list[str] = []
        self._collection, self._model = collection, model
        self._files, self._seconds, self._clock = files, seconds, clock
        self._pending: list[tuple[MediaFile, tuple[Moment, ...]]] = []
        self._last = clock()

    def add(self, file: MediaFile, moments: tuple[Moment, ...]) -> None:
        """Buffer a file; it is durable after the next commit."""
        self._pending.append((file, moments))
        self.commit_if_due()

    def commit_if_due(self) -> None:
        """Commit if enough files are waiting or enough time has passed."""
        if len(self._pending) >= self._files or self._clock() - self._last >= self._seconds:
            self.commit()

    def commit(self) -> None:
        """Add the buffered files. Idempotent: retry it after an interruption."""
        if self._pending:
            self._collection.add(self._entries())
            self._pending = []
        self._last = self._clock()

    def _entries(self) -> list[Entry]:
        """Return the buffered entries with embeddings of their captions, all encoded in one call."""
        texts = [text for file, _ in self._pending for text in file.captions]
        if not texts:
            return [Entry(file, moments) for file, moments in self._pending]
        if self._model.tokenizer is None:
            self.notes = [NO_WORDS]
            return [Entry(file, moments) for file, moments in self._pending]
        vectors, row, entries = encode_texts(self._model, texts, unknown="allow"), 0, []
        for file, moments in self._pending:
            own = vectors[row : row + len(file.captions)]
            row += len(file.captions)
            entries.append(Entry(file, moments, own if len(own) else None))
        return entries


class IndexModel(Towers, Protocol):
    """A model that can fill a collection: any that :func:`vse.load` returns and that reads images."""

    def fingerprint(self) -> str:
        """Return an identifier of exactly these weights."""

    def parallel_calls(self, batch_size: int) -> AbstractContextManager[ParallelCalls]:
        """Allow concurrent calls of ``embed_images`` within the block; the value says how many."""


@dataclass(frozen=True)
class FolderCaptions:
    """The captions of a folder by path; ``complete`` unless a caption file could not be read at all."""

    by_path: dict[str, tuple[str, ...]]
    complete: bool = True
    problems: tuple[Problem, ...] = ()

    def wanted(self, path: str, known: MediaFile | None) -> tuple[str, ...]:
        """Return the captions for the file at ``path``; known ones are kept if a caption file is unreadable."""
        found = self.by_path.get(path, ())
        if self.complete or known is None:
            return found
        return tuple(dict.fromkeys((*known.captions, *found)))


def folder_captions(root: str | Path, limits: ScanLimits) -> FolderCaptions:
    """Read the caption files of a folder."""
    problems: list[Problem] = []
    more, complete = Counter[str](), True

    def report(problem: Problem) -> None:
        nonlocal complete
        row = problem.reason.startswith("line ")
        complete = complete and row
        if row and len(problems) >= MAX_ROW_PROBLEMS:
            more[problem.path] += 1
        else:
            problems.append(problem)

    by_path = read_captions(root, limits=limits, on_problem=report)
    rest = (Problem(name, f"and {count:,} more rows that cannot be used") for name, count in more.items())
    return FolderCaptions(by_path, complete, (*problems, *rest))

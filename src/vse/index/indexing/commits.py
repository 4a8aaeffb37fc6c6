"""Entries on their way into a collection: some at a time, so that a process that is killed loses little."""

from __future__ import annotations

import time
from collections.abc import Callable

from vse.encoding import Towers, encode_texts
from vse.index.collection import Collection, Entry, Moment
from vse.index.media_file import MediaFile

NO_WORDS = "the model has no vocabulary: captions are kept, but cannot be searched"


class Commits:
    """Gathers entries and adds them to the collection every ``files`` files or ``seconds``, whatever comes first."""

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
        """Take a file in; it has happened when the next commit has."""
        self._pending.append((file, moments))
        self.commit_if_due()

    def commit_if_due(self) -> None:
        """Commit when enough files are waiting, or the last commit is long ago."""
        if len(self._pending) >= self._files or self._clock() - self._last >= self._seconds:
            self.commit()

    def commit(self) -> None:
        """Add what is waiting. An interrupted call may be made again: adding a file twice leaves it there once."""
        if self._pending:
            self._collection.add(self._entries())
            self._pending = []
        self._last = self._clock()

    def _entries(self) -> list[Entry]:
        """With the vectors of their captions, all of them encoded at once."""
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

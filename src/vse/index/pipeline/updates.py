"""Update known files whose content is unchanged: their place, captions, metadata, and the text in images.

Nothing of this touches the embeddings of images and videos, nor their ids. Only new captions are encoded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vse._util.prefetch import prefetch
from vse.index.pipeline.commits import NO_WORDS, IndexModel
from vse.index.pipeline.plan import BLOCK, Move
from vse.index.scan import BadMediaError, Problem, ScanLimits
from vse.index.scan.describe import described_again, metadata_state
from vse.index.scan.ocr import MAX_SIDE, TextReader
from vse.index.types import Collection, MediaFile, Vectors
from vse.index.words import SEARCHING
from vse.inputs.decoding import decode_image
from vse.inputs.images import BadImageError, ImageLimits
from vse.models.encode import READERS, encode_texts
from vse.progress import ProgressReporter

PAUSE = 30.0
"""Seconds after which the text read so far is committed."""


def keeps_details(collection: Collection) -> bool:
    """Return whether a collection finds the words of metadata."""
    return collection.info().backend in SEARCHING


@dataclass
class Updates:
    """Applies moves to a collection, and gathers problems and notes."""

    collection: Collection
    model: IndexModel
    limits: ScanLimits
    progress: ProgressReporter
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def apply(self, moves: Sequence[Move]) -> None:
        """Apply moves at once, so that files may swap places."""
        if not moves:
            return
        files = list(self._current(moves))
        new = {text for move in moves for text in set(move.candidate.captions) - set(move.known.captions)}
        self.collection.move(
            [((move.known.root, move.known.path), file) for move, file in zip(moves, files, strict=True)],
            captions=self._vectors(sorted(new)),
        )

    def _current(self, moves: Sequence[Move]) -> Iterator[MediaFile]:
        """Yield the files as they are now. Metadata that cannot be read stays as it was, and is retried next time."""
        self.progress.start(len(moves), "comparing metadata")
        with closing(prefetch(self._described, moves, workers=READERS, window=4 * READERS)) as described:
            for _, (file, problem) in described:
                if problem is not None:
                    self.problems.append(problem)
                yield file
                self.progress.advance()
        self.progress.finish()

    def _described(self, move: Move) -> tuple[MediaFile, Problem | None]:
        known, found = move.known, move.candidate.found
        file = replace(
            known,
            root=move.root,
            path=found.path,
            size=found.size,
            modified=found.modified_ns,
            captions=move.candidate.captions,
        )
        if known.metadata_version == metadata_state(found):
            return file, None
        try:
            return described_again(file, found, move.root, self.limits), None
        except BadMediaError as error:
            return file, Problem(found.path, error.reason)

    def _vectors(self, texts: list[str]) -> dict[str, Vectors]:
        if not texts:
            return {}
        if self.model.tokenizer is None:
            self.notes = [NO_WORDS]
            return {}
        return dict(zip(texts, encode_texts(self.model, texts, unknown="allow"), strict=True))


def read_texts(collection: Collection, root: str, limits: ScanLimits, progress: ProgressReporter) -> int:
    """Recognise the text of each image below ``root`` where nobody has looked yet; return how many there were.

    An image that cannot be read counts as one without text.
    """
    total = sum(1 for _ in _unread(collection, root))
    if not total:
        return 0
    reader = TextReader()
    progress.start(total, "reading text in images")
    done: list[MediaFile] = []
    last = time.monotonic()
    try:
        images = prefetch(lambda file: _pixels(file, limits.image), _unread(collection, root), workers=2, window=4)
        with closing(images):
            for file, pixels in images:
                done.append(replace(file, ocr="" if pixels is None else reader.read(pixels)))
                progress.advance()
                if time.monotonic() - last >= PAUSE or len(done) >= BLOCK:
                    _store(collection, done)
                    done, last = [], time.monotonic()
    finally:
        _store(collection, done)
    progress.finish()
    return total


def _unread(collection: Collection, root: str) -> Iterator[MediaFile]:
    return (file for file in collection.files(root) if file.kind == "image" and file.ocr is None)


def _pixels(file: MediaFile, limits: ImageLimits) -> np.ndarray | None:
    try:
        return decode_image(Path(file.root) / file.path, longest=MAX_SIDE, limits=limits)
    except (BadImageError, MemoryError):
        return None


def _store(collection: Collection, files: Sequence[MediaFile]) -> None:
    if files:
        collection.move([((file.root, file.path), file) for file in files])

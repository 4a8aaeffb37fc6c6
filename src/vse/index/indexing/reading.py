"""Reading, encoding and committing many files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from vse.errors import InputError, VSEError
from vse.index.collection import Moment
from vse.index.indexing.ahead import parts_ahead
from vse.index.indexing.commits import Commits
from vse.index.indexing.moments import IndexModel, count_frames, embed_parts
from vse.index.indexing.parts import FRAMES, Part, read_parts
from vse.index.indexing.plan import Candidate
from vse.index.scan import Problem, ScanLimits
from vse.progress import ProgressReporter

NO_VECTOR = "the model gives no finite vector for it"


@dataclass
class Reading:
    """What came of the files: counts, the frames that went through the model, and what was wrong."""

    new: int = 0
    changed: int = 0
    images: int = 0
    seconds: float = 0.0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_files(
    root: str,
    candidates: Sequence[Candidate],
    model: IndexModel,
    commits: Commits,
    *,
    batch_size: int,
    limits: ScanLimits,
    progress: ProgressReporter,
) -> Reading:
    """Bring files into the collection. However this ends, what was encoded until then is committed if it can be."""
    how = model.preprocessing
    if how is None:
        raise InputError("the model takes sets of features, not pictures: use one that reads pictures")
    windows = max(batch_size // FRAMES, 1)

    def read(candidate: Candidate) -> Iterator[Part | Problem]:
        return read_parts(candidate.found, root, candidate.captions, how, windows, limits)

    def weight(candidate: Candidate) -> int:
        return windows * FRAMES if candidate.found.kind == "video" else 1

    encoder = _Encoder(model, commits, batch_size, progress)
    if not candidates:
        return encoder.finished()
    progress.start(len(candidates), "indexing")
    try:
        with closing(parts_ahead(candidates, read, weight, 2 * batch_size)) as parts:
            for candidate, part in parts:
                encoder.take(candidate, part)
        encoder.encode()
        commits.commit()
    except BaseException:
        with suppress(VSEError):  # the error that is under way says more than a second one
            commits.commit()
        raise
    progress.finish()
    return encoder.finished()


class _Encoder:
    """Gathers parts until they fill a batch."""

    def __init__(self, model: IndexModel, commits: Commits, batch_size: int, progress: ProgressReporter) -> None:
        self._model, self._commits, self._batch_size, self._progress = model, commits, batch_size, progress
        self._result = Reading()
        self._waiting: list[tuple[Candidate, Part]] = []
        self._frames = 0
        self._begun: dict[str, list[Moment]] = {}  # the moments of clips of which more is to come
        self._began = time.perf_counter()

    def take(self, candidate: Candidate, part: Part | Problem) -> None:
        if isinstance(part, Problem):
            path = candidate.found.path
            self._waiting = [each for each in self._waiting if each[0].found.path != path]
            self._frames = count_frames(waiting for _, waiting in self._waiting)
            self._begun.pop(path, None)
            self._result.problems.append(part)
            self._progress.advance()
            return
        self._waiting.append((candidate, part))
        self._frames += count_frames([part])
        if self._frames >= self._batch_size:
            self.encode()
        self._commits.commit_if_due()

    def encode(self) -> None:
        """Everything that is waiting through the model; files that are complete go on to be committed."""
        waiting, self._waiting = self._waiting, []
        self._result.images += self._frames
        self._frames = 0
        found = embed_parts(self._model, [part for _, part in waiting], self._batch_size)
        rate = self._result.images / (time.perf_counter() - self._began)
        for (candidate, part), moments in zip(waiting, found, strict=True):
            self._begun.setdefault(part.file.path, []).extend(moments)
            if part.last:
                self._complete(candidate, part)
                self._progress.advance(1, f"indexing, {rate:.1f} images/s")

    def finished(self) -> Reading:
        self._result.seconds = time.perf_counter() - self._began
        self._result.notes.extend(self._commits.notes)
        return self._result

    def _complete(self, candidate: Candidate, part: Part) -> None:
        moments = self._begun.pop(part.file.path)
        if not moments:
            self._result.problems.append(Problem(part.file.path, NO_VECTOR))
            return
        if part.remark is not None:
            self._result.notes.append(str(Problem(part.file.path, part.remark)))
        if candidate.known is None:
            self._result.new += 1
        else:
            self._result.changed += 1
        self._commits.add(part.file, tuple(moments))

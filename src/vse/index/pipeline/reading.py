"""Reading, encoding and committing many files."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field

from vse.errors import InputError, VSEError
from vse.index.pipeline.commits import Commits, IndexModel, count_frames, embed_parts
from vse.index.pipeline.decode import FRAMES, Part, parts_ahead, read_parts
from vse.index.pipeline.plan import Candidate
from vse.index.scan import Problem, ScanLimits
from vse.index.types import Moment
from vse.models.encode import ParallelCalls
from vse.progress import ProgressReporter

Taken = tuple[Candidate, Part | Problem]
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
    """Bring files into the collection. However this ends, what was encoded until then is committed if it can be.

    About ``batch_size`` pictures are in the model or the next to be there, in several calls at once, and up to twice as
    many are read ahead; of clips, ``batch_size`` frames for each call.
    """
    how = model.preprocessing
    if how is None:
        raise InputError("the model takes sets of features, not pictures: use one that reads pictures")
    windows = max(batch_size // FRAMES, 1)

    def read(candidate: Candidate) -> Iterator[Part | Problem]:
        return read_parts(candidate.found, root, candidate.captions, how, windows, limits)

    def weight(candidate: Candidate) -> int:
        return windows * FRAMES if candidate.found.kind == "video" else 1

    result, began = Reading(), time.perf_counter()
    if not candidates:
        return result
    progress.start(len(candidates), "indexing")
    try:
        with (
            model.parallel_calls(batch_size) as calls,
            closing(_Encoder(model, commits, result, progress, calls, batch_size)) as encoder,
            closing(parts_ahead(candidates, read, weight, 2 * batch_size)) as parts,
        ):
            for candidate, part in parts:
                encoder.take(candidate, part)
            encoder.finish()
        commits.commit()
    except BaseException:
        with suppress(VSEError):  # the error that is under way says more than a second one
            commits.commit()
        raise
    progress.finish()
    result.seconds = time.perf_counter() - began
    result.notes.extend(commits.notes)
    return result


class _Encoder:
    """Gathers parts until they fill a call of the model, and keeps so many calls under way that none has to wait.

    Everything happens in the order in which the parts came, problems too: those of a clip may follow parts of it.
    """

    def __init__(
        self,
        model: IndexModel,
        commits: Commits,
        result: Reading,
        progress: ProgressReporter,
        calls: ParallelCalls,
        batch_size: int,
    ) -> None:
        self._model, self._commits, self._result, self._progress = model, commits, result, progress
        self._calls, self._batch_size = calls, batch_size
        self._pool = ThreadPoolExecutor(calls.threads, thread_name_prefix="vse-encode")
        self._waiting: list[Taken] = []
        self._under_way: deque[tuple[list[Taken], Future[list[tuple[Moment, ...]]]]] = deque()
        self._weighing = 0  # of what is under way
        self._begun: dict[str, list[Moment]] = {}  # the moments of clips of which more is to come
        self._began = time.perf_counter()

    def take(self, candidate: Candidate, part: Part | Problem) -> None:
        self._waiting.append((candidate, part))
        if _weight(self._waiting) >= self._calls.pictures:
            self._submit()
        while self._under_way and (self._under_way[0][1].done() or self._is_full()):
            self._receive()
        self._commits.commit_if_due()

    def finish(self) -> None:
        """Wait for everything that is waiting or under way."""
        self._submit()
        while self._under_way:
            self._receive()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _is_full(self) -> bool:
        return len(self._under_way) > self._calls.threads and self._weighing > self._batch_size

    def _submit(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._weighing += _weight(waiting)
        future = self._pool.submit(embed_parts, self._model, _parts(waiting), self._calls.pictures)
        self._under_way.append((waiting, future))

    def _receive(self) -> None:
        """Wait for the call that is longest under way; files that are complete go on to be committed."""
        taken, future = self._under_way.popleft()
        found = iter(future.result())
        self._weighing -= _weight(taken)
        self._result.images += count_frames(_parts(taken))
        rate = self._result.images / (time.perf_counter() - self._began)
        for candidate, part in taken:
            if isinstance(part, Problem):
                self._begun.pop(candidate.found.path, None)
                self._result.problems.append(part)
                self._progress.advance()
                continue
            self._begun.setdefault(part.file.path, []).extend(next(found))
            if part.last:
                self._complete(candidate, part)
                self._progress.advance(1, f"indexing, {rate:.1f} images/s")

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


def _parts(taken: Sequence[Taken]) -> list[Part]:
    return [part for _, part in taken if isinstance(part, Part)]


def _weight(taken: Sequence[Taken]) -> int:
    """Frames, and problems too: a folder full of them shall not be gathered to its end."""
    return sum(count_frames([part]) if isinstance(part, Part) else 1 for _, part in taken)

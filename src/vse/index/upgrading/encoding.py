"""Files of the old generation through the new model, by the same path as in indexing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from vse.index.collection import Collection
from vse.index.indexing.commits import Commits
from vse.index.indexing.moments import IndexModel
from vse.index.indexing.plan import Candidate
from vse.index.indexing.reading import Reading, read_files
from vse.index.media_file import MediaFile, full_path
from vse.index.scan import Problem, ScanLimits, why_absent
from vse.index.upgrading.missing import Missing, note_absent, why_missing
from vse.index.upgrading.work import candidate_for, to_encode
from vse.inputs.problem import encodable, os_reason
from vse.progress import ProgressReporter


@dataclass
class Encoded:
    """What came of all pages."""

    files: int = 0
    images: int = 0
    seconds: float = 0.0
    problems: list[Problem] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)  # in the order in which they came, each once

    def add(self, reading: Reading, problems: list[Problem]) -> None:
        """Count one page in; ``problems`` are those of its problems that stand."""
        self.files += reading.new + reading.changed
        self.images += reading.images
        self.seconds += reading.seconds
        self.problems.extend(problems)
        self.notes.update(dict.fromkeys(reading.notes))


class Encoder:
    """Encodes what the new generation lacks, a page of files at a time.

    ``missing`` says which folders are not there; files that vanish meanwhile are added to it if they may be left out.
    A folder that vanishes is never left out: nobody was asked about it.
    """

    def __init__(
        self,
        old: Collection,
        new: Collection,
        model: IndexModel,
        missing: Missing,
        *,
        batch_size: int,
        commits: Commits,
        limits: ScanLimits,
        drop_missing: bool,
    ) -> None:
        self._old, self._new, self._model, self._missing = old, new, model, missing
        self._batch_size, self._commits, self._limits, self._drop = batch_size, commits, limits, drop_missing

    def run(self, progress: ProgressReporter, total: int) -> Encoded:
        """All files of all folders that are there; ``total`` is their number when they were last looked for."""
        result, stage = Encoded(), _Stage(progress)
        progress.start(total, "upgrading")
        for root in self._old.info().roots:
            if root in self._missing.absent:
                continue
            for page in to_encode(self._old, self._new, root):
                reading = read_files(
                    root,
                    self._candidates(page),
                    self._model,
                    self._commits,
                    batch_size=self._batch_size,
                    limits=self._limits,
                    progress=stage,
                )
                result.add(reading, self._standing(page, reading.problems))
        progress.finish()
        return result

    def _candidates(self, page: list[MediaFile]) -> list[Candidate]:
        found = []
        for file in page:
            try:
                found.append(candidate_for(file))
            except OSError as error:
                self._vanished(file, why_missing(file) or os_reason(error))
        return found

    def _standing(self, page: list[MediaFile], problems: list[Problem]) -> list[Problem]:
        """The problems of files that are there; a disk that was pulled out must not look like damaged files."""
        by_path = {encodable(file.path): file for file in page}
        standing = []
        for problem in problems:
            file = by_path[problem.path]
            reason = why_missing(file)
            if reason is None:
                standing.append(Problem(full_path(file), problem.reason))  # there may be several folders
            else:
                self._vanished(file, reason)
        return standing

    def _vanished(self, file: MediaFile, reason: str) -> None:
        if why_absent(file.root, known=1) is not None:
            note_absent(self._missing, self._old, file.root)
            raise self._missing.refusal()
        self._missing.add(file, reason)
        if not self._drop:
            raise self._missing.refusal()


class _Stage:
    """One stage for all pages, in the place of one for each."""

    def __init__(self, progress: ProgressReporter) -> None:
        self._progress, self._began, self._files = progress, time.perf_counter(), 0

    def start(self, total: int, description: str) -> None:
        """The stage runs already."""

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        """Count on, with the rate over all pages."""
        self._files += steps
        rate = self._files / max(time.perf_counter() - self._began, 1e-9)
        self._progress.advance(steps, f"upgrading, {rate:.1f} files/s")

    def note(self, message: str) -> None:
        """Hand it on."""
        self._progress.note(message)

    def finish(self) -> None:
        """More pages may follow."""

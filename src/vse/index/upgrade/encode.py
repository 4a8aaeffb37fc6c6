"""Encode the files of the old generation with the new model, through the indexing pipeline."""

from __future__ import annotations

import itertools
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vse.errors import InputError
from vse.index.pipeline.commits import Commits, IndexModel
from vse.index.pipeline.plan import Candidate, ascending, is_same, side_by_side
from vse.index.pipeline.reading import Reading, read_files
from vse.index.scan import Found, Problem, ScanLimits, empty_folders, why_absent
from vse.index.types import Collection, MediaFile, full_path
from vse.inputs.files import SNIFFED_BYTES, MediaKind, encodable, kind_of_bytes, kind_of_name, os_reason
from vse.inputs.text import printable
from vse.progress import ProgressReporter


@dataclass
class Missing:
    """Absent folders with their number of files and the reason, and single files that are gone."""

    where: str
    absent: dict[str, tuple[int, str]] = field(default_factory=dict)
    gone: int = 0
    first_gone: tuple[str, str, str] = ("", "", "")
    """Root, path and reason."""

    @property
    def count(self) -> int:
        return self.gone + sum(count for count, _ in self.absent.values())

    def add(self, file: MediaFile, reason: str) -> None:
        """Count one file that is gone."""
        if not self.gone:
            self.first_gone = file.root, file.path, reason
        self.gone += 1

    def notes(self) -> list[str]:
        """Return one line per absent folder, and one for all single files that were left out."""
        lines = [
            f"{printable(root)}: {why}; its {count:,} files were left out" for root, (count, why) in self.absent.items()
        ]
        if self.gone:
            lines.append(f"{self.gone:,} files that are gone were left out, the first is {self._first_file()}")
        return lines

    def refusal(self) -> InputError:
        """Return an error with the count, the first missing file, and how to fix it."""
        if self.absent:
            root, (_, why) = next(iter(self.absent.items()))
            first, fix = f"those of {printable(root)} ({why})", self._fix_for_folder(root)
        else:
            first, fix = self._first_file(), self._fix_for_file()
        return InputError(
            f"{self.count:,} files of {self.where} are not there and would be lost, first {first}: {fix}, or leave "
            "them out with --drop-missing"
        )

    def _fix_for_folder(self, folder: str) -> str:
        """Suggest a fix; indexing again would not help, since it keeps the files of an absent folder."""
        if _is_closed(Path(folder)):
            return "allow reading it"
        return f"mount the disk, forget its files ({self._command('collection remove', self.where, folder)})"

    def _fix_for_file(self) -> str:
        root, path, _ = self.first_gone
        place = empty_folders(root, [path]).get(path)
        if place is not None:
            return self._fix_for_folder(f"{root}/{place}")
        if _is_closed(Path(root) / path):
            return "allow reading it"
        return f"remove deleted files from the index ({self._command('index', root, '--into', self.where)})"

    def _command(self, name: str, *arguments: str) -> str:
        return printable(f"vse {name} {shlex.join(arguments)}")

    def _first_file(self) -> str:
        root, path, reason = self.first_gone
        return f"{printable(f'{root}/{path}')} ({reason})"


def find_missing(collection: Collection, progress: ProgressReporter) -> Missing:
    """Check that every file of ``collection`` exists, without opening any."""
    info = collection.info()
    missing = Missing(info.where)
    progress.start(info.files, "looking for the files")
    for root in info.roots:
        if why_absent(root, known=1) is not None:
            progress.advance(note_absent(missing, collection, root))
            continue
        for file in collection.files(root):
            reason = why_missing(file)
            if reason is not None:
                missing.add(file, reason)
            progress.advance()
    progress.finish()
    return missing


def note_absent(missing: Missing, collection: Collection, root: str) -> int:
    """Record an absent folder, and return the number of its files."""
    count = sum(1 for _ in collection.files(root))
    missing.absent[root] = count, why_absent(root, known=count) or "was briefly absent"
    return count


def why_missing(file: MediaFile) -> str | None:
    """Return why a file cannot be read now, or None if it can."""
    path = Path(file.root) / file.path
    try:
        path.stat()
    except FileNotFoundError:
        return "no such file"
    except OSError as error:
        return os_reason(error)
    return None if os.access(path, os.R_OK) else "no permission to read it"


def _is_closed(path: Path) -> bool:
    """Return whether the path exists but is not readable by this user."""
    try:
        if path.is_dir():
            os.scandir(path).close()
    except PermissionError:
        return True
    except OSError:
        return False
    return path.exists() and not os.access(path, os.R_OK)


PAGE = 2048
"""Files held in memory at a time."""


def clear_outdated(old: Collection, new: Collection, progress: ProgressReporter) -> int:
    """Remove stale files from ``new``, the unfinished generation to resume, and return how many remain.

    A file is up to date if ``old`` still has it with the same captions and it is unchanged on disk since it was
    encoded.
    """
    info = new.info()
    if not info.files:
        return 0
    progress.start(info.files, "comparing what is encoded")
    right = 0
    outdated: list[tuple[str, str]] = []
    for root in sorted({*old.info().roots, *info.roots}):
        for known, done in _both(old, new, root):
            if done is None:
                continue
            progress.advance()
            if known is not None and known.captions == done.captions and _is_unchanged(done):
                right += 1
                continue
            outdated.append((root, done.path))
            if len(outdated) >= PAGE:
                new.remove(outdated)
                outdated = []
    if outdated:
        new.remove(outdated)
    progress.finish()
    return right


def to_encode(old: Collection, new: Collection, root: str) -> Iterator[list[MediaFile]]:
    """Yield the files of ``root`` that ``new`` lacks, in pages."""
    waiting = (known for known, done in _both(old, new, root) if known and not done)
    while page := list(itertools.islice(waiting, PAGE)):
        yield page


def candidate_for(known: MediaFile) -> Candidate:
    """Return the file as it is on disk now, with its known captions; raises what ``stat`` raises."""
    found = _found(known)
    return Candidate(found, known, known.captions)


def _both(old: Collection, new: Collection, root: str) -> Iterator[tuple[MediaFile | None, MediaFile | None]]:
    return side_by_side(ascending(old.files(root)), ascending(new.files(root)))


def _is_unchanged(file: MediaFile) -> bool:
    try:
        return is_same(_found(file), file)
    except OSError:
        return False


def _found(file: MediaFile) -> Found:
    path = Path(file.root) / file.path
    status = path.stat()
    found = Found(file.path, status.st_size, status.st_mtime_ns, file.kind)
    return found if is_same(found, file) else Found(found.path, found.size, found.modified_ns, _kind(path, file.kind))


def _kind(path: Path, known: MediaKind) -> MediaKind:
    """Return the kind of a changed file: without a telling name, an image may have become a video."""
    if kind_of_name(path.name) is not None or not path.is_file():
        return known
    with path.open("rb") as file:
        return kind_of_bytes(file.read(SNIFFED_BYTES)) or known


@dataclass
class Encoded:
    """Totals over all pages."""

    files: int = 0
    images: int = 0
    seconds: float = 0.0
    problems: list[Problem] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)  # an ordered set

    def add(self, reading: Reading, problems: list[Problem]) -> None:
        """Add one page; ``problems`` are those of its problems that remain."""
        self.files += reading.new + reading.changed
        self.images += reading.images
        self.seconds += reading.seconds
        self.problems.extend(problems)
        self.notes.update(dict.fromkeys(reading.notes))


class Encoder:
    """Encodes what the new generation lacks, page by page.

    ``missing`` holds the absent folders; files that vanish meanwhile are added to it if they may be dropped. A folder
    that vanishes is always an error, since dropping it was not confirmed.
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
        """Encode all files of the folders that are present; ``total`` is their number at the last check."""
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
        """Return the problems of files that still exist: an unplugged disk must not look like corrupt files."""
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
    """Reports all pages as one progress stage."""

    def __init__(self, progress: ProgressReporter) -> None:
        self._progress, self._began, self._files = progress, time.perf_counter(), 0

    def start(self, total: int, description: str) -> None:
        """Do nothing: the stage is running already."""

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        """Advance, with the rate over all pages."""
        self._files += steps
        rate = self._files / max(time.perf_counter() - self._began, 1e-9)
        self._progress.advance(steps, f"upgrading, {rate:.1f} files/s")

    def note(self, message: str) -> None:
        """Forward a note."""
        self._progress.note(message)

    def finish(self) -> None:
        """Do nothing: more pages may follow."""

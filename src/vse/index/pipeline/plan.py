"""Compare a folder with the collection: which files are new, changed, touched, moved or gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from vse._util.prefetch import prefetch
from vse.errors import VSEError
from vse.index.pipeline.commits import FolderCaptions
from vse.index.scan import BadMediaError, Found, Problem, Scan, digest, empty_folders
from vse.index.scan.describe import metadata_state
from vse.index.types import MediaFile, Place
from vse.inputs.files import os_reason
from vse.models.encode import READERS
from vse.progress import ProgressReporter

Left = TypeVar("Left", Found, MediaFile)
Right = TypeVar("Right", Found, MediaFile)
Settled = Callable[[Found], bool]
"""Whether a file is no longer being written."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that differs from what is known; ``known`` is the collection's file at its path, or None."""

    found: Found
    known: MediaFile | None
    captions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A file whose content is known: the collection's file, and where and how it was found now."""

    known: MediaFile
    root: str
    candidate: Candidate


BLOCK = 2048
"""Updates per commit: each rewrites the word index."""


@dataclass
class Plan:
    """Files to look at, known files that are gone, and counts of those that need nothing.

    ``updates`` are unchanged files with other captions or metadata, so no embedding of theirs changes. ``excluded`` are
    the paths of files among ``gone`` that the rules of the scan leave out.
    """

    candidates: list[Candidate] = field(default_factory=list)
    updates: list[Move] = field(default_factory=list)
    gone: list[MediaFile] = field(default_factory=list)
    excluded: set[str] = field(default_factory=set)
    unchanged: int = 0
    kept: int = 0
    waiting: int = 0


def make_plan(
    scan: Scan,
    known: Iterable[MediaFile],
    captions: FolderCaptions,
    settled: Settled | None = None,
    *,
    on_updates: Callable[[list[Move]], None] | None = None,
) -> Plan:
    """Compare a scan with the known files in one pass, holding only files that need attention in memory.

    Missing files that the scan may have overlooked count as kept.

    Args:
        scan: The folder.
        known: The collection's files, by path.
        captions: Those of the folder.
        settled: Returns whether a file is no longer being written.
        on_updates: Called with every :data:`BLOCK` updates, which are not in the plan then. None if the collection does
            not keep the version of the metadata, which is then not compared.
    """
    plan, missing, details = Plan(), [], on_updates is not None
    for found, file in side_by_side(scan, ascending(known)):
        if found is None:
            if file is not None:
                missing.append(file)
        elif settled is not None and not (file is not None and is_same(found, file)) and not settled(found):
            plan.waiting += 1
        else:
            _look(plan, Candidate(found, file, captions.wanted(found.path, file)), str(scan.root), details)
            if on_updates is not None and len(plan.updates) >= BLOCK:
                on_updates(plan.updates)
                plan.updates = []
    plan.gone = [file for file in missing if not scan.hides(file.path)]
    plan.kept = len(missing) - len(plan.gone)
    plan.excluded = {file.path for file in plan.gone if scan.excludes(file.path)}
    return plan


def split_gone(
    root: str, gone: Sequence[MediaFile], excluded: Set[str] = frozenset()
) -> tuple[list[MediaFile], dict[str, int]]:
    """Return deleted files, and empty folders that may be unmounted disks, each with the number of files to keep.

    Files that are ``excluded`` count as deleted wherever they were.
    """
    places = empty_folders(root, (file.path for file in gone if file.path not in excluded))
    return [file for file in gone if file.path not in places], dict(Counter(places.values()))


def side_by_side(left: Iterable[Left], right: Iterable[Right]) -> Iterator[tuple[Left | None, Right | None]]:
    """Yield pairs by path, None where one side lacks it; both inputs are ordered by path."""
    lefts, rights = iter(left), iter(right)
    one, other = next(lefts, None), next(rights, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one.path < other.path):
            yield one, None
            one = next(lefts, None)
        elif one is None or other.path < one.path:
            yield None, other
            other = next(rights, None)
        else:
            yield one, other
            one, other = next(lefts, None), next(rights, None)


def ascending(known: Iterable[MediaFile]) -> Iterator[MediaFile]:
    """Check that files are ordered by path: out of order, they would be mistaken for missing ones and removed."""
    last: str | None = None
    for file in known:
        if last is not None and file.path <= last:
            raise VSEError(f"the collection lists {file.path!r} after {last!r}, expected them by path: verify it")
        last = file.path
        yield file


def is_same(found: Found, known: MediaFile) -> bool:
    """Return whether size, modification time and kind are the known ones."""
    return (found.size, found.modified_ns, found.kind) == (known.size, known.modified, known.kind)


def _look(plan: Plan, candidate: Candidate, root: str, details: bool) -> None:
    known = candidate.known
    if known is None or not is_same(candidate.found, known):
        plan.candidates.append(candidate)
    elif candidate.captions == known.captions and (
        not details or known.metadata_version == metadata_state(candidate.found)
    ):
        plan.unchanged += 1
    else:
        plan.updates.append(Move(known, root, candidate))


AT_ONCE = 64
"""Touched files per commit."""
CHANGING = "changed since the folder was read: it will be retried next time"


@dataclass
class Contents:
    """Files to encode, files that only move, known files without a successor, and problems."""

    to_read: list[Candidate] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    gone: list[MediaFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def match_contents(
    root: str,
    candidates: Iterable[Candidate],
    gone: Iterable[MediaFile],
    on_touched: Callable[[list[Move]], None],
    progress: ProgressReporter,
) -> Contents:
    """Compare files by digest where sizes match; all others are read only once, when they are encoded.

    A known file whose content is no longer at its place can be taken over by one at another place, the first by path if
    several match; this covers chains of renames and swapped files.

    Args:
        root: The folder.
        candidates: Files that differ from what is known.
        gone: Known files that are missing.
        on_touched: Called with touched files as they are found.
        progress: Reports each stage.
    """
    result = Contents()
    rest: list[Candidate] = []
    displaced: list[MediaFile] = []
    digests: dict[str, str] = {}
    doubtful: list[Candidate] = []
    for candidate in candidates:
        known = candidate.known
        if known is not None and (known.size, known.kind) == (candidate.found.size, candidate.found.kind):
            doubtful.append(candidate)
        else:
            rest.append(candidate)
            displaced.extend([known] if known is not None else [])
    touched: list[Move] = []
    with closing(_digests(root, doubtful, progress, "comparing")) as compared:
        for candidate, found in compared:
            known = candidate.known
            if isinstance(found, Problem):
                result.problems.append(found)
            elif known is None or found != known.digest:
                digests[candidate.found.path] = found
                rest.append(candidate)
                displaced.extend([known] if known is not None else [])
            else:
                touched.append(Move(known, root, candidate))
            if len(touched) >= AT_ONCE:
                on_touched(touched)
                touched = []
    on_touched(touched)
    missing = list(gone)
    taken = _take_over(root, result, rest, (*missing, *displaced), digests, progress)
    result.gone = [file for file in missing if _place(file) not in taken]
    result.to_read.sort(key=lambda candidate: candidate.found.path)
    return result


def match_across(contents: Mapping[str, Contents], progress: ProgressReporter) -> None:
    """Match new files of one folder with missing ones of the others; updates ``contents``, keyed by folder, in place.

    Only missing files without a successor count: if another file is at the old place, both are read.
    """
    for root, own in contents.items():
        others = [theirs for folder, theirs in contents.items() if folder != root]
        new = [each for each in own.to_read if each.known is None]
        own.to_read = [each for each in own.to_read if each.known is not None]
        taken = _take_over(root, own, new, [file for theirs in others for file in theirs.gone], {}, progress)
        own.to_read.sort(key=lambda candidate: candidate.found.path)
        for theirs in others:
            theirs.gone = [file for file in theirs.gone if _place(file) not in taken]


def match_moved_roots(
    contents: Mapping[str, Contents], absent: Mapping[str, Sequence[MediaFile]], progress: ProgressReporter
) -> dict[str, int]:
    """Match new files with those of indexed folders that no longer exist; updates ``contents`` in place.

    A folder counts as moved if at least half of its files are found by content in one of ``contents``: a few copies
    of the files on an unplugged disk do not move them.

    Returns:
        The number of files found of each folder that was moved.
    """
    moved: dict[str, int] = {}
    for root, own in contents.items():
        digests: dict[str, str] = {}
        for old, files in absent.items():
            new = [each for each in own.to_read if each.known is None]
            if old in moved or not files or 2 * len(new) < len(files):
                continue
            result = Contents()
            taken = _take_over(root, result, new, files, digests, progress)
            if 2 * len(taken) >= len(files):
                own.moves += result.moves
                own.to_read = [each for each in own.to_read if each.known is not None] + result.to_read
                own.to_read.sort(key=lambda candidate: candidate.found.path)
                moved[old] = len(taken)
    return moved


def content_digest(root: str | Path, found: Found) -> str | Problem:
    """Return the digest of a file, or a problem if it changed since the walk."""
    path = Path(root) / found.path
    try:
        before = path.stat()
        value = digest(path)
        after = path.stat()
    except BadMediaError as error:
        return Problem(found.path, error.reason)
    except OSError as error:
        return Problem(found.path, os_reason(error))
    states = {(status.st_size, status.st_mtime_ns) for status in (before, after)}
    return value if states == {(found.size, found.modified_ns)} else Problem(found.path, CHANGING)


def _take_over(
    root: str,
    result: Contents,
    rest: list[Candidate],
    homeless: Iterable[MediaFile],
    digests: dict[str, str],
    progress: ProgressReporter,
) -> set[Place]:
    """Assign displaced contents to the files that now have them, and return their places; the rest is to be read."""
    free: dict[tuple[str, str], list[MediaFile]] = {}
    for file in homeless:
        free.setdefault((file.kind, file.digest), []).append(file)
    sizes = {(file.kind, file.size) for files in free.values() for file in files}
    likely = [each for each in rest if (each.found.kind, each.found.size) in sizes]
    unread = [each for each in likely if each.found.path not in digests]
    with closing(_digests(root, unread, progress, "looking for moved files")) as looked_at:
        for candidate, found in looked_at:
            if not isinstance(found, Problem):  # reported when it is read for encoding
                digests[candidate.found.path] = found
    taken: set[Place] = set()
    for candidate in sorted(rest, key=lambda each: each.found.path):
        there = free.get((candidate.found.kind, digests.get(candidate.found.path, "")), [])
        if not there:
            result.to_read.append(candidate)
            continue
        wanted = set(candidate.captions)
        old = next((file for file in there if wanted <= set(file.captions)), there[0])
        there.remove(old)
        taken.add(_place(old))
        result.moves.append(Move(old, root, candidate))
    return taken


def _digests(
    root: str, candidates: list[Candidate], progress: ProgressReporter, description: str
) -> Generator[tuple[Candidate, str | Problem], None, None]:
    if not candidates:
        return
    progress.start(len(candidates), description)
    results = prefetch(
        lambda candidate: content_digest(root, candidate.found), candidates, workers=READERS, window=4 * READERS
    )
    with closing(results):
        for candidate, found in results:
            yield candidate, found
            progress.advance()
    progress.finish()


def _place(file: MediaFile) -> Place:
    return file.root, file.path

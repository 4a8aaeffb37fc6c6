"""Which contents are known already: files that were touched, moved or have changed places keep their vectors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from vse.index.indexing.ahead import results_ahead
from vse.index.indexing.captions import have_vectors
from vse.index.indexing.plan import Candidate
from vse.index.media_file import MediaFile
from vse.index.scan import BadMediaError, Found, Problem, digest
from vse.index.scan.problem import os_reason
from vse.progress import ProgressReporter

Move = tuple[tuple[str, str], MediaFile]
"""The old (root, path), and the file as it is now."""
AT_ONCE = 64
"""Touched files in a commit."""
CHANGING = "changed since the folder was read: it will be read again next time"


@dataclass
class Contents:
    """What is to be read and encoded, what only moves, which known files nobody has taken over, what went wrong."""

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
    """Compare by digest where the size allows it, and only there: other files are read once, by whoever encodes them.

    Touched files are handed to ``on_touched`` as they are found. A known file whose content is no longer at its place
    may be taken over by one at another place, the first by path if several have that content; so chains of renamed
    files and files that have changed places move too. A file that brings new captions is read again in any case.
    """
    result = Contents()
    rest: list[Candidate] = []
    displaced: list[MediaFile] = []
    digests: dict[str, str] = {}
    doubtful: list[Candidate] = []
    for candidate in candidates:
        known = candidate.known
        if candidate.same_state:
            result.to_read.append(candidate)
        elif known is not None and (known.size, known.kind) == (candidate.found.size, candidate.found.kind):
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
            elif have_vectors(candidate.captions, known):
                touched.append(as_found(known, candidate))
            else:
                result.to_read.append(candidate)
            if len(touched) >= AT_ONCE:
                on_touched(touched)
                touched = []
    on_touched(touched)
    _take_over(root, result, rest, displaced, list(gone), digests, progress)
    result.to_read.sort(key=lambda candidate: candidate.found.path)
    return result


def as_found(known: MediaFile, candidate: Candidate) -> Move:
    """A known content at the place and time, and with the captions, that it has now."""
    found = candidate.found
    file = replace(known, path=found.path, size=found.size, modified=found.modified_ns, captions=candidate.captions)
    return (known.root, known.path), file


def content_digest(root: str | Path, found: Found) -> str | Problem:
    """The digest of a file that is still as the walk saw it."""
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
    displaced: list[MediaFile],
    gone: list[MediaFile],
    digests: dict[str, str],
    progress: ProgressReporter,
) -> None:
    """Give the contents that lost their place to the files that have them; the others are to be read."""
    free: dict[tuple[str, str], list[MediaFile]] = {}
    for file in (*gone, *displaced):
        free.setdefault((file.kind, file.digest), []).append(file)
    sizes = {(file.kind, file.size) for files in free.values() for file in files}
    likely = [each for each in rest if (each.found.kind, each.found.size) in sizes]
    unread = [each for each in likely if each.found.path not in digests]
    with closing(_digests(root, unread, progress, "looking for moved files")) as looked_at:
        for candidate, found in looked_at:
            if not isinstance(found, Problem):  # whoever reads it will say what is wrong
                digests[candidate.found.path] = found
    taken: set[str] = set()
    for candidate in sorted(rest, key=lambda each: each.found.path):
        there = free.get((candidate.found.kind, digests.get(candidate.found.path, "")), [])
        old = next((file for file in there if have_vectors(candidate.captions, file)), None)
        if old is None:
            result.to_read.append(candidate)
        else:
            there.remove(old)
            taken.add(old.path)
            result.moves.append(as_found(old, candidate))
    result.gone = [file for file in gone if file.path not in taken]


def _digests(
    root: str, candidates: list[Candidate], progress: ProgressReporter, description: str
) -> Generator[tuple[Candidate, str | Problem], None, None]:
    if not candidates:
        return
    progress.start(len(candidates), description)
    with closing(results_ahead(candidates, lambda candidate: content_digest(root, candidate.found))) as results:
        for candidate, found in results:
            yield candidate, found
            progress.advance()
    progress.finish()

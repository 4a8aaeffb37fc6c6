"""A folder beside what a collection knows of it: which files have to be looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from vse.errors import VSEError
from vse.index.indexing.captions import FolderCaptions, have_vectors
from vse.index.media_file import MediaFile
from vse.index.scan import Found, Scan, empty_folders

Left = TypeVar("Left", Found, MediaFile)
Right = TypeVar("Right", Found, MediaFile)
Settled = Callable[[Found], bool]
"""Whether a file is no longer being written."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that is not as it is known, ``known`` is what the collection has at its path, None for nothing."""

    found: Found
    known: MediaFile | None
    captions: tuple[str, ...]

    @property
    def same_state(self) -> bool:
        """Whether size and time are the known ones, so that the content is; then only its captions are new."""
        return self.known is not None and is_same(self.found, self.known)


@dataclass
class Plan:
    """Files to look at, known ones that are gone, and counts of those with which nothing is to be done.

    ``recaptioned`` have lost captions or have them in another order: no vector changes.
    """

    candidates: list[Candidate] = field(default_factory=list)
    recaptioned: list[Candidate] = field(default_factory=list)
    gone: list[MediaFile] = field(default_factory=list)
    skipped: int = 0
    kept: int = 0
    waiting: int = 0


def make_plan(scan: Scan, known: Iterable[MediaFile], captions: FolderCaptions, settled: Settled | None = None) -> Plan:
    """Go through both at once; only files that need attention are held in memory.

    Files that are gone although the scan may have overlooked them are counted as kept.
    """
    plan, missing = Plan(), []
    for found, file in side_by_side(scan, ascending(known)):
        if found is None:
            if file is not None:
                missing.append(file)
        elif settled is not None and not (file is not None and is_same(found, file)) and not settled(found):
            plan.waiting += 1
        else:
            _look(plan, Candidate(found, file, captions.wanted(found.path, file)))
    plan.gone = [file for file in missing if not scan.hides(file.path)]
    plan.kept = len(missing) - len(plan.gone)
    return plan


def split_gone(root: str, gone: Sequence[MediaFile]) -> tuple[list[MediaFile], dict[str, int]]:
    """Files that were deleted; and empty folders where a disk may be away, each with the number of files to be kept."""
    places = empty_folders(root, (file.path for file in gone))
    return [file for file in gone if file.path not in places], dict(Counter(places.values()))


def side_by_side(left: Iterable[Left], right: Iterable[Right]) -> Iterator[tuple[Left | None, Right | None]]:
    """Pairs by path, None for what one side lacks; both come in the order of paths."""
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
    """The files as they come; out of order they would be taken for gone, and removed."""
    last: str | None = None
    for file in known:
        if last is not None and file.path <= last:
            raise VSEError(f"the collection lists {file.path!r} after {last!r}, expected them by path: verify it")
        last = file.path
        yield file


def is_same(found: Found, known: MediaFile) -> bool:
    """Whether size and time of change are those that are known."""
    return (found.size, found.modified_ns, found.kind) == (known.size, known.modified, known.kind)


def _look(plan: Plan, candidate: Candidate) -> None:
    known = candidate.known
    if known is None or not candidate.same_state:
        plan.candidates.append(candidate)
    elif candidate.captions == known.captions:
        plan.skipped += 1
    elif have_vectors(candidate.captions, known):
        plan.recaptioned.append(candidate)
    else:
        plan.candidates.append(candidate)

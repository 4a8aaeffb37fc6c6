"""The old generation beside the new one: what is done already, and what is to be encoded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from vse.index.collection import Collection
from vse.index.indexing.plan import Candidate, ascending, is_same, side_by_side
from vse.index.media_file import MediaFile
from vse.index.scan import Found
from vse.inputs.formats import SNIFFED_BYTES, MediaKind, kind_of_bytes, kind_of_name
from vse.progress import ProgressReporter

PAGE = 2048
"""Files that are held in memory at a time."""


def clear_outdated(old: Collection, new: Collection, progress: ProgressReporter) -> int:
    """Remove from ``new``, which an earlier attempt has begun, what is no longer right, and count what is.

    Right is a file that ``old`` still knows with these captions, and that is on disk as it was when it was encoded.
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
    """The files of ``root`` that ``new`` does not have yet, in pages."""
    waiting = (known for known, done in _both(old, new, root) if known and not done)
    while page := list(itertools.islice(waiting, PAGE)):
        yield page


def candidate_for(known: MediaFile) -> Candidate:
    """The file as it is on disk now, with the captions that the collection has; raises what ``stat`` raises."""
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
    """What a file that has changed is now: where its name does not tell, a picture may have become a clip."""
    if kind_of_name(path.name) is not None or not path.is_file():
        return known
    with path.open("rb") as file:
        return kind_of_bytes(file.read(SNIFFED_BYTES)) or known

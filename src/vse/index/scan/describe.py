"""From a found file to what a collection knows about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from vse.index.media_file import MediaFile
from vse.index.scan.clip_facts import clip_facts
from vse.index.scan.digest import digest, digest_of
from vse.index.scan.facts import Facts
from vse.index.scan.found import Found
from vse.index.scan.limits import ScanLimits
from vse.index.scan.picture import picture_facts
from vse.inputs.images import BadImageError, file_content
from vse.inputs.problem import BadMediaError, Problem, os_reason

Content = TypeVar("Content")
CHANGED = "changed while it was read: it will be read again next time"


def describe(
    found: Found, root: str | Path, *, captions: tuple[str, ...] = (), limits: ScanLimits | None = None
) -> MediaFile | Problem:
    """The file with its digest and the facts that it holds about itself, or why it cannot be used.

    Pixels of pictures are not decoded, so that damage behind the header is found only when they are. Size and time of
    change are those of the content that was read; a file that changes meanwhile is a problem, until the next time.
    """
    limits = limits or ScanLimits()
    try:
        if found.kind == "image":
            return read_picture(found, root, captions, limits)[0]
        return _clip(found, root, captions, limits)
    except (BadMediaError, BadImageError) as error:
        return Problem(found.path, error.reason)
    except OSError as error:
        return Problem(found.path, os_reason(error))
    except ValueError:
        return Problem(found.path, "no such file: its name holds a null character")


def read_picture(
    found: Found, root: str | Path, captions: tuple[str, ...], limits: ScanLimits
) -> tuple[MediaFile, bytes]:
    """A picture with the content from which it was described; what :func:`describe` gives as a problem is raised."""
    path = Path(root) / found.path
    content, state = _unchanged(path, lambda: file_content(path, found.path, limits.image))
    facts = picture_facts(content, found.path, limits.image)
    return _file(found, root, captions, state, digest_of(content), facts), content


def _clip(found: Found, root: str | Path, captions: tuple[str, ...], limits: ScanLimits) -> MediaFile:
    path = Path(root) / found.path
    (facts, content_digest), state = _unchanged(path, lambda: (clip_facts(path, limits.video), digest(path)))
    return _file(found, root, captions, state, content_digest, facts)


def _unchanged(path: Path, read: Callable[[], Content]) -> tuple[Content, tuple[int, int]]:
    """What was read, and the size and time of change that the file had before and after."""
    before = path.stat()
    content = read()
    after = path.stat()
    if (before.st_size, before.st_mtime_ns, before.st_ino) != (after.st_size, after.st_mtime_ns, after.st_ino):
        raise BadMediaError(str(path), CHANGED)
    return content, (after.st_size, after.st_mtime_ns)


def _file(
    found: Found,
    root: str | Path,
    captions: tuple[str, ...],
    state: tuple[int, int],
    content_digest: str,
    facts: Facts,
) -> MediaFile:
    size, modified = state
    return MediaFile(
        root=str(root),
        path=found.path,
        kind=found.kind,
        size=size,
        modified=modified,
        digest=content_digest,
        captions=captions,
        **asdict(facts),
    )

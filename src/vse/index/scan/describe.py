"""From a found file to what a collection knows about it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from vse.index.scan.metadata import Facts, clip_facts, picture_facts
from vse.index.scan.walk import Found, ScanLimits
from vse.index.types import MediaFile
from vse.inputs.files import BadMediaError, Problem, os_reason, regular_size
from vse.inputs.images import BadImageError, file_content

DIGITS = 32
_BLOCK = 1 << 20


def digest(path: str | Path) -> str:
    """The first 32 hexadecimal digits of SHA-256 of the whole content, read in blocks.

    All of it, also of large videos: a digest of parts would miss an edit between them. Processors have instructions for
    this hash, which is faster than most disks.
    """
    regular_size(path)
    found = hashlib.sha256()
    try:
        with Path(path).open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                found.update(block)
    except FileNotFoundError:
        raise BadMediaError(str(path), "no such file") from None
    except PermissionError:
        raise BadMediaError(str(path), "no permission to read it") from None
    except OSError as error:
        raise BadMediaError(str(path), os_reason(error)) from error
    return found.hexdigest()[:DIGITS]


def digest_of(content: bytes) -> str:
    """The same for content that was read already."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


Content = TypeVar("Content")
CHANGED = "changed while it was read: it will be read again next time"


def describe(
    found: Found, root: str | Path, *, captions: tuple[str, ...] = (), limits: ScanLimits | None = None
) -> MediaFile | Problem:
    """The file with its digest and the facts that it holds about itself, or why it cannot be used.

    Pixels of images are not decoded, so that damage behind the header is found only when they are. Size and time of
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
    """An image with the content from which it was described; what :func:`describe` gives as a problem is raised."""
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

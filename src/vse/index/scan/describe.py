"""Describe a file: digest and metadata, without decoding the image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from vse.index.scan.metadata import Facts, clip_facts, picture_facts
from vse.index.scan.walk import Found, ScanLimits
from vse.index.types import MediaFile
from vse.inputs.files import BadMediaError, Problem, open_regular, os_reason, regular_size
from vse.inputs.images import BadImageError, file_content

DIGITS = 32
_BLOCK = 1 << 20


def digest(path: str | Path) -> str:
    """Return the first 32 hex digits of the SHA-256 of the whole file, read in blocks.

    Large videos are hashed completely too: a digest of samples would miss edits between them. SHA-256 is accelerated by
    CPU instructions and faster than most disks.

    Raises:
        BadMediaError: The file cannot be read.
    """
    regular_size(path)
    found = hashlib.sha256()
    try:
        with open_regular(path) as file:
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
    """Return the :func:`digest` of content already read."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


Content = TypeVar("Content")
CHANGED = "changed while it was read: it will be retried next time"


def describe(
    found: Found, root: str | Path, *, captions: tuple[str, ...] = (), limits: ScanLimits | None = None
) -> MediaFile | Problem:
    """Return the file with its digest and metadata, or the problem that makes it unusable.

    Images are not decoded, so corruption after the header surfaces later. Size and modification time belong to the
    content that was read; a file that changes meanwhile is a problem, and is retried next time.

    Args:
        found: A file found by :func:`~vse.index.scan.walk.walk`.
        root: The folder that was walked.
        captions: Captions of the file.
        limits: Maximum sizes.
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
    """Return an image with its content; raise what :func:`describe` returns as a problem."""
    path = Path(root) / found.path
    content, state = _unchanged(path, lambda: file_content(path, found.path, limits.image))
    facts = picture_facts(content, found.path, limits.image)
    return _file(found, root, captions, state, digest_of(content), facts), content


def _clip(found: Found, root: str | Path, captions: tuple[str, ...], limits: ScanLimits) -> MediaFile:
    path = Path(root) / found.path
    (facts, content_digest), state = _unchanged(path, lambda: (clip_facts(path, limits.video), digest(path)))
    return _file(found, root, captions, state, content_digest, facts)


def _unchanged(path: Path, read: Callable[[], Content]) -> tuple[Content, tuple[int, int]]:
    """Return what was read with the file's size and time; raise if it changed during the read."""
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

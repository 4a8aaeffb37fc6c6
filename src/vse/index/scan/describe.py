"""From a found file to what a collection knows about it."""

from __future__ import annotations

import os
from pathlib import Path

from vse.index.media_file import MediaFile
from vse.index.scan.clip_facts import clip_facts
from vse.index.scan.digest import digest, digest_of
from vse.index.scan.facts import Facts
from vse.index.scan.found import Found
from vse.index.scan.limits import ScanLimits
from vse.index.scan.picture import picture_facts
from vse.index.scan.problem import BadMediaError, Problem, os_reason
from vse.inputs.images import BadImageError, _file_content


def describe(
    found: Found, root: str | Path, *, captions: tuple[str, ...] = (), limits: ScanLimits | None = None
) -> MediaFile | Problem:
    """The file with its digest and the facts that it holds about itself, or why it cannot be used.

    Pixels of pictures are not decoded, so that damage behind the header is found only when they are. Size and time of
    change are those of the content that was read; a file that changes meanwhile is a problem, until the next time.
    """
    path, limits = Path(root) / found.path, limits or ScanLimits()
    try:
        before = path.stat()
        facts, content_digest = _read(path, found, limits)
        after = path.stat()
    except (BadMediaError, BadImageError) as error:
        return Problem(found.path, error.reason)
    except OSError as error:
        return Problem(found.path, "no such file" if isinstance(error, FileNotFoundError) else os_reason(error))
    except ValueError:
        return Problem(found.path, "no such file: its name holds a null character")
    if _state(before) != _state(after):
        return Problem(found.path, "changed while it was read: it will be read again next time")
    return MediaFile(
        root=str(root),
        path=found.path,
        kind=found.kind,
        size=after.st_size,
        modified=after.st_mtime_ns,
        digest=content_digest,
        width=facts.width,
        height=facts.height,
        taken=facts.taken,
        latitude=facts.latitude,
        longitude=facts.longitude,
        duration=facts.duration,
        captions=captions,
    )


def _read(path: Path, found: Found, limits: ScanLimits) -> tuple[Facts, str]:
    if found.kind == "video":
        return clip_facts(path, limits.video), digest(path)
    content = _file_content(path, found.path, limits.image)
    return picture_facts(content, found.path, limits.image), digest_of(content)


def _state(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino

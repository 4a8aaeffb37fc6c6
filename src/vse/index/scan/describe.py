"""Describe a file: digest and metadata, without decoding the image."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from vse._util.worker_process import NeedsMemoryError, Reply, shallow
from vse._util.workers import WorkerStoppedError, WorkerTimeoutError
from vse.index.scan.metadata import METADATA_VERSION, Facts, clip_facts, clip_tags, picture_facts
from vse.index.scan.places import place_name
from vse.index.scan.sidecars import with_sidecars
from vse.index.scan.tags import Tags
from vse.index.scan.walk import Found, ScanLimits
from vse.index.types import MediaFile
from vse.inputs.decoding import decoders
from vse.inputs.files import BadMediaError, Problem, open_regular, os_reason, regular_size
from vse.inputs.images import BadImageError, ImageLimits, file_content
from vse.inputs.video.file import VideoLimits

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
    found: Found,
    root: str | Path,
    *,
    captions: tuple[str, ...] = (),
    limits: ScanLimits | None = None,
    named: bool = True,
) -> MediaFile | Problem:
    """Return the file with its digest and metadata, or the problem that makes it unusable.

    Images are not decoded, so corruption after the header surfaces later. Size and modification time belong to the
    content that was read; a file that changes meanwhile is a problem, and is retried next time.

    Args:
        found: A file found by :func:`~vse.index.scan.walk.walk`.
        root: The folder that was walked.
        captions: Captions of the file.
        limits: Maximum sizes.
        named: Name the place of its coordinates.
    """
    limits = limits or ScanLimits()
    try:
        if found.kind == "image":
            file = read_picture(found, root, captions, limits)[0]
        else:
            file = _clip(found, root, captions, limits)
        return with_place(file) if named else file
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
        width=facts.width,
        height=facts.height,
        duration=facts.duration,
        **_details(found, root, facts),
    )


def metadata_state(found: Found) -> int:
    """Return the ``MediaFile.metadata_version`` that the file would get now."""
    return METADATA_VERSION | found.sidecar_state << 8


def described_again(known: MediaFile, found: Found, root: str | Path, limits: ScanLimits) -> MediaFile:
    """Return a known file with its current metadata; only the parts of the file that hold it are read.

    That happens in a worker process.

    Raises:
        BadMediaError: The file cannot be read, or not in time.
    """
    arguments = {
        "found": shallow(found),
        "root": str(root),
        "image": shallow(limits.image),
        "video": shallow(limits.video),
    }
    seconds = limits.image.max_seconds if found.kind == "image" else limits.video.max_time
    try:
        values = decoders().call(f"{__name__}:details_task", arguments, seconds=seconds).values
    except (WorkerTimeoutError, WorkerStoppedError, NeedsMemoryError) as error:
        raise BadMediaError(found.path, str(error)) from None
    if "error" in values:
        raise BadMediaError(found.path, str(values["error"]))
    return with_place(replace(known, **{**values, "keywords": tuple(values["keywords"])}))


def details_task(arguments: Mapping[str, Any], _: bytes) -> Iterator[Reply]:
    """Read the metadata of a file in a worker process."""
    limits = ScanLimits(image=ImageLimits(**arguments["image"]), video=VideoLimits(**arguments["video"]))
    found, root = found_of(arguments["found"]), arguments["root"]
    try:
        yield Reply(_details(found, root, _tags(Path(root) / found.path, found, limits)))
    except (BadMediaError, BadImageError) as error:
        yield Reply({"error": error.reason})
    except OSError as error:
        yield Reply({"error": os_reason(error)})
    except MemoryError:
        yield Reply({"error": "not enough memory"})


def found_of(values: Mapping[str, Any]) -> Found:
    """Return a found file that was sent to a worker process as JSON."""
    return Found(**{**values, "sidecars": tuple(values["sidecars"])})


def _tags(path: Path, found: Found, limits: ScanLimits) -> Tags:
    if found.kind == "video":
        return clip_tags(path, limits.video)
    with open_regular(path) as file:
        start = file.read(len(_PNG))
        file.seek(0)
        partly = start.startswith((_JPEG, _PNG))  # the readers of other formats want all of it
        stream = file if partly else io.BytesIO(file_content(path, found.path, limits.image))
        return picture_facts(stream, found.path, limits.image)


_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"


def _details(found: Found, root: str | Path, tags: Tags) -> dict[str, Any]:
    """Return the fields of a file that come from metadata and sidecars."""
    own = Tags(**{field.name: getattr(tags, field.name) for field in fields(Tags)})
    whole = with_sidecars(own, Path(root) / found.path, found.sidecars)
    return {**shallow(whole), "metadata_version": metadata_state(found)}


def with_place(file: MediaFile) -> MediaFile:
    """Return a file with the name of its coordinates, unless its metadata names a place.

    Worker processes, whose memory is limited, leave this to their parent.
    """
    if file.place is not None or file.latitude is None or file.longitude is None:
        return file
    return replace(file, place=place_name(file.latitude, file.longitude))

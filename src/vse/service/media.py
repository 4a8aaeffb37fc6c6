"""Indexed files: opened without following links, streamed with byte ranges, and shown as thumbnails.

Starlette's FileResponse handles ranges too, but opens a file by its path: a link put there after indexing would be
followed. Files are opened by descriptor here, and streamed from it.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from vse.index.confirmed import confirmed_roots
from vse.index.scan.describe import DIGITS
from vse.index.types import Item, MediaFile, full_path
from vse.inputs.decoding import image_thumbnail, video_thumbnail
from vse.inputs.files import BadMediaError, read_at_most
from vse.inputs.images import BadImageError, ImageLimits
from vse.inputs.video.file import VideoLimits
from vse.service.problems import ProblemError
from vse.service.state import LRU

CONFIRMED_SECONDS = 2.0
NOT_CONFIRMED = (
    "the folder of this file was not indexed on the service's machine: 'vse serve INDEX --root DIR' confirms a folder"
)
NOT_FOUND = "file not found: it was moved or deleted after indexing"
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
BLOCK = 1 << 18
BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY") and hasattr(os, "O_NOFOLLOW")
"""Whether files can be opened relative to an open folder, so that no link is ever followed."""

NAME_SURROGATE = 0x20000000
"""Bit of a reparse tag of Windows that stands for a link or a junction; files in a cloud have tags without it."""

ThumbnailSize = Literal[160, 320, 640]
PREVIEW = 1600
QUALITY = {160: 72, 320: 78, 640: 82, PREVIEW: 88}
THUMBNAIL_CACHE_BYTES = 32_000_000
"""Some thousand thumbnails. Browsers cache what they have shown themselves."""


@dataclass(frozen=True)
class OpenFile:
    """An open file with its size and modification time. The receiver closes ``stream``.

    Holds a file object rather than a bare descriptor, so that it is closed even if nobody receives it.
    """

    stream: io.FileIO
    size: int
    modified: int

    def is_as_indexed(self, file: MediaFile) -> bool:
        """Return whether size and modification time are those of the indexed file."""
        return (self.size, self.modified) == (file.size, file.modified)

    def read(self, max_bytes: int) -> bytes:
        """Return the content.

        Raises:
            ProblemError: 422 if there are more than ``max_bytes``.
        """
        if self.size > max_bytes:
            raise ProblemError(422, f"file of {self.size:,} bytes: at most {max_bytes:,} are read")
        with os.fdopen(os.dup(self.stream.fileno()), "rb") as whole:
            whole.seek(0)
            return read_at_most(whole, max_bytes)

    def path(self, file: MediaFile) -> Path:
        """Return a path to exactly this file: a link put in its place later is not followed.

        On systems without ``/proc`` it is the path of ``file``. Worker processes can open it, too.
        """
        by_descriptor = Path(f"/proc/{os.getpid()}/fd/{self.stream.fileno()}")
        return by_descriptor if by_descriptor.exists() else Path(full_path(file))

    def source(self, file: MediaFile, max_bytes: int) -> Path | bytes:
        """Return the path as :meth:`path` does, or the content on systems where it would follow links."""
        path = self.path(file)
        return path if path.parts[1:2] == ("proc",) else self.read(max_bytes)


class ServedRoots:
    """The folders whose files are shown: those confirmed on this machine, see :mod:`vse.index.confirmed`.

    A collection may come from somebody else, and a row of it may name any file. Folders that are confirmed while the
    service runs are shown from then on.

    Args:
        where: The collection.
        given: Folders that the user named when starting the service.
    """

    def __init__(self, where: str, given: Sequence[str] = ()) -> None:
        self._where = where
        self._given = frozenset(given)
        self._known = confirmed_roots(where)
        self._checked = monotonic()

    def __contains__(self, root: str) -> bool:
        if root in self._given or root in self._known:
            return True
        if monotonic() - self._checked > CONFIRMED_SECONDS:
            self._known, self._checked = confirmed_roots(self._where), monotonic()
        return root in self._known


_served: list[ServedRoots] = []  # of the applications of this process
_asked: ContextVar[ServedRoots | None] = ContextVar("roots of the collection that a request is for", default=None)


@contextmanager
def serving(roots: ServedRoots) -> Iterator[None]:
    """Show files of ``roots`` within the context."""
    _served.append(roots)
    try:
        yield
    finally:
        _served.remove(roots)


def serve_only(roots: ServedRoots) -> None:
    """Show files of ``roots`` alone in this request: a collection must not show files of another one's folders."""
    _asked.set(roots)


def is_served(file: MediaFile) -> bool:
    """Return whether the file is in a folder that may be shown."""
    asked = _asked.get()
    return file.root in asked if asked is not None else any(file.root in roots for roots in _served)


def open_media(file: MediaFile) -> OpenFile:
    """Open an indexed file, walking down from its root folder and following no link below it.

    The file may have been replaced after indexing: by a link to a secret, or by a pipe that blocks forever.

    Raises:
        ProblemError: 403 for a folder that was not indexed on this machine; 404 for those, for missing files and for
            paths with ``..``; 503 if too many files are open.
    """
    if not is_served(file):
        raise ProblemError(403, NOT_CONFIRMED)
    parts = file.path.split("/")
    if not _stays_below(parts):
        raise ProblemError(404, NOT_FOUND)
    folders: list[int] = []
    try:
        if not BY_DESCRIPTOR:
            return _open_by_path(Path(file.root), parts)
        folders.append(os.open(file.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for folder in parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            folders.append(os.open(folder, flags, dir_fd=folders[-1]))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(parts[-1], flags, dir_fd=folders[-1])
    except OSError as error:
        if error.errno in OUT_OF_RESOURCES:
            raise ProblemError(503, "too many files are open: try again soon", {"Retry-After": "1"}) from None
        raise ProblemError(404, NOT_FOUND) from None
    finally:
        for folder_descriptor in folders:
            os.close(folder_descriptor)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ProblemError(404, NOT_FOUND)
    return OpenFile(io.FileIO(descriptor, "rb"), status.st_size, status.st_mtime_ns)


def _stays_below(parts: Sequence[str]) -> bool:
    """Return whether the parts of a path lead nowhere but down.

    On Windows, a part may hold a drive, a stream or further parts: ``C:\\x`` would replace the whole path.
    """
    unsafe = "\0" if BY_DESCRIPTOR else "\0\\:"
    return not any(part in ("", ".", "..") or any(letter in unsafe for letter in part) for part in parts)


def _open_by_path(root: Path, parts: list[str]) -> OpenFile:
    """Open a file on systems that cannot open relative to a folder (Windows); raise OSError for links on the way.

    A link could take the place of a folder between the check and the opening: identities are compared afterwards.
    """
    place = root.joinpath(*parts)
    status = os.lstat(place)
    for each in (place, *list(place.parents)[: len(parts) - 1]):
        found = os.lstat(each)
        if stat.S_ISLNK(found.st_mode) or getattr(found, "st_reparse_tag", 0) & NAME_SURROGATE:
            raise OSError(errno.ELOOP, "a link")
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_NONBLOCK", 0)
    opened = io.FileIO(os.open(place, flags), "rb")
    found = os.fstat(opened.fileno())
    if not stat.S_ISREG(found.st_mode) or (found.st_dev, found.st_ino) != (status.st_dev, status.st_ino):
        opened.close()
        raise OSError(errno.ENOENT, "replaced")
    return OpenFile(opened, found.st_size, found.st_mtime_ns)


def is_available(file: MediaFile) -> bool:
    """Return whether the file can be opened now."""
    with suppress(ProblemError):
        open_media(file).stream.close()
        return True
    return False


def is_missing(file: MediaFile) -> bool:
    """Return whether the file is gone, for pages of many files: one call of the system, and nothing is opened.

    Whether a file of a folder that may not be shown exists is not told.
    """
    if not is_served(file) or not _stays_below(file.path.split("/")):
        return True
    try:
        return not stat.S_ISREG(os.lstat(full_path(file)).st_mode)
    except (OSError, ValueError):
        return True


@dataclass(frozen=True)
class MediaRequest:
    """The headers Range, If-Range and If-None-Match of a request, and whether it is a HEAD request."""

    range: str | None
    if_range: str | None
    if_none_match: str | None
    head: bool = False


def stream(opened: OpenFile, request: MediaRequest, headers: dict[str, str], media_type: str) -> Response:
    """Return a response with the file or the requested range, and close the file after it, or if the client leaves.

    A range of a file that has changed (If-Range) is of no use, so the whole file is sent.

    Raises:
        ProblemError: 416 if the range lies outside the file.
    """
    tag = f'"{opened.modified:x}-{opened.size:x}"'
    if matches(request.if_none_match, tag):
        opened.stream.close()
        return Response(status_code=304, headers={**headers, "ETag": tag})
    try:
        part = _parse_range(request.range if request.if_range in (None, tag) else None, opened.size)
    except ProblemError:
        opened.stream.close()
        raise
    start, end = part or (0, opened.size)
    headers = {**headers, "ETag": tag, "Accept-Ranges": "bytes", "Content-Length": str(end - start)}
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{opened.size}"
    status = 200 if part is None else 206
    if request.head:
        opened.stream.close()
        return Response(b"", status, headers, media_type=media_type)
    return _FileResponse(opened.stream, (start, end), status, headers, media_type)


def matches(if_none_match: str | None, tag: str) -> bool:
    """Return whether an If-None-Match header contains ``tag``."""
    if if_none_match is None:
        return False
    tags = (each.strip().removeprefix("W/") for each in if_none_match.split(","))
    return if_none_match.strip() == "*" or tag in tags


_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")  # Python refuses to read numbers of thousands of digits


def _parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Start and end (exclusive) of a Range header, None for the whole file.

    Several ranges at once, which no player sends, mean the whole file, as RFC 9110 allows.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if start >= end:
        raise ProblemError(
            416, f"range outside of the file, which has {size:,} bytes", {"Content-Range": f"bytes */{size}"}
        )
    return start, end


class _FileResponse(StreamingResponse):
    """Reads the file as fast as the client does."""

    def __init__(
        self, file: io.FileIO, span: tuple[int, int], status: int, headers: dict[str, str], media_type: str
    ) -> None:
        super().__init__(_blocks(file, *span), status, headers, media_type=media_type)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


def _blocks(file: io.FileIO, start: int, end: int) -> Iterator[bytes]:
    file.seek(start)
    while start < end:
        block = file.read(min(BLOCK, end - start))
        if not block:
            return  # the file was truncated: the client sees that bytes are missing
        start += len(block)
        yield block


def thumbnail_cache() -> LRU[str, bytes]:
    """Return a cache for thumbnails and previews by entity tag."""
    return LRU(THUMBNAIL_CACHE_BYTES, len)


def make_thumbnail(item: Item, opened: OpenFile, side: int, seconds: float) -> tuple[bytes, bool]:
    """Return a JPEG of an item, and whether the file still has the content that was indexed.

    Args:
        item: An image, or a segment of a video, which is shown by its middle frame.
        opened: Its file.
        side: The longer side in pixels, a key of :data:`QUALITY`.
        seconds: The timeout for decoding a video.

    Raises:
        ProblemError: 404 if the file cannot be decoded.
    """
    quality = QUALITY[side]
    try:
        if item.file.kind == "video":
            middle = 0.0 if item.start is None or item.end is None else (item.start + item.end) / 2
            limits = VideoLimits(max_time=seconds)
            made = video_thumbnail(opened.path(item.file), middle, side, quality, limits)
            return made.jpeg, opened.is_as_indexed(item.file)  # computing a video's digest takes too long
        made = image_thumbnail(opened.source(item.file, ImageLimits().max_bytes), side, quality)
    except (BadImageError, BadMediaError) as error:
        raise ProblemError(404, f"the {item.file.kind} cannot be read any more ({error.reason})") from None
    return made.jpeg, made.digest[:DIGITS] == item.file.digest

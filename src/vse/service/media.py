"""Files of the collection, opened so that nothing outside it can be reached."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from fastapi.responses import Response, StreamingResponse
from numpy.typing import NDArray
from starlette.types import Receive, Scope, Send

from vse.index.types import MediaFile
from vse.service.problems import ProblemError
from vse.service.state import Remembered

GONE = "the file is not there any more"
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True)
class OpenFile:
    """An open file, and its size and time of change when it was opened.

    Whoever receives it closes ``stream``. It is no bare descriptor, so that one which nobody receives is closed too.
    """

    stream: io.FileIO
    size: int
    modified: int

    def is_as_indexed(self, file: MediaFile) -> bool:
        """Whether size and time of change are those of the file in the collection, as indexing takes it."""
        return (self.size, self.modified) == (file.size, file.modified)

    def read(self, most: int) -> bytes:
        """All of it, which is 422 when there are more than ``most`` bytes."""
        if self.size > most:
            raise ProblemError(422, f"the file has {self.size:,} bytes, more than the {most:,} that are read")
        with os.fdopen(os.dup(self.stream.fileno()), "rb") as whole:
            whole.seek(0)
            return whole.read(most)


def open_media(file: MediaFile) -> OpenFile:
    """The file, reached from its root step by step, following no link below it.

    What lay there when it was indexed may have been replaced since: by a link to a secret, or by a pipe that never
    answers. Both are 404, as is a path that leads upwards.
    """
    parts = file.path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ProblemError(404, GONE)
    opened: list[int] = []
    try:
        opened.append(os.open(file.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for folder in parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.append(os.open(folder, flags, dir_fd=opened[-1]))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(parts[-1], flags, dir_fd=opened[-1])
    except OSError as error:
        if error.errno in SHORTAGES:
            raise ProblemError(503, "too many files are open: try again soon", {"Retry-After": "1"}) from None
        raise ProblemError(404, GONE) from None
    finally:
        for folder_descriptor in opened:
            os.close(folder_descriptor)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ProblemError(404, GONE)
    return OpenFile(io.FileIO(descriptor, "rb"), status.st_size, status.st_mtime_ns)


def is_available(file: MediaFile) -> bool:
    """Whether the file can be opened now."""
    with suppress(ProblemError):
        open_media(file).stream.close()
        return True
    return False


BLOCK = 1 << 18
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def part_of(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and the one behind the last of a Range header; None when all of the file is meant.

    Several ranges at once, which no player needs, mean all of it, as the standard allows.
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
        raise ProblemError(416, f"the file has {size:,} bytes", {"Content-Range": f"bytes */{size}"})
    return start, end


@dataclass(frozen=True)
class Wanted:
    """What a request says of a file: its headers Range, If-Range and If-None-Match, and whether no body is wanted."""

    part: str | None
    unless_changed: str | None
    known: str | None
    head: bool


def stream(opened: OpenFile, wanted: Wanted, headers: dict[str, str], kind: str) -> Response:
    """The file, or the part of it that is asked for; closes the file in the end, also when the client leaves.

    A part of a file that has changed since (If-Range) is of no use, so all of it is sent.
    """
    tag = f'"{opened.modified:x}-{opened.size:x}"'
    if names(wanted.known, tag):
        opened.stream.close()
        return Response(status_code=304, headers={**headers, "ETag": tag})
    try:
        part = part_of(wanted.part if wanted.unless_changed in (None, tag) else None, opened.size)
    except ProblemError:
        opened.stream.close()
        raise
    start, end = part or (0, opened.size)
    headers = {**headers, "ETag": tag, "Accept-Ranges": "bytes", "Content-Length": str(end - start)}
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{opened.size}"
    if wanted.head:
        opened.stream.close()
        return Response(b"", 206 if part else 200, headers, media_type=kind)
    return _Part(opened.stream, start, end, 206 if part else 200, headers, kind)


def names(header: str | None, tag: str) -> bool:
    """Whether an If-None-Match header has this tag."""
    if header is None:
        return False
    return header.strip() == "*" or tag in (each.strip().removeprefix("W/") for each in header.split(","))


class _Part(StreamingResponse):
    """Reads as far as the client does."""

    def __init__(self, file: io.FileIO, start: int, end: int, status: int, headers: dict[str, str], kind: str) -> None:
        super().__init__(_blocks(file, start, end), status, headers, media_type=kind)
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
            return  # it became shorter: the client sees that something is missing
        start += len(block)
        yield block


ThumbnailSize = Literal[160, 320, 640]
PREVIEW = 1600
QUALITY = {160: 72, 320: 78, 640: 82, PREVIEW: 88}
MEMORY = 32_000_000
"""Bytes that are kept: some thousand thumbnails. Browsers keep what they have seen themselves."""


def shrink(pixels: NDArray[np.uint8], side: int) -> bytes:
    """A JPEG of ``pixels (H, W, 3)`` whose longer side is ``side`` at most. Only pixels go in, so no data of a camera
    comes out."""
    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=QUALITY[side], optimize=False, progressive=side > 640)
    return stream.getvalue()


def rendition_cache() -> Remembered[str, bytes]:
    """For the renditions that were shown last, by their entity tags."""
    return Remembered(MEMORY, len)


def frame_at(opened: OpenFile, path: str, second: float, seconds: float) -> NDArray[np.uint8]:
    """The upright frame ``(H, W, 3)`` that is seen then; the last one where the clip is shorter.

    ``path`` is where it was opened. Finding it may take ``seconds``.
    """
    from vse.inputs.files import BadMediaError
    from vse.inputs.video.file import VideoLimits, open_clip
    from vse.inputs.video.reader import FrameReader
    from vse.inputs.video.windows import upright

    limits = VideoLimits(max_time=seconds)
    try:
        with open_clip(reachable(opened, path), limits) as clip, closing(FrameReader(clip)) as reader:
            frame = reader.at(min(second, max(clip.duration - 0.1, 0.0)))
            if frame is None:
                raise ProblemError(404, "the clip has no frame there")
            return upright(frame, reader.orientation, clip.aspect, limits.max_side)
    except BadMediaError as error:
        raise ProblemError(404, f"the clip cannot be read ({error.reason})") from None


def reachable(opened: OpenFile, path: str) -> Path:
    """A path to exactly the file that was opened safely: a link put in its place afterwards is not followed.

    Where the system has no such paths it is ``path``.
    """
    by_number = Path(f"/proc/self/fd/{opened.stream.fileno()}")
    return by_number if by_number.exists() else Path(path)

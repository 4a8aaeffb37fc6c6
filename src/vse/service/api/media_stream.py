"""A file in pieces: what a browser asks for when a person moves the slider of a clip."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from vse.service.media import OpenFile
from vse.service.problems import ProblemError

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

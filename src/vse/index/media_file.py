"""A photograph or a clip on disk, as a collection knows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

MediaKind = Literal["image", "video"]
Place = tuple[str, str]
"""The root and path of a file."""
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class MediaFile:
    """One file. ``root`` is the folder that was indexed, ``path`` the place below it with ``/`` between its parts.

    ``digest`` is the hash of the content: with size and time it tells a changed file from a touched one, and a moved
    file from a new one. ``taken`` is the local time at which the picture was taken, in seconds since 1970 as if it were
    UTC (cameras do not tell their zone), ``latitude`` and ``longitude`` where; all from the file's own data.
    ``captions`` are sentences that came with it.
    """

    root: str
    path: str
    kind: MediaKind
    size: int
    modified: int
    digest: str
    width: int
    height: int
    taken: float | None = None
    latitude: float | None = None
    longitude: float | None = None
    duration: float | None = None
    captions: tuple[str, ...] = ()


def full_path(file: MediaFile) -> str:
    """Where the file is."""
    return f"{file.root.rstrip('/')}/{file.path}"


def readable(path: str) -> str:
    """A path as text that can be sent: bytes that are not UTF-8 become replacement characters."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def printable(text: str) -> str:
    """One line: what file names may contain and a terminal would obey, and bytes that are no text, as escapes.

    That are controls, ends of lines and paragraphs, and marks that turn the direction of writing. Anything else stays
    as it is, any kind of space and the joiner within an emoji too, so that a name can be copied.
    """
    return _UNSHOWN.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)

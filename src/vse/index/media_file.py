"""A photograph or a clip on disk, as a collection knows it."""

from __future__ import annotations

from dataclasses import dataclass

from vse.inputs.formats import MediaKind

Place = tuple[str, str]
"""The root and path of a file."""


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

"""A photograph or a clip on disk, as a collection knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MediaKind = Literal["image", "video"]


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

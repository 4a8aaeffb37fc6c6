"""Which items may be found."""

from __future__ import annotations

from dataclasses import dataclass

from vse.errors import InputError
from vse.index.media_file import MediaKind


@dataclass(frozen=True)
class Box:
    """A part of the earth's surface, in degrees; one that crosses the date line has ``west`` above ``east``."""

    south: float
    west: float
    north: float
    east: float

    def __post_init__(self) -> None:
        if not (-90 <= self.south <= self.north <= 90):
            raise InputError(f"latitudes from {self.south} to {self.north}: expected -90 ≤ south ≤ north ≤ 90")
        if not (-180 <= self.west <= 180 and -180 <= self.east <= 180):
            raise InputError(f"longitudes {self.west} and {self.east}: expected -180 to 180")


@dataclass(frozen=True)
class Filter:
    """All of what is given must hold.

    ``folder`` is a place below a root, with ``/`` between its parts; what lies deeper is in it too. ``after`` and
    ``before`` bound the time a picture was taken (``after`` inclusive), in the manner of ``MediaFile.taken``; files
    without a time, or without a place when ``within`` is given, are not found.
    """

    folder: str | None = None
    kind: MediaKind | None = None
    after: float | None = None
    before: float | None = None
    within: Box | None = None

    @property
    def empty(self) -> bool:
        return self == Filter()

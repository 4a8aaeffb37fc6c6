"""Which items may be found."""

from __future__ import annotations

import math
import posixpath
from dataclasses import dataclass

from vse.errors import InputError
from vse.inputs.formats import MediaKind

EARTH_RADIUS = 6371.0088
"""Kilometres, the mean."""


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


def box_around(latitude: float, longitude: float, kilometres: float) -> Box:
    """The smallest box that holds every place within ``kilometres`` of one on a sphere; its corners lie farther away.

    With the angle ``r = kilometres / EARTH_RADIUS`` it reaches r to the north and south, and to the east and west
    ``asin(sin r / cos latitude)``, since meridians draw together; where a pole is near enough, all around.
    """
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise InputError(
            f"place {latitude},{longitude}: expected a latitude from -90 to 90, a longitude from -180 to 180"
        )
    if not kilometres > 0:
        raise InputError(f"distance of {kilometres} km: expected a number above 0")
    reach = math.degrees(min(kilometres / EARTH_RADIUS, math.pi))
    south, north = latitude - reach, latitude + reach
    if south <= -90 or north >= 90:
        return Box(max(south, -90.0), -180.0, min(north, 90.0), 180.0)
    aside = math.degrees(math.asin(min(1.0, math.sin(math.radians(reach)) / math.cos(math.radians(latitude)))))
    return Box(south, _around(longitude - aside), north, _around(longitude + aside))


@dataclass(frozen=True)
class Filter:
    """All of what is given must hold.

    ``folder`` is a place below a root, with ``/`` between its parts; what lies deeper is in it too, and ``""`` and
    ``"."`` are everything. It is looked for below every root, or below ``root`` alone. ``after`` and ``before`` bound
    the time a picture was taken (``after`` inclusive), in the manner of ``MediaFile.taken``; files without a time, or
    without a place when ``within`` is given, are not found.
    """

    folder: str | None = None
    kind: MediaKind | None = None
    after: float | None = None
    before: float | None = None
    within: Box | None = None
    root: str | None = None

    def __post_init__(self) -> None:
        if self.folder is not None:
            object.__setattr__(self, "folder", _below(self.folder))

    @property
    def empty(self) -> bool:
        return self == Filter()


def _below(folder: str) -> str | None:
    """The folder in its shortest form; None for the root itself."""
    short = posixpath.normpath(folder.strip("/"))
    if short.split("/")[0] == "..":
        raise InputError(f"folder {folder[:60]!r} leads out of what was indexed: expected a place below it")
    return None if short == "." else short


def _around(longitude: float) -> float:
    """The same meridian between -180 and 180."""
    if -180 <= longitude <= 180:
        return longitude
    return longitude - math.copysign(360, longitude)

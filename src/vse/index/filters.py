"""Which items may be found."""

from __future__ import annotations

import math
import posixpath
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, cast

from vse.errors import InputError, unknown_choice
from vse.inputs.files import MediaKind

if TYPE_CHECKING:
    from vse.inputs.files import MediaKind


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
    the time an image was taken (``after`` inclusive), like ``MediaFile.taken``; files without a time, or
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


KINDS = ("image", "video")
SHOWN = 60
"""Characters of a bad value that are repeated."""
KILOMETRES = 10.0
"""Around a place, where nothing else is said."""
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")


def read_filter(
    kind: str | None = None,
    after: str | None = None,
    before: str | None = None,
    near: str | None = None,
    within: float | None = None,
    *,
    mark: str = "",
) -> Filter:
    """The filter that is written so; None leaves a part out.

    ``after`` and ``before`` are dates like 2024, 2024-05 or 2024-05-31, of which each means its beginning; ``near`` is
    LATITUDE,LONGITUDE in degrees, ``within`` kilometres around it. ``mark`` stands before the names in errors, such as
    ``--`` for options.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"{mark}type: {unknown_choice('type', kind[:SHOWN], KINDS)}")
    first = None if after is None else read_date(f"{mark}after", after)
    last = None if before is None else read_date(f"{mark}before", before)
    if first is not None and last is not None and first >= last:
        hint = _mended(first, str(before), mark)
        raise InputError(f"{mark}after {after} {mark}before {before}: nothing lies between, {hint}")
    return Filter(kind=cast("MediaKind | None", kind), after=first, before=last, within=_read_place(near, within, mark))


def read_date(name: str, text: str) -> float:
    """The moment at which a year, a month or a day begins, like ``MediaFile.taken``."""
    match = _DATE.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        year, month, day = (int(part or 1) for part in match.groups())
        return datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(f"{name} {text[:SHOWN]!r}: expected a date like 2024, 2024-05 or 2024-05-31") from None


def _mended(first: float, before: str, mark: str) -> str:
    """What helps when ``before`` is not behind ``first``: the date that follows, if all of it was meant."""
    following = _following(before.strip())
    if following is None or read_date("before", following) <= first:
        return "exchange them"
    return f"{mark}before is where it ends: for all of {before.strip()} write {mark}before {following}"


def _following(text: str) -> str | None:
    """The year, month or day after this one; None where the calendar ends."""
    year, *rest = (int(part) for part in text.split("-"))
    try:
        if not rest:
            return date(year + 1, 1, 1).isoformat()[:4]
        if len(rest) == 1:
            return date(year + rest[0] // 12, rest[0] % 12 + 1, 1).isoformat()[:7]
        return (date(year, *rest) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return None


def _read_place(near: str | None, within: float | None, mark: str) -> Box | None:
    """The box around LATITUDE,LONGITUDE; None without a place."""
    if near is None:
        if within is not None:
            raise InputError(f"{mark}within {within:g}: of which place? add {mark}near LATITUDE,LONGITUDE")
        return None
    try:
        latitude, longitude = (float(part) for part in near.split(","))
    except ValueError:
        expected = "expected LATITUDE,LONGITUDE in degrees, like 48.14,11.58"
        raise InputError(f"{mark}near {near[:SHOWN]!r}: {expected}") from None
    try:
        return box_around(latitude, longitude, KILOMETRES if within is None else within)
    except InputError as error:
        raise InputError(f"{mark}near {near[:SHOWN]!r}: {error}") from None

"""Restrict a search by folder, kind, date, place and words."""

from __future__ import annotations

import math
import posixpath
import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, cast

from vse.errors import InputError, unknown_choice
from vse.index.words import check_words
from vse.inputs.files import MediaKind

if TYPE_CHECKING:
    from vse.inputs.files import MediaKind


EARTH_RADIUS = 6371.0088
"""Mean radius in kilometres."""


@dataclass(frozen=True)
class Box:
    """An area in degrees; one that crosses the date line has ``west`` above ``east``."""

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
    """Return the smallest box that contains every point within ``kilometres`` of a place.

    With ``r = kilometres / EARTH_RADIUS`` it extends r to the north and south and ``asin(sin r / cos latitude)`` to the
    east and west, since meridians converge; if it reaches a pole, it spans all longitudes. Its corners are farther
    away.

    Raises:
        InputError: The coordinates or the distance are out of range.
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
    """Conditions on items, all of which must hold.

    Attributes:
        folder: Folder below a root, with ``/`` between its parts, subfolders included; ``""`` and ``"."`` match
            everything.
        kind: ``"image"`` or ``"video"``.
        after: Earliest time taken (inclusive), as in ``MediaFile.taken``. Files without a time do not match.
        before: Latest time taken (exclusive).
        within: Area. Files without a place do not match.
        root: The root to look in; default: all of them.
        name: Words of the file name, adjacent and in this order; a last ``*`` matches any ending of the last word.
        camera: Likewise, words of ``MediaFile.camera``.
        place: Likewise, words of ``MediaFile.place``.
        words: Texts each of which occurs in some text of the file, word by word; see :mod:`vse.index.words`.
    """

    folder: str | None = None
    kind: MediaKind | None = None
    after: float | None = None
    before: float | None = None
    within: Box | None = None
    root: str | None = None
    name: str | None = None
    camera: str | None = None
    place: str | None = None
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.folder is not None:
            object.__setattr__(self, "folder", _below(self.folder))
        for field in ("name", "camera", "place"):
            if getattr(self, field) is not None:
                check_words(field, getattr(self, field))
        for text in self.words:
            check_words("words", text)

    @property
    def needs_words(self) -> bool:
        """Whether any condition is on words, which not every collection knows."""
        return bool(self.words) or not self.name is self.camera is self.place is None

    @property
    def empty(self) -> bool:
        return self == Filter()


def _below(folder: str) -> str | None:
    """Normalise a folder; None for the root itself."""
    short = posixpath.normpath(folder.strip("/"))
    if short.split("/")[0] == "..":
        raise InputError(f"folder {folder[:60]!r} leads out of what was indexed: expected a folder below it")
    return None if short == "." else short


def _around(longitude: float) -> float:
    """Wrap a longitude into -180 to 180."""
    if -180 <= longitude <= 180:
        return longitude
    return longitude - math.copysign(360, longitude)


KINDS = ("image", "video")
SHOWN = 60
"""Characters of an invalid value quoted in an error."""
KILOMETRES = 10.0
"""Default radius around a place."""
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")


def read_filter(
    kind: str | None = None,
    after: str | None = None,
    before: str | None = None,
    near: str | None = None,
    within: float | None = None,
    *,
    name: str | None = None,
    camera: str | None = None,
    place: str | None = None,
    words: tuple[str, ...] = (),
    mark: str = "",
) -> Filter:
    """Parse a filter from text; None leaves a condition out.

    Args:
        kind: ``"image"`` or ``"video"``.
        after: A date such as 2024, 2024-05 or 2024-05-31, meaning its beginning.
        before: Likewise.
        near: LATITUDE,LONGITUDE in degrees.
        within: Kilometres around ``near``, default :data:`KILOMETRES`.
        name: As in :class:`Filter`, like the next three.
        camera: Words of the camera's name.
        place: Words of the place's name.
        words: Exact words.
        mark: Prefix of the names in errors, such as ``--`` for options.

    Raises:
        InputError: A value is invalid, or ``after`` is not earlier than ``before``.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"{mark}type: {unknown_choice('type', kind[:SHOWN], KINDS)}")
    first = None if after is None else read_date(f"{mark}after", after)
    last = None if before is None else read_date(f"{mark}before", before)
    if first is not None and last is not None and first >= last:
        hint = _mended(first, str(before), mark)
        raise InputError(f"{mark}after {after} {mark}before {before}: nothing lies between, {hint}")
    box = _read_place(near, within, mark)
    try:
        by_words = Filter(name=name, camera=camera, place=place, words=words)
    except InputError as error:
        raise InputError(f"{mark}{error}") from None
    return replace(by_words, kind=cast("MediaKind | None", kind), after=first, before=last, within=box)


def read_date(name: str, text: str) -> float:
    """Return the time at which a year, month or day begins, as in ``MediaFile.taken``."""
    match = _DATE.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        year, month, day = (int(part or 1) for part in match.groups())
        return datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(f"{name} {text[:SHOWN]!r}: expected a date like 2024, 2024-05 or 2024-05-31") from None


def _mended(first: float, before: str, mark: str) -> str:
    """Suggest a fix when ``before`` does not follow ``first``: the next date, if all of ``before`` was meant."""
    following = _following(before.strip())
    if following is None or read_date("before", following) <= first:
        return "swap them"
    return f"{mark}before is where it ends: for all of {before.strip()} write {mark}before {following}"


def _following(text: str) -> str | None:
    """Return the next year, month or day; None at the end of the calendar."""
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
    """Return the box around LATITUDE,LONGITUDE; None without a place."""
    if near is None:
        if within is not None:
            raise InputError(f"{mark}within {within:g}: around which place? add {mark}near LATITUDE,LONGITUDE")
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

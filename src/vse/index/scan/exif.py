"""When and where a picture was taken, from the notes that cameras leave in files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from PIL import Image

Place = tuple[float, float]
"""Latitude and longitude in degrees, north and east positive."""

_EXIF, _GPS = 0x8769, 0x8825
# Where a date stands and where its fraction of a second: (in the first directory, date, fraction), the best first.
_DATES = ((False, 0x9003, 0x9291), (False, 0x9004, 0x9292), (True, 0x0132, 0x9290))
_DATE = re.compile(r"\s*(\d{4})[:/.-](\d{1,2})[:/.-](\d{1,2})[T\s]+(\d{1,2}):(\d{1,2})(?::(\d{1,2}))?")
_LATITUDE_REF, _LATITUDE, _LONGITUDE_REF, _LONGITUDE = 1, 2, 3, 4


def notes(exif: Image.Exif) -> tuple[float | None, Place | None]:
    """The time taken, in the manner of ``MediaFile.taken``, and the place; None for what is absent or nonsense."""
    camera = _directory(exif, _EXIF)
    return taken(exif, camera), place(_directory(exif, _GPS))


def taken(first: Mapping[int, Any], camera: Mapping[int, Any]) -> float | None:
    """DateTimeOriginal, DateTimeDigitized or DateTime: the first of them that is a date of the calendar."""
    for in_first, date_tag, fraction_tag in _DATES:
        seconds = date((first if in_first else camera).get(date_tag))
        if seconds is not None:
            return seconds + _fraction(camera.get(fraction_tag))
    return None


def date(value: object) -> float | None:
    """``YYYY:MM:DD HH:MM:SS`` in seconds since 1970 as if it were UTC; 0000:00:00 and the like are no dates."""
    match = _DATE.match(_text(value))
    if match is None:
        return None
    try:
        return datetime(*(int(part or 0) for part in match.groups()), tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]
    except (ValueError, OverflowError):
        return None


def place(gps: Mapping[int, Any]) -> Place | None:
    """Both coordinates, or None. (0, 0) is what receivers write that have seen no satellite."""
    latitude = _degrees(gps.get(_LATITUDE), gps.get(_LATITUDE_REF), "NS", 90)
    longitude = _degrees(gps.get(_LONGITUDE), gps.get(_LONGITUDE_REF), "EW", 180)
    if latitude is None or longitude is None or (latitude == 0 and longitude == 0):
        return None
    return latitude, longitude


def _degrees(value: object, reference: object, signs: str, most: int) -> float | None:
    """Degrees, minutes, seconds with the hemisphere's letter; a missing letter leaves the sign open, hence None."""
    sign = _text(reference).strip()[:1].upper()
    parts = value if isinstance(value, tuple | list) else (value,)
    if sign not in tuple(signs) or not 1 <= len(parts) <= 3:
        return None
    total = 0.0
    for part, unit in zip(parts, (1, 60, 3600), strict=False):
        try:
            number = float(part)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            return None
        if not (math.isfinite(number) and number >= 0):
            return None
        total += number / unit
    if total > most:
        return None
    return -total if sign == signs[1] and total else total


def _fraction(value: object) -> float:
    """``"25"`` is a quarter of a second."""
    digits = _text(value).strip()
    return float(f"0.{digits}") if digits.isascii() and digits.isdigit() else 0.0


def _text(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    return value.replace("\0", " ") if isinstance(value, str) else ""


def _directory(exif: Image.Exif, tag: int) -> Mapping[int, Any]:
    try:
        return exif.get_ifd(tag)
    except Exception:  # noqa: BLE001 - broken notes about a picture are no reason to refuse the picture
        return {}

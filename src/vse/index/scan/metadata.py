"""Read the metadata of a media file: EXIF, dimensions, dates, duration."""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image

from vse.errors import first_line
from vse.inputs.files import BadMediaError
from vse.inputs.images import KNOWN_FORMATS, ImageLimits, identify, reserve_memory
from vse.inputs.video.file import VideoLimits, open_video
from vse.inputs.video.reader import FrameReader
from vse.inputs.video.windows import square

Place = tuple[float, float]
"""Latitude and longitude in degrees, north and east positive."""

_EXIF, _GPS = 0x8769, 0x8825
# Tags of dates and their subseconds, in order of preference: (in the first directory, date, subseconds).
_DATES = ((False, 0x9003, 0x9291), (False, 0x9004, 0x9292), (True, 0x0132, 0x9290))
_DATE = re.compile(r"\s*(\d{4})[:/.-](\d{1,2})[:/.-](\d{1,2})[T\s]+(\d{1,2}):(\d{1,2})(?::(\d{1,2}))?")
_LATITUDE_REF, _LATITUDE, _LONGITUDE_REF, _LONGITUDE = 1, 2, 3, 4


def notes(exif: Image.Exif) -> tuple[float | None, Place | None]:
    """Return time taken, as in ``MediaFile.taken``, and place from EXIF; None for what is absent or invalid."""
    camera = _directory(exif, _EXIF)
    return taken(exif, camera), place(_directory(exif, _GPS))


def taken(first: Mapping[int, Any], camera: Mapping[int, Any]) -> float | None:
    """Return the first valid date of DateTimeOriginal, DateTimeDigitized and DateTime."""
    for in_first, date_tag, fraction_tag in _DATES:
        seconds = date((first if in_first else camera).get(date_tag))
        if seconds is not None:
            return seconds + _fraction(camera.get(fraction_tag))
    return None


def date(value: object) -> float | None:
    """Parse ``YYYY:MM:DD HH:MM:SS`` into seconds since 1970 as if in UTC; None for invalid dates such as 0000:00:00."""
    match = _DATE.match(_text(value))
    if match is None:
        return None
    try:
        return datetime(*(int(part or 0) for part in match.groups()), tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]
    except (ValueError, OverflowError):
        return None


def place(gps: Mapping[int, Any]) -> Place | None:
    """Return both coordinates, or None. Receivers without a satellite fix write (0, 0), which is ignored."""
    latitude = _degrees(gps.get(_LATITUDE), gps.get(_LATITUDE_REF), "NS", 90)
    longitude = _degrees(gps.get(_LONGITUDE), gps.get(_LONGITUDE_REF), "EW", 180)
    if latitude is None or longitude is None or (latitude == 0 and longitude == 0):
        return None
    return latitude, longitude


def _degrees(value: object, reference: object, signs: str, largest: int) -> float | None:
    """Convert degrees, minutes and seconds; None without a hemisphere, which leaves the sign unknown."""
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
    if total > largest:
        return None
    return -total if sign == signs[1] and total else total


def _fraction(value: object) -> float:
    """Parse subseconds: ``"25"`` is a quarter of a second."""
    digits = _text(value).strip()
    return float(f"0.{digits}") if digits.isascii() and digits.isdigit() else 0.0


def _text(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    return value.replace("\0", " ") if isinstance(value, str) else ""


def _directory(exif: Image.Exif, tag: int) -> Mapping[int, Any]:
    try:
        return exif.get_ifd(tag)
    except Exception:  # noqa: BLE001 - corrupt EXIF is no reason to reject an image
        return {}


@dataclass(frozen=True)
class Facts:
    """Metadata of a file: upright width and height; the other fields are those of ``MediaFile``."""

    width: int
    height: int
    taken: float | None = None
    latitude: float | None = None
    longitude: float | None = None
    duration: float | None = None


_WIDTH, _HEIGHT, _ORIENTATION = 0x0100, 0x0101, 0x0112
_LYING = (5, 6, 7, 8)  # width and height are swapped
_PNG_START = 8
_PNG_NOTES = (b"eXIf", b"tEXt", b"zTXt", b"iTXt")


def picture_facts(content: bytes, name: str, limits: ImageLimits) -> Facts:
    """Return size, time and place of an image without decoding it; corruption after the header surfaces later.

    Raises:
        BadMediaError: It is not an image, is empty, or exceeds the limits.
    """
    if not content:
        raise BadMediaError(name, "empty")
    try:
        image = identify(io.BytesIO(content))
    except Exception as error:  # decoders raise anything on malformed bytes
        raise BadMediaError(name, first_line(error)) from error
    if image is None:
        raise BadMediaError(name, f"not an image; supported are {KNOWN_FORMATS}")
    with image:
        width, height = _stored_size(image)
        if width < 1 or height < 1:
            raise BadMediaError(name, f"{width} x {height} pixels")
        if width * height > limits.max_pixels:
            raise BadMediaError(name, f"{width} x {height} pixels, at most {limits.max_pixels:,}")
        exif = _exif(image, content)
        if exif.get(_ORIENTATION) in _LYING:
            width, height = height, width
        taken, place = notes(exif)
    latitude, longitude = place if place is not None else (None, None)
    return Facts(width, height, taken, latitude, longitude)


def _stored_size(image: Image.Image) -> tuple[int, int]:
    """Return the size before rotation; for TIFF, some versions of Pillow report the rotated one."""
    tags = getattr(image, "tag_v2", None) if image.format == "TIFF" else None
    if tags is not None and isinstance(tags.get(_WIDTH), int) and isinstance(tags.get(_HEIGHT), int):
        return tags[_WIDTH], tags[_HEIGHT]
    return image.size


def _exif(image: Image.Image, content: bytes) -> Image.Exif:
    try:
        if image.format == "PNG" and "exif" not in image.info and not _notes_behind_pixels(content):
            return Image.Image.getexif(image)  # PNG's own getexif decodes all pixels to reach later chunks
        if image.format == "PNG":
            reserve_memory(image, content)
        return image.getexif()
    except Exception:  # noqa: BLE001 - corrupt EXIF is no reason to reject an image
        return Image.Exif()


def _notes_behind_pixels(content: bytes) -> bool:
    """Return whether a chunk after the first pixels of a PNG may hold EXIF."""
    position, pixels = _PNG_START, False
    while position + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, position)
        if pixels and kind in _PNG_NOTES:
            return True
        pixels = pixels or kind == b"IDAT"
        position += 12 + length
    return False


_VIDEO_DATES = ("com.apple.quicktime.creationdate", "creation_time", "date")
_PLACES = ("com.apple.quicktime.location.ISO6709", "location", "location-eng")
_ISO6709 = re.compile(r"([+-]\d{2}(?:\.\d+)?)([+-]\d{3}(?:\.\d+)?)")
_NO_DATE = (1904, 1970)  # epochs of container clocks: January 1 of these means no date


def clip_facts(path: str | Path, limits: VideoLimits) -> Facts:
    """Return size, duration, time and place of a video; decodes the first frame, the only source of the rotation.

    Raises:
        BadMediaError: No frame can be decoded.
    """
    with open_video(path, limits) as clip, closing(FrameReader(clip)) as reader:
        frame = reader.at(0.0)
        if frame is None:
            raise BadMediaError(str(path), f"no frame can be decoded ({reader.remark or 'there is none'})")
        width, height = reader.orientation.size(*square(frame.width, frame.height, clip.aspect))
        tags = {**clip.stream.metadata, **clip.container.metadata}
        place = place_of(tags)
        latitude, longitude = place if place is not None else (None, None)
        return Facts(width, height, taken_of(tags), latitude, longitude, clip.duration)


def taken_of(tags: Mapping[str, str]) -> float | None:
    """Return the local time if the file has one with its zone, else the container's, which is UTC by definition."""
    for name in _VIDEO_DATES:
        try:
            found = datetime.fromisoformat(tags.get(name, "").strip())
        except ValueError:
            continue
        if found.year not in _NO_DATE or (found.month, found.day) != (1, 1):
            return found.replace(tzinfo=UTC).timestamp()
    return None


def place_of(tags: Mapping[str, str]) -> Place | None:
    """Parse ``+48.8577+002.295/`` into latitude and longitude in degrees; (0, 0) is ignored, as for images."""
    for name in _PLACES:
        match = _ISO6709.match(tags.get(name, "").strip())
        if match is not None:
            latitude, longitude = float(match[1]), float(match[2])
            if abs(latitude) <= 90 and abs(longitude) <= 180 and math.hypot(latitude, longitude) > 0:
                return latitude, longitude
    return None

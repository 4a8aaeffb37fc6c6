"""Read the metadata of a media file: EXIF, IPTC, XMP, dimensions, dates, duration."""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from PIL import Image

from vse._util.worker_process import shallow
from vse.errors import first_line
from vse.index.scan.tags import (
    MAX_TITLE,
    Tags,
    camera_of,
    clean,
    description_of,
    iptc_record,
    iptc_tags,
    merged,
    unique,
    xmp_tags,
)
from vse.inputs.files import BadMediaError
from vse.inputs.images import KNOWN_FORMATS, ImageLimits, identify, reserve_memory
from vse.inputs.video.file import VideoFile, VideoLimits, open_video
from vse.inputs.video.reader import FrameReader
from vse.inputs.video.windows import square

METADATA_VERSION = 1
"""Raise it when more is read: the next ``vse index`` then reads the metadata of every file again."""
Place = tuple[float, float]
"""Latitude and longitude in degrees, north and east positive."""

_EXIF, _GPS = 0x8769, 0x8825
# Tags of dates and their subseconds, in order of preference: (in the first directory, date, subseconds).
_DATES = ((False, 0x9003, 0x9291), (False, 0x9004, 0x9292), (True, 0x0132, 0x9290))
_DATE = re.compile(r"\s*(\d{4})[:/.-](\d{1,2})[:/.-](\d{1,2})[T\s]+(\d{1,2}):(\d{1,2})(?::(\d{1,2}))?")
_LATITUDE_REF, _LATITUDE, _LONGITUDE_REF, _LONGITUDE = 1, 2, 3, 4


_MAKE, _MODEL, _DESCRIPTION = 0x010F, 0x0110, 0x010E
_XP_TITLE, _XP_COMMENT, _XP_KEYWORDS, _XP_SUBJECT = 0x9C9B, 0x9C9C, 0x9C9E, 0x9C9F  # of Windows
_FIRST = (_MAKE, _MODEL, _DESCRIPTION, _XP_TITLE, _XP_COMMENT, _XP_KEYWORDS, _XP_SUBJECT)
_XMP, _IPTC, _PHOTOSHOP = 700, 33723, 34377  # of TIFF


def exif_tags(exif: Image.Exif) -> Tags:
    """Return what EXIF says."""
    taken, place = notes(exif)
    latitude, longitude = place if place is not None else (None, None)
    first = {tag: _value(exif, tag) for tag in _FIRST}
    windows = {tag: _wide(first[tag]) for tag in (_XP_TITLE, _XP_COMMENT, _XP_KEYWORDS, _XP_SUBJECT)}
    return Tags(
        taken=taken,
        latitude=latitude,
        longitude=longitude,
        camera=camera_of(_text(first[_MAKE]), _text(first[_MODEL])),
        title=clean(windows[_XP_TITLE], MAX_TITLE) or clean(windows[_XP_SUBJECT], MAX_TITLE),
        description=description_of(windows[_XP_COMMENT]) or description_of(_utf8(first[_DESCRIPTION])),
        keywords=unique(windows[_XP_KEYWORDS].split(";")),
    )


def _value(exif: Image.Exif, tag: int) -> object:
    try:
        return exif.get(tag)
    except Exception:  # noqa: BLE001 - corrupt EXIF is no reason to reject an image
        return None


def _wide(value: object) -> str:
    """Decode the UTF-16 of Windows, which Pillow returns as bytes or a tuple of them."""
    raw = bytes(value) if isinstance(value, tuple) and all(isinstance(each, int) for each in value) else value
    return raw.decode("utf-16-le", "replace").partition("\0")[0] if isinstance(raw, bytes) else ""


def _utf8(value: object) -> str:
    """Return a text of EXIF: ASCII by its definition and UTF-8 in practice, which Pillow decodes as Latin-1."""
    text = _text(value)
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


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


@dataclass(frozen=True, kw_only=True)
class Facts(Tags):
    """Metadata of a file: upright width and height; the other fields are those of ``MediaFile``."""

    width: int
    height: int
    duration: float | None = None


_WIDTH, _HEIGHT, _ORIENTATION = 0x0100, 0x0101, 0x0112
_LYING = (5, 6, 7, 8)  # width and height are swapped
_PNG_START = 8
_PNG_NOTES = (b"eXIf", b"tEXt", b"zTXt", b"iTXt")


def picture_facts(source: bytes | BinaryIO, name: str, limits: ImageLimits) -> Facts:
    """Return the metadata of an image without decoding it; corruption after the header surfaces later.

    Args:
        source: The content, or a file open for reading, of which only the necessary parts are read.
        name: Of the file, for errors.
        limits: Maximum number of pixels.

    Raises:
        BadMediaError: It is not an image, is empty, or exceeds the limits.
    """
    if source == b"":
        raise BadMediaError(name, "empty")
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        image = identify(cast("io.BytesIO", stream))
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
        exif = _exif(image, stream)
        if exif.get(_ORIENTATION) in _LYING:
            width, height = height, width
        tags = exif_tags(exif)
        written = merged((xmp_tags(_xmp(image)), iptc_tags(_iptc(image)), _png_tags(image)))
    tags = merged((replace(written, taken=None, latitude=None, longitude=None, camera=None), tags, written))
    return Facts(**shallow(tags), width=width, height=height)


def _xmp(image: Image.Image) -> bytes:
    """Return the XMP packet of an image, empty if there is none."""
    start = b"http://ns.adobe.com/xap/1.0/\0"
    packet: object = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp")
    if packet is None:
        segments = [raw for kind, raw in getattr(image, "applist", ()) if kind == "APP1" and raw.startswith(start)]
        packet = segments[0][len(start) :] if segments else _tiff_value(image, _XMP)
    return packet.encode("utf-8", "replace") if isinstance(packet, str) else _raw(packet)


def _iptc(image: Image.Image) -> bytes:
    """Return the IPTC record of a JPEG or TIFF file, empty if there is none."""
    resources = image.info.get("photoshop")
    if isinstance(resources, dict):
        return _raw(resources.get(0x0404))
    return _raw(_tiff_value(image, _IPTC)) or iptc_record(_raw(_tiff_value(image, _PHOTOSHOP)))


def _tiff_value(image: Image.Image, tag: int) -> object:
    tags = getattr(image, "tag_v2", None) if image.format == "TIFF" else None
    try:
        return None if tags is None else tags.get(tag)
    except Exception:  # noqa: BLE001 - corrupt metadata is no reason to reject an image
        return None


def _raw(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""


def _png_tags(image: Image.Image) -> Tags:
    if image.format != "PNG":
        return Tags()
    texts = {str(key).lower(): value for key, value in image.info.items() if isinstance(value, str)}
    return Tags(
        title=clean(texts.get("title"), MAX_TITLE),
        description=description_of(texts.get("description")) or description_of(texts.get("comment")),
    )


def _stored_size(image: Image.Image) -> tuple[int, int]:
    """Return the size before rotation; for TIFF, some versions of Pillow report the rotated one."""
    tags = getattr(image, "tag_v2", None) if image.format == "TIFF" else None
    if tags is not None and isinstance(tags.get(_WIDTH), int) and isinstance(tags.get(_HEIGHT), int):
        return tags[_WIDTH], tags[_HEIGHT]
    return image.size


def _exif(image: Image.Image, stream: BinaryIO) -> Image.Exif:
    try:
        if image.format == "PNG" and "exif" not in image.info and not _notes_behind_pixels(stream):
            return Image.Image.getexif(image)  # PNG's own getexif decodes all pixels to reach later chunks
        if image.format == "PNG":
            reserve_memory(image, b"")  # the file itself is read in parts
        return image.getexif()
    except Exception:  # noqa: BLE001 - corrupt EXIF is no reason to reject an image
        return Image.Exif()


def _notes_behind_pixels(stream: BinaryIO) -> bool:
    """Return whether a chunk after the first pixels of a PNG may hold EXIF; the stream stays where it is."""
    before, position, pixels = stream.tell(), _PNG_START, False
    try:
        while len(head := _at(stream, position)) == 8:
            length, kind = struct.unpack(">I4s", head)
            if pixels and kind in _PNG_NOTES:
                return True
            pixels = pixels or kind == b"IDAT"
            position += 12 + length
        return False
    finally:
        stream.seek(before)


def _at(stream: BinaryIO, position: int) -> bytes:
    stream.seek(position)
    return stream.read(8)


_VIDEO_DATES = ("creationdate", "creation_time", "date")
_PLACES = ("location.iso6709", "location", "location-eng")
_ISO6709 = re.compile(r"([+-]\d{2}(?:\.\d+)?)([+-]\d{3}(?:\.\d+)?)")
_NO_DATE = (1904, 1970)  # epochs of container clocks: January 1 of these means no date


def clip_facts(path: str | Path, limits: VideoLimits) -> Facts:
    """Return the metadata of a video; decodes the first frame, the only source of the rotation.

    Raises:
        BadMediaError: No frame can be decoded.
    """
    with open_video(path, limits) as clip, closing(FrameReader(clip)) as reader:
        frame = reader.at(0.0)
        if frame is None:
            raise BadMediaError(str(path), f"no frame can be decoded ({reader.remark or 'there is none'})")
        width, height = reader.orientation.size(*square(frame.width, frame.height, clip.aspect))
        return Facts(**shallow(_clip_tags(clip)), width=width, height=height, duration=clip.duration)


def clip_tags(path: str | Path, limits: VideoLimits) -> Tags:
    """Return what the container of a video says, without decoding anything; raise as :func:`clip_facts` does."""
    with open_video(path, limits) as clip:
        return _clip_tags(clip)


def _clip_tags(clip: VideoFile) -> Tags:
    tags = {
        name.lower().removeprefix("com.apple.quicktime."): value
        for name, value in (*clip.stream.metadata.items(), *clip.container.metadata.items())
    }
    place = place_of(tags)
    latitude, longitude = place if place is not None else (None, None)
    described = (description_of(tags.get(name)) for name in ("description", "synopsis", "comment"))
    return Tags(
        taken=taken_of(tags),
        latitude=latitude,
        longitude=longitude,
        camera=camera_of(
            tags.get("make") or tags.get("com.android.manufacturer"), tags.get("model") or tags.get("com.android.model")
        ),
        title=clean(tags.get("title"), MAX_TITLE),
        description=next((text for text in described if text), None),
        keywords=unique(re.split(r"[,;]", tags.get("keywords", ""))),
    )


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

"""The facts of a picture, from its header."""

from __future__ import annotations

import io
import struct

from PIL import Image

from vse.errors import first_line
from vse.index.scan.exif import notes
from vse.index.scan.facts import Facts
from vse.inputs.images import FORMATS, ImageLimits, identify
from vse.inputs.problem import BadMediaError

_WIDTH, _HEIGHT, _ORIENTATION = 0x0100, 0x0101, 0x0112
_LYING = (5, 6, 7, 8)  # height and width are exchanged
_PNG_START = 8
_PNG_NOTES = (b"eXIf", b"tEXt", b"zTXt", b"iTXt")


def picture_facts(content: bytes, name: str, limits: ImageLimits) -> Facts:
    """Size, time and place. The pixels are not decoded: damage behind the header shows when they are."""
    if not content:
        raise BadMediaError(name, "empty")
    try:
        image = identify(io.BytesIO(content))
    except Exception as error:  # a decoder may raise anything on hostile bytes
        raise BadMediaError(name, first_line(error)) from error
    if image is None:
        raise BadMediaError(name, f"not a picture; known are {', '.join(FORMATS)}, HEIF")
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
    """The size before it is brought upright; some versions of Pillow give that of a TIFF as it will be."""
    tags = getattr(image, "tag_v2", None) if image.format == "TIFF" else None
    if tags is not None and isinstance(tags.get(_WIDTH), int) and isinstance(tags.get(_HEIGHT), int):
        return tags[_WIDTH], tags[_HEIGHT]
    return image.size


def _exif(image: Image.Image, content: bytes) -> Image.Exif:
    try:
        if image.format == "PNG" and "exif" not in image.info and not _notes_behind_pixels(content):
            return Image.Image.getexif(image)  # the method of PNG would decode the pixels to look behind them
        return image.getexif()
    except Exception:  # noqa: BLE001 - broken notes about a picture are no reason to refuse the picture
        return Image.Exif()


def _notes_behind_pixels(content: bytes) -> bool:
    """Whether a PNG has a chunk behind the first of the pixels that may hold EXIF."""
    position, pixels = _PNG_START, False
    while position + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, position)
        if pixels and kind in _PNG_NOTES:
            return True
        pixels = pixels or kind == b"IDAT"
        position += 12 + length
    return False

"""What decoding a file costs, estimated before it is decoded: scans of a JPEG, and memory."""

from __future__ import annotations

import math
import re
from typing import Any

from PIL import Image

MAX_SCANS = 100
"""Of a JPEG. A scan of 75 bytes takes as long as a whole pass over the image; encoders write 1 to about 20."""
LARGE = 8_000_000
"""Pixels from which an image is converted in strips, and reduced while it is converted."""

MOST_NESTED = 8
"""How often a byte of a RAW file may belong to a JPEG."""

_SOS = b"\xff\xda"
_JPEG = re.compile(rb"\xff\xd8(?=\xff)")
# Entropy-coded data holds no other markers than restarts; 0xFF itself is followed by zero, and may repeat as padding.
_MARKER = re.compile(rb"\xff+[^\x00\x01\xd0-\xd7\xff]")
_NO_LENGTH = (0xD8, 0xD9)
_END = 0xD9
_COEFFICIENT_BLOCK = 128  # bytes: 64 of two bytes each

_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
"""Bytes that Pillow takes for a pixel; 4 for the other modes."""
_CONVERTED = 20
"""Bytes per pixel of converting an image that is not large, with transparency."""
_DECODER = {
    "JPEG": 0, "MPO": 0, "PNG": 0, "BMP": 1, "DIB": 1, "PPM": 4, "TIFF": 5, "GIF": 5, "WEBP": 14, "ICO": 9, "PSD": 4,
    "QOI": 9, "HEIF": 12, "RAW": 14, "AVIF": 20, "JPEG2000": 18, "JXL": 12,
}  # fmt: skip
"""Bytes per pixel that a decoder takes besides the image, measured; 20 for others."""


def count_scans(data: bytes | memoryview, start: int = 0) -> int:
    """Return the number of scans of a JPEG up to its end; images in its metadata or behind it do not count.

    An end before the first scan counts for nothing: decoders go on behind it.
    """
    return _scans_to_end(data, start)[0]


def _scans_to_end(data: bytes | memoryview, start: int) -> tuple[int, int]:
    scans, place = 0, start + 2
    while (found := _MARKER.search(data, place)) is not None:
        place = found.end()
        marker = data[place - 1]
        if marker == _END and scans:
            return scans, place
        if marker in _NO_LENGTH:
            continue
        scans += marker == _SOS[1]
        place += int.from_bytes(data[place : place + 2], "big")
    return scans, len(data)


def too_many_scans(data: bytes) -> str | None:
    """Return why a JPEG is refused for its scans; None if it is not, or is no JPEG."""
    if data[:2] != b"\xff\xd8" or data.count(_SOS) <= MAX_SCANS:
        return None
    return _refused(count_scans(data))


def too_many_scans_of_packet(packet: bytes) -> str | None:
    """Return why a packet of Motion JPEG is refused for its scans; None if it is not.

    FFmpeg begins at any marker, skips most segments by content rather than length, and ignores an end that it does not
    expect. Hence every marker counts: entropy-coded data has none, and metadata few by chance.
    """
    return _refused(packet.count(_SOS))


def too_many_embedded_scans(data: bytes) -> str | None:
    """Return why a camera RAW file is refused for the scans of a JPEG in it; None if it is not.

    LibRaw decodes tiles of a lossy DNG, and previews. A JPEG may hold another one in its metadata, but not many within
    each other, which would take quadratic time.
    """
    if data.count(_SOS) <= MAX_SCANS:
        return None
    walked = 0
    for found in _JPEG.finditer(data):
        scans, end = _scans_to_end(data, found.start())
        walked += end - found.start()
        if scans > MAX_SCANS:
            return _refused(scans)
        if walked > MOST_NESTED * len(data):
            return "too many scans: JPEG images within each other"
    return None


def _refused(scans: int) -> str | None:
    return f"{scans:,} scans, at most {MAX_SCANS} are decoded" if scans > MAX_SCANS else None


def opening_memory(data: bytes) -> int:
    """Return about how many bytes it takes to open an image; only WebP's decoder takes its memory already then."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return 0
    width = height = 0
    if data[12:16] == b"VP8X":
        width, height = (1 + int.from_bytes(data[place : place + 3], "little") for place in (24, 27))
    elif data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif data[12:16] == b"VP8 ":
        width, height = (int.from_bytes(data[place : place + 2], "little") & 0x3FFF for place in (26, 28))
    return (_DECODER["WEBP"] + 8) * width * height + len(data)


def decoding_memory(
    image: Image.Image, data: bytes, full: tuple[int, int], factor: int, turned: bool
) -> tuple[int, int]:
    """Return about how many bytes decoding may take, and how many it takes at least.

    Args:
        image: Opened, not decoded; its size may be reduced by ``draft``.
        data: The file.
        full: Width and height in the file.
        factor: How often the image is reduced along each side while it is converted.
        turned: Whether it may have to be turned upright afterwards.
    """
    pixels = image.width * image.height
    stored = _STORED.get(image.mode, 4) * pixels + _coefficients(image, data, full) + len(data)
    decoder = _DECODER.get(image.format or "", 20) * pixels
    if pixels <= LARGE:
        return stored + decoder + _CONVERTED * pixels, stored
    result = 3 * math.ceil(pixels / factor**2)
    strip = _CONVERTED * LARGE // 8
    return stored + decoder + result * (2 if turned or factor > 1 else 1) + strip, stored + result


def _coefficients(image: Image.Image, data: bytes, full: tuple[int, int]) -> int:
    """Return what libjpeg holds of a JPEG of several scans: all coefficients, however small the result is."""
    layers: list[Any] = getattr(image, "layer", None) or []
    if image.format not in ("JPEG", "MPO") or not layers:
        return 0
    if "progressive" not in image.info and (data.count(_SOS) < 2 or count_scans(data) < 2):
        return 0
    width, height = full
    across, down = max(layer[1] for layer in layers) or 1, max(layer[2] for layer in layers) or 1
    return sum(
        math.ceil(width * layer[1] / across / 8) * math.ceil(height * layer[2] / down / 8) * _COEFFICIENT_BLOCK
        for layer in layers
    )

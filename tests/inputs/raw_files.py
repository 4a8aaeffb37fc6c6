"""Minimal DNG files for tests, written by hand: an uncompressed colour filter array, with or without a preview."""

from __future__ import annotations

import struct

import numpy as np
from tests.inputs.pictures import encoded

BYTE, ASCII, SHORT, LONG, RATIONAL, SIGNED = 1, 2, 3, 4, 5, 10
SIZES = {BYTE: "B", ASCII: "s", SHORT: "H", LONG: "I"}


def _value(kind, values):
    if kind == ASCII:
        return values.encode() + b"\0", len(values) + 1
    if kind in (RATIONAL, SIGNED):
        pairs = [part for value in values for part in (round(value * 10_000), 10_000)]
        return struct.pack(f"<{len(pairs)}{'I' if kind == RATIONAL else 'i'}", *pairs), len(values)
    return struct.pack(f"<{len(values)}{SIZES[kind]}", *values), len(values)


def _directory(tags, start, following=0):
    """The bytes of a directory at ``start``, with the values that do not fit after it."""
    entries, rest = b"", b""
    place = start + 2 + 12 * len(tags) + 4
    for tag, (kind, values) in sorted(tags.items()):
        raw, count = _value(kind, values)
        if len(raw) > 4:
            pointer = struct.pack("<I", place + len(rest))
            rest += raw + b"\0" * (len(raw) % 2)
        else:
            pointer = raw.ljust(4, b"\0")
        entries += struct.pack("<HHI", tag, kind, count) + pointer
    return struct.pack("<H", len(tags)) + entries + struct.pack("<I", following) + rest


def dng(picture, *, preview=None, orientation=1, taken=None):
    """A DNG whose sensor (RGGB) saw ``picture``, uint8 (H, W, 3) with even sides; ``preview`` is embedded as a JPEG."""
    height, width = picture.shape[:2]
    linear = ((picture / 255.0) ** 2.2 * 65535).astype("<u2")
    mosaic = np.empty((height, width), "<u2")
    for row, column, channel in ((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 2)):
        mosaic[row::2, column::2] = linear[row::2, column::2, channel]
    pixels = mosaic.tobytes()
    jpeg = b"" if preview is None else encoded(preview, "JPEG", quality=95)
    jpeg += b"\0" * (len(jpeg) % 2)
    start = 8 + len(pixels) + len(jpeg)
    tags = {
        0x00FE: (LONG, [0]), 0x0100: (LONG, [width]), 0x0101: (LONG, [height]), 0x0102: (SHORT, [16]),
        0x0103: (SHORT, [1]), 0x0106: (SHORT, [32803]), 0x010F: (ASCII, "Example"), 0x0110: (ASCII, "Camera One"),
        0x0111: (LONG, [8]), 0x0112: (SHORT, [orientation]), 0x0115: (SHORT, [1]), 0x0116: (LONG, [height]),
        0x0117: (LONG, [len(pixels)]), 0x828D: (SHORT, [2, 2]), 0x828E: (BYTE, [0, 1, 1, 2]),
        0xC612: (BYTE, [1, 4, 0, 0]), 0xC614: (ASCII, "Example Camera One"), 0xC61D: (LONG, [65535]),
        0xC621: (SIGNED, [3.2405, -1.5371, -0.4985, -0.9693, 1.8760, 0.0416, 0.0556, -0.2040, 1.0572]),
        0xC628: (RATIONAL, [1.0, 1.0, 1.0]), 0xC65A: (SHORT, [21]),
    }  # fmt: skip
    if taken is not None:
        tags[0x0132] = (ASCII, taken)
    if preview is not None:
        tags[0x014A] = (LONG, [0])
        second = start + len(_directory(tags, start))
        tags[0x014A] = (LONG, [second])
    body = _directory(tags, start)
    if preview is not None:
        rows, columns = preview.shape[:2]
        inner = {
            0x00FE: (LONG, [1]), 0x0100: (LONG, [columns]), 0x0101: (LONG, [rows]), 0x0102: (SHORT, [8, 8, 8]),
            0x0103: (SHORT, [7]), 0x0106: (SHORT, [6]), 0x0111: (LONG, [8 + len(pixels)]), 0x0115: (SHORT, [3]),
            0x0116: (LONG, [rows]), 0x0117: (LONG, [len(jpeg)]),
        }  # fmt: skip
        body += _directory(inner, start + len(body))
    return b"II*\0" + struct.pack("<I", start) + pixels + jpeg + body

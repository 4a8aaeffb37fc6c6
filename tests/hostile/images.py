"""Makers of files that are small and cost much to decode."""

from __future__ import annotations

import io
import struct
import zlib
from fractions import Fraction

import numpy as np
from PIL import Image


def repeated_scans(count: int, side: int = 2000) -> bytes:
    """Return a progressive JPEG whose last scan is repeated ``count`` times: a few bytes each, a pass over it all."""
    stream = io.BytesIO()
    Image.new("RGB", (side, side), (90, 120, 40)).save(stream, "JPEG", progressive=True, quality=50)
    whole = stream.getvalue()
    start = whole.rindex(b"\xff\xda")
    return whole[:-2] + whole[start:-2] * count + b"\xff\xd9"


def flat_png(width: int, height: int, colour_type: int = 2) -> bytes:
    """Return a PNG of one colour without ever holding its pixels: RGB, or grey for ``colour_type`` 0."""
    row = b"\0" * (1 + width * (3 if colour_type == 2 else 1))
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def many_chunks(count: int) -> bytes:
    """Return a PNG with ``count`` empty chunks before its pixels, which a parser in Python reads one by one."""
    whole = flat_png(8, 8)
    return whole[:33] + _chunk(b"teSt", b"") * count + whole[33:]


def gif_bomb(width: int, height: int) -> bytes:
    """Return a GIF whose header announces a screen of this size, with a frame of one pixel."""
    stream = io.BytesIO()
    Image.new("P", (1, 1)).save(stream, "GIF")
    whole = bytearray(stream.getvalue())
    whole[6:10] = struct.pack("<HH", width, height)
    return bytes(whole)


def psd_bomb(width: int, height: int) -> bytes:
    """Return a Photoshop file of 38 bytes that announces so many pixels."""
    return b"8BPS" + struct.pack(">H6xHIIHH", 1, 3, height, width, 8, 3) + bytes(12)


def tiff_bomb(width: int, height: int) -> bytes:
    """Return a TIFF of one deflated strip of zeros."""
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(b"\0" * width * 3) for _ in range(height)) + packer.flush()
    tags = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 2), (273, 4, 1, 8),
        (277, 3, 1, 3), (278, 4, 1, height), (279, 4, 1, len(data)),
    ]  # fmt: skip
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + directory


def jpeg_in_tiff(jpeg: bytes, side: int, *, raw: bool = False) -> bytes:
    """Return a TIFF whose only strip is a JPEG, or with ``raw`` a lossy DNG, which LibRaw decodes."""
    jpeg += bytes(len(jpeg) % 2)
    compression, colours = (34892, 34892) if raw else (7, 6)
    tags = [
        (254, 4, 1, 0), (256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 8), (259, 3, 1, compression),
        (262, 3, 1, colours), (273, 4, 1, 8), (277, 3, 1, 3), (278, 4, 1, side), (279, 4, 1, len(jpeg)),
    ]  # fmt: skip
    if raw:
        tags += [(322, 4, 1, side), (323, 4, 1, side), (324, 4, 1, 8), (325, 4, 1, len(jpeg)), (50706, 1, 4, 0x401)]
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    return b"II*\0" + struct.pack("<I", 8 + len(jpeg)) + jpeg + directory


def photograph(seed: int, side: int = 160) -> bytes:
    """Return an ordinary JPEG."""
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC).save(stream, "JPEG", quality=85)
    return stream.getvalue()


def write_motion_jpeg(path, frames: list[bytes], side: int) -> None:
    """Write JPEG files as the frames of a Matroska video, unchanged."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=5)
        stream.width = stream.height = side
        stream.pix_fmt = "yuvj420p"
        for number, frame in enumerate(frames):
            packet = av.Packet(frame)
            packet.stream, packet.pts, packet.dts, packet.is_keyframe = stream, number, number, True
            packet.time_base = Fraction(1, 5)
            container.mux(packet)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

"""A corpus of damaged and hostile images and videos, the same for a seed."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, features
from tests.hostile import images as hostile
from tests.inputs.video.clips import write_clip

FORMATS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "TIFF": "tif", "BMP": "bmp", "PPM": "ppm"}
if features.check("jpg_2000"):
    FORMATS["JPEG2000"] = "jp2"
DAMAGED = 4
"""Damaged copies of each file."""


def write_corpus(folder: Path, seed: int = 0) -> dict[str, Path]:
    """Write about sixty files into ``folder`` and return them by name."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    files = {
        "scans.jpg": hostile.repeated_scans(2000, side=512),
        "scans.dng": hostile.jpeg_in_tiff(hostile.repeated_scans(2000, side=512), 512, raw=True),
        "bomb.png": hostile.flat_png(14_000, 12_000),
        "screen.gif": hostile.gif_bomb(65_535, 65_535),
        "strip.tif": hostile.tiff_bomb(12_000, 12_000),
        "chunks.png": hostile.many_chunks(50_000),
        "layers.psd": hostile.psd_bomb(30_000, 30_000),
        "empty.jpg": b"",
        "text.png": b"not an image at all",
        "video.jpg": b"\0\0\0\x18ftypisom" + bytes(64),
    }
    for kind, ending in FORMATS.items():
        stream = io.BytesIO()
        pixels = random.integers(0, 255, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(stream, kind)
        for number in range(DAMAGED):
            files[f"{kind.lower()}{number}.{ending}"] = damaged(stream.getvalue(), random, number)
    hostile.write_motion_jpeg(folder / "scans.mkv", [files["scans.jpg"]] * 3, side=512)
    hostile.write_motion_jpeg(folder / "behind.mkv", [b"\0" + files["scans.jpg"]] * 3, side=512)
    write_clip(folder / "whole.mp4", seconds=3, rate=5)
    video = (folder / "whole.mp4").read_bytes()
    files |= {f"video{number}.mp4": damaged(video, random, number) for number in range(DAMAGED)}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {path.name: path for path in sorted(folder.iterdir())}


def damaged(content: bytes, random: np.random.Generator, number: int) -> bytes:
    """Return a copy that is truncated (``number`` 0), shuffled in the middle (1), or has flipped bytes."""
    if number == 0:
        return content[: int(random.integers(16, len(content)))]
    changed = bytearray(content)
    if number == 1:
        start = int(random.integers(0, len(changed) - 16))
        changed[start : start + 16] = random.bytes(16)
        return bytes(changed)
    for at in random.integers(0, len(changed), 8 * number):
        changed[at] ^= 1 << int(random.integers(0, 8))
    return bytes(changed)

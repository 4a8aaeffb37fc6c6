"""Small images for tests, and their encodings."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def gradient(height=12, width=20):
    """An image without symmetry, smooth enough for lossy encodings: uint8 (H, W, 3)."""
    rows, columns = np.mgrid[:height, :width]
    red, green = rows * 255 // max(height - 1, 1), columns * 255 // max(width - 1, 1)
    return np.stack([red, green, (red + green) // 3], axis=2).astype(np.uint8)


def encoded(picture, file_format, **options):
    """The bytes of a file; ``image`` is an array or a PIL image."""
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    stream = io.BytesIO()
    image.save(stream, file_format, **options)
    return stream.getvalue()


def with_orientation(number):
    """EXIF data that hold this orientation."""
    exif = Image.Exif()
    exif[0x0112] = number
    return exif

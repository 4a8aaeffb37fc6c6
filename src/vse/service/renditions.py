"""Pictures made smaller for a screen: upright, without the place, the date and the camera that the original tells."""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vse.service.remembered import Remembered

ThumbnailSize = Literal[160, 320, 640]
PREVIEW = 1600
QUALITY = {160: 72, 320: 78, 640: 82, PREVIEW: 88}
MEMORY = 32_000_000
"""Bytes that are kept: some thousand thumbnails. Browsers keep what they have seen themselves."""


def shrink(pixels: NDArray[np.uint8], side: int) -> bytes:
    """A JPEG of ``pixels (H, W, 3)`` whose longer side is ``side`` at most. Only pixels go in, so no data of a camera
    comes out."""
    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=QUALITY[side], optimize=False, progressive=side > 640)
    return stream.getvalue()


def rendition_cache() -> Remembered[str, bytes]:
    """For the renditions that were shown last, by their entity tags."""
    return Remembered(MEMORY, len)

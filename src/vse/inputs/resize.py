"""Resizing an image, by the exact method that a model was trained with."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from PIL import Image

from vse.errors import InputError, unknown_choice

Method = Literal["plain-bilinear", "bilinear", "bicubic"]

_PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def resize(image: np.ndarray, size: tuple[int, int], method: Method = "plain-bilinear") -> np.ndarray:
    """``image`` (H, W, 3) at ``size`` (h, w), as float32 (h, w, 3) in the units of the input; never a view of it.

    - ``plain-bilinear`` has half-pixel centres and no antialiasing. Along each axis, output pixel i lies at
      ``x = (i + 0.5) * N / n - 0.5``, held within 0 … N - 1, and is ``(1 - f) * p[floor(x)] + f * p[floor(x) + 1]``
      with ``f = x - floor(x)``. Takes uint8 or float32; the result is not rounded. OpenCV's ``INTER_LINEAR`` and
      torch's ``interpolate`` compute this on floats, and so did the released models of VSE∞.
    - ``bilinear`` and ``bicubic`` are Pillow's: the filter widens when the image shrinks (antialiasing), and every
      pass is rounded. uint8 alone.
    """
    height, width = size
    if height < 1 or width < 1:
        raise InputError(f"an image cannot be resized to {height} x {width}: both sides must be at least 1")
    if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise InputError(f"resize takes an image of shape (H, W, 3), got {image.shape}")
    if method == "plain-bilinear":
        if image.dtype not in (np.uint8, np.float32):
            raise InputError(f"plain-bilinear resizes uint8 or float32, got {image.dtype}: convert the image first")
        return _plain_bilinear(image, height, width)
    if method not in _PILLOW:
        raise InputError(unknown_choice("resize method", method, get_args(Method)))
    if image.dtype != np.uint8:
        raise InputError(f"{method} resizes uint8, got {image.dtype}: convert the image, or use plain-bilinear")
    if image.shape[:2] != (height, width):
        pillow = Image.fromarray(np.ascontiguousarray(image))
        image = np.asarray(pillow.resize((width, height), _PILLOW[method]))
    return image.astype(np.float32)


def _plain_bilinear(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Columns, then rows. Before both, an image more than twice as high as wanted loses the rows that do not count."""
    rows, columns = image.shape[:2]
    low, high, share = _neighbours(rows, height)
    if 2 * height < rows:
        image = image[np.concatenate([low, high])]  # (2h, W, 3)
        low, high = np.arange(height), np.arange(height, 2 * height)
    if columns != width:
        left, right, part = _neighbours(columns, width)
        image = _blend(image.take(left, axis=1), image.take(right, axis=1), np.repeat(part, 3).reshape(width, 3))
    if rows == height:
        return image.astype(np.float32, copy=columns == width)
    return _blend(image[low], image[high], share[:, None, None])  # (h, w, 3)


def _neighbours(source: int, target: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The two source positions of every target position, and the share of the second.

    In double precision: at 4,000 pixels a float32 coordinate would be off by a tenth of a grey level.
    """
    position = ((np.arange(target) + 0.5) * (source / target) - 0.5).clip(0, source - 1)
    low = position.astype(np.intp)
    return low, np.minimum(low + 1, source - 1), (position - low).astype(np.float32)


def _blend(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
    """``low + (high - low) * share``, which leaves equal neighbours exactly as they are; in place for float32."""
    low = low.astype(np.float32, copy=False)
    high = high.astype(np.float32, copy=False)
    high -= low
    high *= share
    high += low
    return high

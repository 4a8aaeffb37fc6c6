"""Resize an image with exactly the method that a model was trained with."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from PIL import Image

from vse.errors import InputError, unknown_choice

Method = Literal["plain-bilinear", "bilinear", "bicubic"]

WHOLE = 32
"""Compute the whole result and crop it if it is at most this many times as large as the window."""

_PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def resize(
    image: np.ndarray | Image.Image,
    size: tuple[int, int],
    method: Method = "plain-bilinear",
    *,
    window: tuple[slice, slice] | None = None,
    small: bool = False,
) -> np.ndarray:
    """Return ``image`` (H, W, 3) at ``size`` (h, w), as float32 (h, w, 3) in the units of the input; never a view.

    An RGB image of Pillow is not copied where Pillow resizes it. ``small`` returns its uint8, where that is exact.

    - ``plain-bilinear`` has half-pixel centres and no antialiasing. Along each axis, output pixel i lies at
      ``x = (i + 0.5) * N / n - 0.5``, clamped to 0 … N - 1, and is ``(1 - f) * p[floor(x)] + f * p[floor(x) + 1]``
      with ``f = x - floor(x)``. Takes uint8 or float32; the result is not rounded. OpenCV's ``INTER_LINEAR`` and
      torch's ``interpolate`` compute this on floats, and so did the released models of VSE∞.
    - ``bilinear`` and ``bicubic`` are Pillow's: the filter widens when the image shrinks (antialiasing), and every
      pass is rounded. uint8 only.

    ``window`` (rows, columns) crops the result; both slices have a start and a stop within it. The crop is exact,
    except where Pillow would have to compute more than :data:`WHOLE` times as much: it then computes the window
    alone, and may order its two passes, each rounded and clipped, differently.
    """
    height, width = size
    if height < 1 or width < 1:
        raise InputError(f"an image cannot be resized to {height} x {width}: both sides must be at least 1")
    if isinstance(image, Image.Image) and (method not in _PILLOW or image.size == (width, height)):
        image = np.asarray(image)
    shape = image.shape if isinstance(image, np.ndarray) else (image.height, image.width, len(image.getbands()))
    if len(shape) != 3 or shape[2] != 3 or 0 in shape:
        raise InputError(f"resize takes an image of shape (H, W, 3), got {shape}")
    rows, columns = window or (slice(0, height), slice(0, width))
    if not (0 <= rows.start < rows.stop <= height and 0 <= columns.start < columns.stop <= width):
        raise InputError(f"window {rows}, {columns} lies outside of {height} x {width}: expected a part of it")
    if method == "plain-bilinear" and isinstance(image, np.ndarray):
        if image.dtype not in (np.uint8, np.float32):
            raise InputError(f"plain-bilinear resizes uint8 or float32, got {image.dtype}: convert the image first")
        return _plain_bilinear(image, size, rows, columns)
    if method not in _PILLOW:
        raise InputError(unknown_choice("resize method", method, get_args(Method)))
    if isinstance(image, np.ndarray) and image.dtype != np.uint8:
        raise InputError(f"{method} resizes uint8, got {image.dtype}: convert the image, or use plain-bilinear")
    found = _pillow(image, size, rows, columns, method)
    return found.copy() if small else found.astype(np.float32)


def _plain_bilinear(image: np.ndarray, size: tuple[int, int], down: slice, across: slice) -> np.ndarray:
    """Interpolate columns, then rows; an image more than twice as high as needed first loses unused rows."""
    rows, columns = image.shape[:2]
    height, width = size
    low, high, share = _neighbours(rows, height, down)
    wanted = len(low)
    if 2 * wanted < rows:
        image = image[np.concatenate([low, high])]  # (2h, W, 3)
        low, high = np.arange(wanted), np.arange(wanted, 2 * wanted)
    if columns == width:
        image = image[:, across]
    else:
        left, right, part = _neighbours(columns, width, across)
        image = _blend(image.take(left, axis=1), image.take(right, axis=1), np.repeat(part, 3).reshape(-1, 3))
    if rows == height:
        return image[low].astype(np.float32, copy=False)
    return _blend(image[low], image[high], share[:, None, None])  # (h, w, 3)


def _pillow(
    image: np.ndarray | Image.Image, size: tuple[int, int], down: slice, across: slice, method: Method
) -> np.ndarray:
    """Return the window of Pillow's result; its ``box`` is single precision, so ordinary sizes are computed whole."""
    (height, width), shape = size, (down.stop - down.start, across.stop - across.start)
    if isinstance(image, np.ndarray):
        if image.shape[:2] == size:
            return image[down, across]
        image = Image.fromarray(np.ascontiguousarray(image))
    if height * width <= WHOLE * shape[0] * shape[1]:
        return np.asarray(image.resize((width, height), _PILLOW[method]))[down, across]
    columns, rows = image.size
    across_each, down_each = columns / width, rows / height  # pixels of the image for one of the result
    box = (
        across.start * across_each,
        down.start * down_each,
        min(across.stop * across_each, columns),
        min(down.stop * down_each, rows),
    )
    return np.asarray(image.resize(shape[::-1], _PILLOW[method], box=box))


def _neighbours(source: int, target: int, part: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the two source positions for the target positions in ``part``, and the weight of the second.

    In double precision: at 4,000 pixels a float32 coordinate would be off by a tenth of a grey level.
    """
    position = ((np.arange(part.start, part.stop) + 0.5) * (source / target) - 0.5).clip(0, source - 1)
    low = position.astype(np.intp)
    return low, np.minimum(low + 1, source - 1), (position - low).astype(np.float32)


def _blend(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return ``low + (high - low) * share``, exact for equal neighbours; in place for float32."""
    low = low.astype(np.float32, copy=False)
    high = high.astype(np.float32, copy=False)
    high -= low
    high *= share
    high += low
    return high

"""Every way to store colours as uint8 (H, W, 3) RGB."""

from __future__ import annotations

import numpy as np
from PIL import Image

from vse.errors import InputError

_ACCEPTED = "expected (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) of uint8, uint16, bool, or float in 0 … 1"


def image_to_rgb(image: Image.Image) -> np.ndarray:
    """A PIL image of any mode as a new uint8 (H, W, 3).

    Transparency, also that of a palette or of one marked colour, is laid over white. Greys of 16 bits are divided by
    257. Mode ``I`` holds 16 bits when a value is above 255 and 8 otherwise; mode ``F`` holds 0 … 1 when no value is
    outside and 0 … 255 otherwise; what is outside is clipped, NaN is black.
    """
    if image.mode.startswith("I;16"):
        return _grey(_eight_bits(np.asarray(image).astype(np.uint16)))
    if image.mode == "I":
        values = np.asarray(image)
        if values.max() > 255:
            return _grey(_eight_bits(values.clip(0, 65535).astype(np.uint16)))
        return _grey(values.clip(0, 255).astype(np.uint8))
    if image.mode == "F":
        values = np.nan_to_num(np.asarray(image), nan=0.0)
        scale = 255 if values.min() >= 0 and values.max() <= 1 else 1
        return _grey((values * scale).clip(0, 255).round().astype(np.uint8))
    if image.mode in ("La", "LA", "PA", "RGBa", "RGBA") or "transparency" in image.info:
        image = image.convert("LA").convert("RGBA") if image.mode == "La" else image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    if image.mode != "RGB":
        image = image.convert("RGB")
    image.load()  # here, since numpy hides some errors of whatever it makes an array of
    return np.array(image)


def array_to_rgb(array: np.ndarray) -> np.ndarray:
    """An array of greys, RGB or RGBA as contiguous uint8 (H, W, 3); one that is so already is returned itself."""
    found = f"{array.dtype} {array.shape}"
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
        raise InputError(f"{found}, {_ACCEPTED}")
    if array.dtype == np.bool_:
        values = array.astype(np.uint8) * np.uint8(255)
    elif array.dtype == np.uint8:
        values = array
    elif array.dtype.kind == "u" and array.dtype.itemsize == 2:
        values = _eight_bits(array)
    elif array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not (low >= 0 and high <= 1):  # written so that NaN fails too
            raise InputError(f"{found} with values from {low:g} to {high:g}, floats must lie in 0 … 1: divide by 255?")
        values = (array * 255).round().astype(np.uint8)
    else:
        raise InputError(f"{found}, {_ACCEPTED}")
    if values.shape[2] == 1:
        return _grey(values[:, :, 0])
    if values.shape[2] == 4:
        return image_to_rgb(Image.fromarray(np.ascontiguousarray(values), "RGBA"))
    return np.ascontiguousarray(values)


def _eight_bits(values: np.ndarray) -> np.ndarray:
    """``v / 257`` rounded: 0 … 65535 onto 0 … 255."""
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _grey(values: np.ndarray) -> np.ndarray:
    return np.repeat(values[:, :, None], 3, axis=2)  # (H, W, 3)

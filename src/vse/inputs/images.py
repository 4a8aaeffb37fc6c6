"""Read an image from a file, bytes, PIL or an array as uint8 (H, W, 3) RGB, or fail with an error of one line."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import stat
import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
from PIL import Image, ImageFile

from vse._util.worker_process import FREE, memory_budget, reserve
from vse.errors import InputError
from vse.inputs.cost import LARGE, decoding_memory, opening_memory, too_many_scans
from vse.inputs.files import read_at_most

# Pillow warns about broken metadata of files that can be read; a terminal or a log is no place for that.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
logging.getLogger("PIL").addHandler(logging.NullHandler())

_ACCEPTED = "expected (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) of uint8, uint16, bool, or float in 0 … 1"


def image_to_rgb(image: Image.Image, extrema: tuple[float, float] | None = None) -> np.ndarray:
    """Return a PIL image of any mode as a new uint8 (H, W, 3); see :func:`_to_rgb`."""
    return np.array(_to_rgb(image, extrema))


def _to_rgb(image: Image.Image, extrema: tuple[float, float] | None = None) -> np.ndarray | Image.Image:
    """Return a PIL image of any mode as uint8 (H, W, 3), or as a decoded PIL image in mode RGB.

    Transparency, also of a palette or a single colour, is blended with white. 16-bit greys are divided by 257. Mode
    ``I`` holds 16 bits if a value is above 255, else 8; mode ``F`` holds 0 … 1 if no value is outside, else 0 … 255.
    Values outside are clipped, NaN is black. ``extrema`` are those of the whole image, if ``image`` is a part of it.
    """
    if image.mode.startswith("I;16"):
        return _grey(_eight_bits(np.asarray(image).astype(np.uint16)))
    if image.mode == "I":
        values = np.asarray(image)
        if (_extrema(values) if extrema is None else extrema)[1] > 255:
            return _grey(_eight_bits(values.clip(0, 65535).astype(np.uint16)))
        return _grey(values.clip(0, 255).astype(np.uint8))
    if image.mode == "F":
        values = np.nan_to_num(np.asarray(image), nan=0.0)
        low, high = _extrema(values) if extrema is None else extrema
        scale = 255 if low >= 0 and high <= 1 else 1
        return _grey((values * scale).clip(0, 255).round().astype(np.uint8))
    if image.mode in ("La", "LA", "PA", "RGBa", "RGBA") or "transparency" in image.info:
        image = image.convert("LA").convert("RGBA") if image.mode == "La" else image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
    if image.mode != "RGB":
        image = image.convert("RGB")
    image.load()  # decode here: numpy would hide some errors
    return image


def array_to_rgb(array: np.ndarray) -> np.ndarray:
    """Return an array of greys, RGB or RGBA as contiguous uint8 (H, W, 3), without a copy if it is one already."""
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


def _extrema(values: np.ndarray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _eight_bits(values: np.ndarray) -> np.ndarray:
    """Return ``v / 257`` rounded: 0 … 65535 to 0 … 255."""
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _grey(values: np.ndarray) -> np.ndarray:
    return np.repeat(values[:, :, None], 3, axis=2)  # (H, W, 3)


ImageSource: TypeAlias = "str | os.PathLike[str] | bytes | Image.Image | np.ndarray"

# Formats are detected by content, common ones first. Other formats of Pillow are excluded: EPS would run Ghostscript on
# an untrusted file, and TGA accepts any bytes. HEIF, RAW and JPEG XL come from other libraries.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF", "JPEG2000", "PPM", "ICO", "PSD", "QOI")
KNOWN_FORMATS = f"{', '.join(FORMATS)}, HEIF, camera RAW, JPEG XL"
_OPTIONAL_STARTS = (b"II", b"MM", b"FUJIFILMCCD-RAW", b"FOVb", b"\0MRM", b"\xff\x0a", b"\0\0\0\x0cJXL ")
_DRAFTED = ("JPEG", "MPO", "RAW")

_ORIENTATION_TAG = 0x0112
_UPRIGHT = {  # EXIF orientation → the operation that makes the stored image upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_QUARTER, _BACK = Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_270
_LYING = (5, 6, 7, 8)  # height and width are swapped


@dataclass(frozen=True)
class ImageLimits:
    """Limits of an image: ``max_bytes`` of its file, ``max_pixels`` of its header, ``max_seconds`` of decoding it.

    Pillow has its own limit for some formats, by default the same 178,956,970 pixels. The time is limited where an
    image is decoded in a worker process (:mod:`vse.inputs.decoding`).
    """

    max_bytes: int = 200_000_000
    max_pixels: int = 178_956_970
    max_seconds: float = 60.0


class BadImageError(InputError):
    """An image that cannot be used: ``name`` says which, ``reason`` why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: not an image that can be read ({reason})")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[BadImageError], tuple[str, str]]:
        """Support pickling between worker processes."""
        return type(self), (self.name, self.reason)


def read_image(
    source: ImageSource, *, limits: ImageLimits | None = None, at_least: tuple[int, int] | None = None
) -> np.ndarray:
    """Read an image as uint8 (H, W, 3) RGB, upright.

    The EXIF orientation is applied, transparency is blended with white, and the first frame of an animation or document
    is used.

    Args:
        source: A path, the bytes of a file, a PIL image or an array. A uint8 RGB array is returned without a copy.
        at_least: Size (h, w) that the result must have: a JPEG may be decoded at 1/2, 1/4 or 1/8 scale if it stays that
            large, which is several times faster.

    Raises:
        BadImageError: For any invalid, truncated or malicious file, whatever the decoder raised.
    """
    return cast("np.ndarray", read_rgb(source, limits or ImageLimits(), at_least, as_array=True))


def read_rgb(
    source: ImageSource, limits: ImageLimits, at_least: tuple[int, int] | None, *, as_array: bool = False
) -> np.ndarray | Image.Image:
    """Return what :func:`read_image` does, without ``as_array`` as a PIL image where that saves a copy."""
    if at_least is not None and min(at_least) < 1:
        raise InputError(f"at_least must be a height and a width of at least 1, got {at_least}")
    if isinstance(source, np.ndarray):
        try:
            return array_to_rgb(source)
        except InputError as error:
            raise BadImageError("array", str(error)) from None
    if isinstance(source, Image.Image):
        name = printable_name(str(getattr(source, "filename", "") or "PIL image"))
        return _decode(source, b"", name, limits, None, as_array)
    if isinstance(source, bytes):
        name = f"image of {len(source):,} bytes"
        data = source
    elif isinstance(source, (str, os.PathLike)):
        name = printable_name(os.fspath(source))
        data = file_content(Path(source), name, limits)
    else:
        raise BadImageError(type(source).__name__, "expected a path, bytes, a PIL image or a numpy array")
    with _opened(data, name, limits) as image:
        return _decode(image, data, name, limits, at_least, as_array)


def check_image(content: bytes, name: str, limits: ImageLimits) -> int:
    """Return the number of pixels from the header; raise :class:`BadImageError` if invalid or beyond the limits."""
    with _opened(content, name, limits) as image:
        _check_size(image, name, limits)
        return image.width * image.height


def _opened(data: bytes, name: str, limits: ImageLimits) -> ImageFile.ImageFile:
    """Return the opened image; only its header was read."""
    if not data:
        raise BadImageError(name, "empty")
    if len(data) > limits.max_bytes:
        raise BadImageError(name, _too_large(len(data), limits))
    refused = too_many_scans(data)
    if refused is not None:
        raise BadImageError(name, refused)
    reserve(memory_budget() if len(data) > FREE // 3 else opening_memory(data))  # one large file at a time
    try:
        image = identify(io.BytesIO(data))
    except Exception as error:  # a decoder may raise anything on hostile bytes
        raise BadImageError(name, _reason(error)) from error
    if image is None:
        raise BadImageError(name, f"no known format; known are {KNOWN_FORMATS}")
    return image


def file_content(path: Path, name: str, limits: ImageLimits) -> bytes:
    """Return the bytes of a regular file within the limit, so that lazy decoding keeps no file open."""
    try:
        found = path.stat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= limits.max_bytes:
            # A pipe may have taken its place: opening one would block.
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
            with os.fdopen(descriptor, "rb") as file:
                found = os.fstat(descriptor)
                if stat.S_ISREG(found.st_mode) and found.st_size <= limits.max_bytes:
                    return read_at_most(file, limits.max_bytes + 1)
    except FileNotFoundError:
        raise BadImageError(name, "no such file") from None
    except PermissionError:
        raise BadImageError(name, "no permission to read it") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise BadImageError(name, _reason(error)) from error
    if stat.S_ISDIR(found.st_mode):
        raise BadImageError(name, "a folder")
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would block, and a device never ends
        raise BadImageError(name, "not a regular file")
    raise BadImageError(name, _too_large(found.st_size, limits))


def identify(stream: io.BytesIO) -> ImageFile.ImageFile | None:
    """Return the opened but not yet decoded image, None if no format fits.

    ``Image.open`` would warn about large images, and warning filters are not thread-safe; our limit is checked on the
    header instead.
    """
    prefix = stream.read(16)
    broken = None
    if prefix.startswith(_OPTIONAL_STARTS) or prefix[4:12] == b"ftypcrx ":  # before TIFF, which would find a thumbnail
        from vse.inputs.optional_formats import open_optional

        found = open_optional(stream, prefix)
        if found is not None:
            return found
    Image.preinit()
    for name in FORMATS:
        if name not in Image.OPEN:
            Image.init()  # slow, and not needed for the most common formats
        factory, accept = Image.OPEN.get(name, (None, None))
        verdict = accept(prefix) if factory is not None and accept is not None else False
        if factory is None or not verdict or isinstance(verdict, str):  # a message: Pillow lacks support for it
            continue
        stream.seek(0)
        try:
            return factory(stream, "")
        except (SyntaxError, IndexError, TypeError, struct.error):  # raised by plugins that cannot read it
            broken = name
    if broken is None and prefix[4:8] == b"ftyp":
        return _identify_heif(stream)
    if broken is not None:
        raise OSError(f"broken {broken}")
    return None


def _identify_heif(stream: io.BytesIO) -> ImageFile.ImageFile | None:
    """Identify HEIC and HEIF; AVIF too where Pillow lacks it and the library supports it."""
    import pillow_heif

    for name in ("HeifImageFile", "AvifImageFile"):
        opener = getattr(pillow_heif, name, None)
        if opener is not None:
            stream.seek(0)
            with contextlib.suppress(SyntaxError):
                return opener(stream)
    return None


def _check_size(image: Image.Image, name: str, limits: ImageLimits) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise BadImageError(name, f"{width} x {height} pixels")
    if width * height > limits.max_pixels:
        raise BadImageError(
            name, f"{width} x {height} pixels, at most {limits.max_pixels:,}: raise max_pixels if you trust it"
        )


def _decode(
    image: Image.Image, data: bytes, name: str, limits: ImageLimits, at_least: tuple[int, int] | None, as_array: bool
) -> np.ndarray | Image.Image:
    _check_size(image, name, limits)
    try:
        factor = _plan(image, data, at_least) if data else 1
        image.load()
        # Read it after decoding: some formats store it at the end, and Pillow has already applied it for TIFF.
        upright = _UPRIGHT.get(_orientation(image))
        if image.width * image.height <= LARGE:
            found = _to_rgb(image if upright is None else image.transpose(upright))
            return np.array(found) if as_array and isinstance(found, Image.Image) else found
        pixels = _in_strips(image, factor)
        if factor > 1 and upright is not None:
            return np.array(Image.fromarray(pixels).transpose(upright))
        return pixels if upright is None else _turned(pixels, upright)
    except Exception as error:  # as above
        raise BadImageError(name, _reason(error)) from error


def reserve_memory(image: Image.Image, data: bytes) -> None:
    """Reserve what decoding the whole image takes, for metadata that only decoding finds."""
    likely, _ = decoding_memory(image, data, image.size, 1, turned=True)
    reserve(likely)


def _plan(image: Image.Image, data: bytes, at_least: tuple[int, int] | None) -> int:
    """Choose the scale, reserve the memory, and return how often a large image is reduced after decoding."""
    full, factor, orientation = image.size, 1, 0
    if image.format in _DRAFTED:  # other formats may have to be decoded to know it
        orientation = _orientation(image)
        if at_least is not None:
            at_least = at_least[::-1] if orientation in _LYING else at_least
            image.draft(None, at_least[::-1])  # takes (width, height) of the stored image
    elif at_least is not None:
        at_least = (max(at_least), max(at_least))
    if at_least is not None and image.width * image.height > LARGE:
        factor = max(1, min(image.height // at_least[0], image.width // at_least[1]))
    turned = orientation in _UPRIGHT or image.format not in _DRAFTED
    reserve(*decoding_memory(image, data, full, factor, turned))
    return factor


def _in_strips(image: Image.Image, factor: int) -> np.ndarray:
    """Return the image as uint8 (H, W, 3), reduced ``factor`` times, without a second copy of its full size."""
    width, height = image.size
    rows = max(1, LARGE // 8 // width // factor) * factor
    strips = [(0, top, width, min(top + rows, height)) for top in range(0, height, rows)]
    extrema = None
    if image.mode in ("I", "F"):
        found = [_extrema(np.nan_to_num(np.asarray(image.crop(strip)), nan=0.0)) for strip in strips]
        extrema = min(low for low, _ in found), max(high for _, high in found)
    result = np.empty((math.ceil(height / factor), math.ceil(width / factor), 3), np.uint8)
    for strip in strips:
        pixels = image_to_rgb(image.crop(strip), extrema)
        if factor > 1:
            pixels = np.asarray(Image.fromarray(pixels).reduce(factor))
        result[strip[1] // factor :][: len(pixels)] = pixels
    return result


def _turned(pixels: np.ndarray, how: Image.Transpose) -> np.ndarray:
    """Return large pixels turned as :meth:`PIL.Image.Image.transpose` turns them, with one copy."""
    transpose = how in (Image.Transpose.TRANSPOSE, Image.Transpose.TRANSVERSE, _QUARTER, _BACK)
    flip = how in (Image.Transpose.FLIP_TOP_BOTTOM, Image.Transpose.ROTATE_180, Image.Transpose.TRANSVERSE, _QUARTER)
    mirror = how in (Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_180, Image.Transpose.TRANSVERSE, _BACK)
    view = pixels.transpose(1, 0, 2) if transpose else pixels
    view = view[::-1] if flip else view
    return np.ascontiguousarray(view[:, ::-1] if mirror else view)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # noqa: BLE001 - an image with broken EXIF is still usable
        return 1


def _too_large(size: int, limits: ImageLimits) -> str:
    return f"{size:,} bytes, at most {limits.max_bytes:,}: raise max_bytes if you trust it"


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError) or str(error) == "decoder error -9":  # Pillow's number for it
        return "not enough memory"
    text = " ".join(str(getattr(error, "strerror", None) or error).split())
    if "truncated" in text.lower():
        return "truncated"
    return text or type(error).__name__


def printable_name(name: str) -> str:
    """Return the name as it appears in messages."""
    return name if name.isprintable() else ascii(name)

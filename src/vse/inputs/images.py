"""Reading an image: whatever the user has becomes uint8 (H, W, 3) RGB, or an error of one line."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageFile

from vse.errors import InputError
from vse.inputs.colours import array_to_rgb, image_to_rgb

ImageSource: TypeAlias = "str | os.PathLike[str] | bytes | Image.Image | np.ndarray"

# Formats are tried by their content, the common ones first. Others that Pillow knows stay out: EPS would start a
# Ghostscript process on a stranger's file, and TGA takes any bytes for its own. HEIF follows, from another library.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF", "JPEG2000", "PPM", "ICO")

_ORIENTATION_TAG = 0x0112
_UPRIGHT = {  # the orientation of EXIF: what brings the stored picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_LYING = (5, 6, 7, 8)  # height and width are exchanged


@dataclass(frozen=True)
class ImageLimits:
    """What is refused before it is decoded: ``max_bytes`` of a file, ``max_pixels`` that its header announces.

    Pillow has a limit of its own for some formats, by default the same 178,956,970 pixels.
    """

    max_bytes: int = 200_000_000
    max_pixels: int = 178_956_970


class BadImageError(InputError):
    """An image that cannot be used: ``name`` says which, ``reason`` why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: not an image that can be read ({reason})")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[BadImageError], tuple[str, str]]:
        """Let the error come back from a worker process; the default would hand over the message alone."""
        return type(self), (self.name, self.reason)


def read_image(
    source: ImageSource, *, limits: ImageLimits | None = None, at_least: tuple[int, int] | None = None
) -> np.ndarray:
    """The image as uint8 (H, W, 3) RGB, upright: a file, the bytes of one, a PIL image or an array.

    The EXIF orientation is applied, transparency is laid over white, and of an animation or a document the first frame
    is taken; see ``vse.inputs.colours`` for modes and arrays. ``at_least`` (h, w) allows a JPEG to be decoded at a
    half, a quarter or an eighth of its scale as long as it stays that large, which is several times faster.

    Whatever is wrong raises :class:`BadImageError`: a truncated or hostile file too, with any exception that the
    decoder chose. A uint8 RGB array is returned as it is, not copied.
    """
    limits = limits or ImageLimits()
    if at_least is not None and min(at_least) < 1:
        raise InputError(f"at_least must be a height and a width of at least 1, got {at_least}")
    if isinstance(source, np.ndarray):
        try:
            return array_to_rgb(source)
        except InputError as error:
            raise BadImageError("array", str(error)) from None
    if isinstance(source, Image.Image):
        name = _printable(str(getattr(source, "filename", "") or "PIL image"))
        return _decode(source, name, limits, None)
    if isinstance(source, bytes):
        name = f"image of {len(source):,} bytes"
        data = source
    elif isinstance(source, (str, os.PathLike)):
        name = _printable(os.fspath(source))
        data = file_content(Path(source), name, limits)
    else:
        raise BadImageError(type(source).__name__, "expected a path, bytes, a PIL image or a numpy array")
    with _opened(data, name, limits) as image:
        return _decode(image, name, limits, at_least)


def check_image(content: bytes, name: str, limits: ImageLimits) -> int:
    """Refuse what is no image, and one beyond the limits, by its header: nothing is decoded. Returns its pixels."""
    with _opened(content, name, limits) as image:
        _check_size(image, name, limits)
        return image.width * image.height


def _opened(data: bytes, name: str, limits: ImageLimits) -> ImageFile.ImageFile:
    """The image, of which only the header was read."""
    if not data:
        raise BadImageError(name, "empty")
    if len(data) > limits.max_bytes:
        raise BadImageError(name, _too_large(len(data), limits))
    try:
        image = identify(io.BytesIO(data))
    except Exception as error:  # a decoder may raise anything on hostile bytes
        raise BadImageError(name, _reason(error)) from error
    if image is None:
        raise BadImageError(name, f"no known format; known are {', '.join(FORMATS)}, HEIF")
    return image


def file_content(path: Path, name: str, limits: ImageLimits) -> bytes:
    """The bytes of a regular file within the limit. Reading all at once leaves no open file behind a lazy decoder."""
    try:
        found = path.stat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= limits.max_bytes:
            with path.open("rb") as file:
                return file.read(limits.max_bytes + 1)  # it may have grown since
    except FileNotFoundError:
        raise BadImageError(name, "no such file") from None
    except PermissionError:
        raise BadImageError(name, "no permission to read it") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise BadImageError(name, _reason(error)) from error
    if stat.S_ISDIR(found.st_mode):
        raise BadImageError(name, "a folder")
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for its writer, a device never ends
        raise BadImageError(name, "not a regular file")
    raise BadImageError(name, _too_large(found.st_size, limits))


def identify(stream: io.BytesIO) -> ImageFile.ImageFile | None:
    """The opened but not yet decoded image, or None if no format fits.

    ``Image.open`` would do, but it warns about large images, and filters for warnings are not safe between threads; our
    limit is checked on the header instead.
    """
    prefix = stream.read(16)
    broken = None
    Image.preinit()
    for name in FORMATS:
        if name not in Image.OPEN:
            Image.init()  # slow, and not needed for the most common formats
        factory, accept = Image.OPEN.get(name, (None, None))
        verdict = accept(prefix) if factory is not None and accept is not None else False
        if factory is None or not verdict or isinstance(verdict, str):  # a text: known, but Pillow was built without it
            continue
        stream.seek(0)
        try:
            return factory(stream, "")
        except (SyntaxError, IndexError, TypeError, struct.error):  # how a plugin says that it cannot read this
            broken = name
    if broken is None and prefix[4:8] == b"ftyp":
        return _identify_heif(stream)
    if broken is not None:
        raise OSError(f"broken {broken}")
    return None


def _identify_heif(stream: io.BytesIO) -> ImageFile.ImageFile | None:
    """HEIC and HEIF; AVIF too for a Pillow that lacks it, if this version of the library has it."""
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


def _decode(image: Image.Image, name: str, limits: ImageLimits, at_least: tuple[int, int] | None) -> np.ndarray:
    _check_size(image, name, limits)
    try:
        if at_least is not None and image.format in ("JPEG", "MPO"):
            lying = _orientation(image) in _LYING
            image.draft(None, at_least if lying else at_least[::-1])  # takes (width, height) of the stored picture
        image.load()
        # Asked again after decoding: some formats keep it at the end, and TIFF is upright by then.
        upright = _UPRIGHT.get(_orientation(image))
        return image_to_rgb(image if upright is None else image.transpose(upright))
    except Exception as error:  # as above
        raise BadImageError(name, _reason(error)) from error


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # noqa: BLE001 - broken notes about a picture are no reason to refuse the picture
        return 1


def _too_large(size: int, limits: ImageLimits) -> str:
    return f"{size:,} bytes, at most {limits.max_bytes:,}: raise max_bytes if you trust it"


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory"
    text = " ".join(str(getattr(error, "strerror", None) or error).split())
    if "truncated" in text.lower():
        return "truncated"
    return text or type(error).__name__


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)

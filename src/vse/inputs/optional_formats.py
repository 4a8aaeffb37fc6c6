"""Image formats of optional libraries: camera RAW (rawpy) and JPEG XL (pillow-jxl-plugin).

Both are recognised by content and opened lazily, like Pillow's own formats: the header gives the size, so limits are
checked before anything is decoded. A missing library is a :class:`~vse.errors.MissingDependencyError`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import numpy as np
from PIL import Image, ImageFile

from vse.errors import require
from vse.inputs.cost import too_many_embedded_scans, too_many_scans

_RAW_STARTS = (  # Olympus, Panasonic, Fujifilm, Sigma, Minolta
    b"IIRO", b"IIRS", b"MMOR", b"IIU\0", b"FUJIFILMCCD-RAW", b"FOVb", b"\0MRM",
)  # fmt: skip
_TIFF_STARTS = (b"II*\0", b"MM\0*")
_JXL_STARTS = (b"\xff\x0a", b"\0\0\0\x0cJXL \r\n\x87\n")
_PHOTOMETRIC, _SUB_IFDS, _DNG_VERSION, _ORIENTATION, _DATE = 0x0106, 0x014A, 0xC612, 0x0112, 0x0132
_SENSOR_DATA = (32803, 34892)  # photometric interpretations: a colour filter array, and linear RAW
_MOST_DIRECTORIES, _MOST_ENTRIES = 32, 1000
_UPRIGHT = {3: Image.Transpose.ROTATE_180, 5: Image.Transpose.ROTATE_90, 6: Image.Transpose.ROTATE_270}
"""LibRaw's ``flip`` → the operation that makes the stored image upright."""
_FULL = 0.9
"""Share of the sensor's width and height from which an embedded preview stands for the whole image."""


def open_optional(stream: io.BytesIO, prefix: bytes) -> ImageFile.ImageFile | None:
    """Return a RAW or JPEG XL image, opened but not decoded; None for other content.

    Args:
        stream: The whole file.
        prefix: Its first 16 bytes.

    Raises:
        MissingDependencyError: The library that reads this format is not installed.
    """
    if prefix.startswith(_JXL_STARTS):
        require("pillow_jxl", "jxl", "JPEG XL")
        stream.seek(0)
        return JxlImage(stream, "")
    with stream.getbuffer() as data:
        raw = is_raw(data, prefix)
    if raw:
        stream.seek(0)
        require("rawpy", "raw", "a camera RAW file")
        return RawImage(stream, "")
    return None


def is_raw(data: memoryview, prefix: bytes) -> bool:
    """Return whether a file holds sensor data: by its signature, or by the tags of its TIFF directories."""
    if prefix.startswith(_RAW_STARTS) or prefix[4:12] == b"ftypcrx ":
        return True
    if not prefix.startswith(_TIFF_STARTS):
        return False
    if prefix[8:10] == b"CR":  # Canon's CR2
        return True
    with suppress(struct.error):  # a truncated file
        return any(
            tag == _DNG_VERSION or (tag == _PHOTOMETRIC and value in _SENSOR_DATA) for tag, value in _tiff_tags(data)
        )
    return False


def _tiff_tags(data: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the tags of all directories of a TIFF file with their first value; later ones only if they are small."""
    order = "<" if bytes(data[:2]) == b"II" else ">"
    waiting, seen = [struct.unpack_from(f"{order}I", data, 4)[0]], set[int]()
    while waiting and len(seen) < _MOST_DIRECTORIES:
        place = waiting.pop(0)
        if place in seen or not 8 <= place < len(data):
            continue
        seen.add(place)
        (count,) = struct.unpack_from(f"{order}H", data, place)
        for entry in range(place + 2, place + 2 + 12 * min(count, _MOST_ENTRIES), 12):
            tag, kind, values = struct.unpack_from(f"{order}HHI", data, entry)
            (value,) = struct.unpack_from(f"{order}H" if kind == 3 else f"{order}I", data, entry + 8)
            yield tag, value
            if tag == _SUB_IFDS:
                several = range(min(values, _MOST_DIRECTORIES)) if values > 1 else ()
                waiting += [struct.unpack_from(f"{order}I", data, value + 4 * each)[0] for each in several] or [value]
        waiting.append(struct.unpack_from(f"{order}I", data, place + 2 + 12 * count)[0])


class _Lazy(ImageFile.ImageFile):
    """An image whose pixels another library decodes on ``load``; its size is upright, its EXIF has no orientation."""

    _content: bytes = b""
    _decoded = False

    def _decode(self) -> Image.Image:
        raise NotImplementedError

    def _read_exif(self) -> Image.Exif:
        raise NotImplementedError

    def load(self) -> Any:
        if not self._decoded:
            self._decoded = True
            image = self._decode()
            self._mode, self._size, self.tile = image.mode, image.size, []
            self.info.update({key: value for key, value in image.info.items() if key == "transparency"})
            self.im = image.im
        return Image.Image.load(self)

    def getexif(self) -> Image.Exif:
        exif = self._read_exif()
        exif.pop(_ORIENTATION, None)
        return exif


class RawImage(_Lazy):
    """A camera RAW file.

    The preview that the camera embedded is used where it is about as large as the sensor, or as large as
    :meth:`draft` asks for: it is what the camera showed, and many times faster than developing the sensor data.
    """

    format = "RAW"
    format_description = "camera RAW"

    def _open(self) -> None:
        import rawpy

        self._content = self.fp.read() if self.fp is not None else b""
        refused = too_many_embedded_scans(self._content)
        if refused is not None:
            raise OSError(f"a JPEG in it has {refused}")
        self._at_least: tuple[int, int] | None = None
        try:
            with rawpy.imread(io.BytesIO(self._content)) as raw:
                sizes = raw.sizes
                self._taken = getattr(getattr(raw, "other", None), "timestamp", None)  # local time
        except rawpy.LibRawError as error:
            raise OSError(f"LibRaw: {_words(error)}") from None
        self._flip = int(sizes.flip)
        self._stored = int(sizes.width), int(sizes.height)
        self._size = self._stored[::-1] if self._flip in (5, 6) else self._stored
        self._mode = "RGB"

    def draft(self, mode: str | None, size: tuple[int, int] | None) -> None:
        """Allow a result that is smaller, but covers ``size``, given as (width, height)."""
        self._at_least = size

    def _decode(self) -> Image.Image:
        import rawpy

        try:
            with rawpy.imread(io.BytesIO(self._content)) as raw:
                preview = self._preview(raw)
                if preview is not None:
                    return preview
                wanted = self._at_least
                half = wanted is not None and all(
                    side // 2 >= least for side, least in zip(self._size, wanted, strict=True)
                )
                pixels = raw.postprocess(use_camera_wb=True, output_bps=8, half_size=half)  # upright (H, W, 3)
        except rawpy.LibRawError as error:
            raise OSError(f"LibRaw: {_words(error)}") from None
        return Image.fromarray(np.ascontiguousarray(pixels))

    def _preview(self, raw: Any) -> Image.Image | None:
        """Return the embedded preview, upright, if it is large enough."""
        import rawpy

        try:
            found = raw.extract_thumb()
        except rawpy.LibRawError:
            return None
        if found.format != rawpy.ThumbFormat.JPEG or too_many_scans(found.data) is not None:  # LibRaw mends its start
            return None
        with suppress(Exception):  # a broken preview: develop the sensor data instead
            image = Image.open(io.BytesIO(found.data), formats=["JPEG"])
            lying = self._flip in (5, 6)
            turned = lying and (image.width < image.height) != (self._stored[0] < self._stored[1])
            size = self._size if turned else self._stored
            least = self._at_least or (_FULL * self._size[0], _FULL * self._size[1])
            if lying and not turned:
                least = least[::-1]
            if image.width < least[0] or image.height < least[1] or image.width * image.height > 2 * size[0] * size[1]:
                return None
            if self._at_least is not None:
                image.draft(None, (int(least[0]), int(least[1])))
            image.load()
            upright = None if turned else _UPRIGHT.get(self._flip)
            return image.convert("RGB") if upright is None else image.convert("RGB").transpose(upright)
        return None

    def _read_exif(self) -> Image.Exif:
        """Return the EXIF of the file, or at least the time that LibRaw found."""
        content, exif = self._content, Image.Exif()
        with suppress(Exception):  # broken EXIF is no reason to reject an image
            if content.startswith(b"FUJIFILMCCD-RAW"):
                start, length = struct.unpack_from(">II", content, 84)
                exif = Image.open(io.BytesIO(content[start : start + length]), formats=["JPEG"]).getexif()
            elif content[:2] in (b"II", b"MM"):
                mark = b"II*\0" if content[:2] == b"II" else b"MM\0*"
                exif.load(b"Exif\0\0" + mark + content[4:])
        if not exif and isinstance(self._taken, datetime) and self._taken.year > 1970:
            exif[_DATE] = self._taken.strftime("%Y:%m:%d %H:%M:%S")
        return exif


class JxlImage(_Lazy):
    """A JPEG XL file. The plugin decodes on opening, so size and EXIF are read from the file here."""

    format = "JXL"
    format_description = "JPEG XL"

    def _open(self) -> None:
        self._content = self.fp.read() if self.fp is not None else b""
        try:
            self._size = _jxl_size(_codestream(self._content))
        except (struct.error, IndexError, ValueError):
            raise SyntaxError("a broken JPEG XL header") from None
        self._mode = "RGB"

    def _decode(self) -> Image.Image:
        from pillow_jxl.JpegXLImagePlugin import JXLImageFile

        image: Image.Image = JXLImageFile(io.BytesIO(self._content), "")
        image.load()
        return image

    def _read_exif(self) -> Image.Exif:
        exif = Image.Exif()
        with suppress(Exception):  # as above
            for kind, payload in _boxes(self._content):
                if kind == b"Exif":  # begins with the offset of the TIFF header, which some writers leave out
                    start = 0 if payload.startswith(_TIFF_STARTS) else 4 + struct.unpack(">I", payload[:4])[0]
                    exif.load(b"Exif\0\0" + payload[start:])
        return exif


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the boxes of a container (ISO/IEC 18181-2) by kind."""
    place = 0
    while place + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, place)
        header = 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, place + 8)
            header = 16
        end = len(data) if size == 0 else place + size
        if end < place + header:
            raise ValueError("a box shorter than its header")
        yield kind, data[place + header : end]
        place = end


def _codestream(data: bytes) -> bytes:
    if data.startswith(b"\xff\x0a"):
        return data
    for kind, payload in _boxes(data):
        if kind in (b"jxlc", b"jxlp"):
            return payload if kind == b"jxlc" else payload[4:]
    raise ValueError("no codestream")


_RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


def _jxl_size(stream: bytes) -> tuple[int, int]:
    """Return the upright width and height of a codestream (ISO/IEC 18181-1, SizeHeader and ImageMetadata)."""
    if stream[:2] != b"\xff\x0a":
        raise ValueError("no codestream")
    bits, place = int.from_bytes(stream[2:18], "little"), 0

    def take(count: int) -> int:
        nonlocal place
        place += count
        return (bits >> (place - count)) & ((1 << count) - 1)

    small = take(1)

    def side() -> int:
        return 8 * (1 + take(5)) if small else 1 + take((9, 13, 18, 30)[take(2)])

    height = side()
    ratio = take(3)
    width = side() if ratio == 0 else height * _RATIOS[ratio - 1][0] // _RATIOS[ratio - 1][1]
    everything_default = take(1)
    orientation = 1 + take(3) if not everything_default and take(1) else 1
    return (height, width) if orientation > 4 else (width, height)


def _words(error: Exception) -> str:
    """Return the message of a LibRaw error, which may be bytes."""
    first = error.args[0] if error.args else ""
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first or type(error).__name__)

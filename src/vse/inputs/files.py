"""Recognise image and video files, open them safely, and report what is wrong with one."""

from __future__ import annotations

import io
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from vse.errors import InputError
from vse.inputs.text import printable

MediaKind = Literal["image", "video"]

RAW_ENDINGS = frozenset(
    "3fr ari arw cr2 cr3 crw dcr dng erf fff iiq k25 kdc mef mos mrw nef nrw orf pef raf raw rw2 rwl sr2 "  # noqa: SIM905
    "srf srw x3f".split()
)
IMAGE_ENDINGS = RAW_ENDINGS | frozenset(
    "jpg jpeg jpe jfif mpo png apng webp gif tif tiff bmp dib heic heif hif avif jxl jp2 j2k jpf jpx "  # noqa: SIM905
    "ppm pgm pbm pnm psd qoi".split()
)
VIDEO_ENDINGS = frozenset(
    "mp4 m4v mov qt webm mkv avi 3gp 3g2 mts m2ts m2t mpg mpeg mpe vob wmv asf flv f4v ogv dv".split()  # noqa: SIM905
)

SNIFFED_BYTES = 16
READ_BYTES = 1 << 20
"""At a time, of a file whose size is not known."""

_IMAGE_STARTS = (
    b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*", b"\0\0\0\x0cJXL ",
    b"FUJIFILMCCD-RAW", b"IIRO", b"IIRS", b"IIU\0",
)  # fmt: skip
_IMAGE_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1", b"avif", b"avis", b"crx ")
_VIDEO_STARTS = (b"\x1aE\xdf\xa3", b"\0\0\1\xba", b"0&\xb2u\x8ef\xcf\x11", b"FLV\1")  # Matroska, MPEG, ASF, Flash
_VIDEO_BRANDS = (
    b"isom", b"iso2", b"iso4", b"iso5", b"iso6", b"mp41", b"mp42", b"avc1", b"M4V ", b"qt  ", b"MSNV",
    b"3gp4", b"3gp5", b"3gp6", b"3g2a", b"3g2b", b"3g2c",
)  # fmt: skip


def kind_of_name(name: str) -> MediaKind | None:
    """Return the kind of file that a name's suffix stands for, in upper or lower case."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    if ending in IMAGE_ENDINGS:
        return "image"
    return "video" if ending in VIDEO_ENDINGS else None


def worth_sniffing(name: str) -> bool:
    """Return whether to look at the first bytes: only for names without a suffix, since it opens the file."""
    return "." not in name


def kind_of_bytes(start: bytes) -> MediaKind | None:
    """Return the kind of file that starts with these :data:`SNIFFED_BYTES`; BMP's two bytes are too few."""
    if start.startswith(_IMAGE_STARTS) or (start[:4] == b"RIFF" and start[8:12] == b"WEBP"):
        return "image"
    if start.startswith(_VIDEO_STARTS) or (start[:4] == b"RIFF" and start[8:12] == b"AVI "):
        return "video"
    if start[4:8] == b"ftyp":
        if start[8:12] in _IMAGE_BRANDS:
            return "image"
        return "video" if start[8:12] in _VIDEO_BRANDS else None
    return None


@dataclass(frozen=True)
class Problem:
    """A file that cannot be used.

    ``path`` is relative to the root, or the name as given; ``reason`` says what is wrong. Both can be stored and sent
    as UTF-8. ``str(problem)`` is one printable line, whatever the name contains.
    """

    path: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", encodable(self.path))
        object.__setattr__(self, "reason", " ".join(encodable(self.reason).split()))

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.reason}"


class BadMediaError(InputError):
    """A file that cannot be used: ``name`` says which, ``reason`` why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{printable(encodable(name))}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[BadMediaError], tuple[str, str]]:
        """Support pickling between worker processes."""
        return type(self), (self.name, self.reason)


class TooSlowError(BadMediaError):
    """Decoding a video timed out: the file may be valid, and a retry may succeed."""


def is_text(name: str) -> bool:
    """Return whether a name is valid Unicode: other bytes appear as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def encodable(name: str) -> str:
    r"""Return the name, with an escape such as ``\udce9`` for each byte that is not UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def os_reason(error: OSError) -> str:
    """Return the reason of an operating system error, without the path."""
    return "no such file" if isinstance(error, FileNotFoundError) else error.strerror or type(error).__name__


def regular_size(path: str | Path) -> int:
    """Return the size of a regular file; a pipe would block and a device never ends."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        raise BadMediaError(str(path), "no such file") from None
    except OSError as error:
        raise BadMediaError(str(path), os_reason(error)) from error
    except ValueError:
        raise BadMediaError(str(path), "no such file: its name holds a null character") from None
    if not stat.S_ISREG(status.st_mode):
        raise BadMediaError(str(path), "not a regular file")
    return status.st_size


def open_regular(path: str | Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; anything else, such as a pipe that took its place, is an error at once.

    Args:
        path: The file.
        follow: Whether it may be a symlink.

    Raises:
        BadMediaError: It is not a regular file.
        OSError: It cannot be opened.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadMediaError(str(path), "not a regular file")
    return os.fdopen(descriptor, "rb")


def read_at_most(file: BinaryIO, limit: int) -> bytes:
    """Return up to ``limit`` bytes; the memory follows the file.

    ``file.read(limit)`` allocates as much as the limit at once, however small the file is.
    """
    size = 0
    with suppress(OSError, AttributeError):  # behind a URL
        size = os.fstat(file.fileno()).st_size
    content = file.read(min(limit, size + 1))
    if len(content) <= size:
        return content
    grown = io.BytesIO(content)
    grown.seek(0, io.SEEK_END)
    while grown.tell() < limit and (block := file.read(min(limit - grown.tell(), READ_BYTES))):
        grown.write(block)
    return grown.getvalue()

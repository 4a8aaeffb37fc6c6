"""Which files are pictures and clips: by the ending of the name, and where there is none by the first bytes."""

from __future__ import annotations

from typing import Literal

MediaKind = Literal["image", "video"]

IMAGE_ENDINGS = frozenset(
    "jpg jpeg jpe jfif png webp gif tif tiff bmp heic heif hif avif".split()  # noqa: SIM905 - a list is unreadable
)
VIDEO_ENDINGS = frozenset("mp4 m4v mov webm mkv avi".split())  # noqa: SIM905

SNIFFED_BYTES = 16

_IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")
_IMAGE_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1", b"avif", b"avis")
_VIDEO_BRANDS = (b"isom", b"iso2", b"iso4", b"iso5", b"iso6", b"mp41", b"mp42", b"avc1", b"M4V ", b"qt  ", b"MSNV")


def kind_of_name(name: str) -> MediaKind | None:
    """What the ending says; upper or lower case."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    if ending in IMAGE_ENDINGS:
        return "image"
    return "video" if ending in VIDEO_ENDINGS else None


def worth_sniffing(name: str) -> bool:
    """Whether the first bytes are asked: only where a name has no ending, since it means opening the file."""
    return "." not in name


def kind_of_bytes(start: bytes) -> MediaKind | None:
    """What the first :data:`SNIFFED_BYTES` say; the two bytes of BMP are too few to trust."""
    if start.startswith(_IMAGE_STARTS) or (start[:4] == b"RIFF" and start[8:12] == b"WEBP"):
        return "image"
    if start.startswith(b"\x1aE\xdf\xa3") or (start[:4] == b"RIFF" and start[8:12] == b"AVI "):
        return "video"
    if start[4:8] == b"ftyp":
        if start[8:12] in _IMAGE_BRANDS:
            return "image"
        return "video" if start[8:12] in _VIDEO_BRANDS else None
    return None

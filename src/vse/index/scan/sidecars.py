"""Files beside an image or video that belong to it: XMP and Google Takeout sidecars, and the video of a live photo.

``IMG_1.jpg.xmp`` and ``IMG_1.xmp`` (Lightroom, darktable and others) say more than the image, and what they say wins.
``IMG_1.jpg.json`` and ``IMG_1.jpg.supplemental-metadata.json`` (Google Takeout) fill in what it does not say.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from vse.index.scan.tags import MAX_TITLE, MAX_XMP, Tags, clean, description_of, merged, unique, xmp_tags
from vse.inputs.files import BadMediaError, kind_of_name, open_regular

ENDINGS = (".xmp", ".json")
MAX_JSON = 1_000_000
"""Bytes."""
LIVE_SECONDS = 4.0
"""A video beside an image of the same name belongs to it, as a live photo, if it is not longer."""
_LIVE_IMAGES, _LIVE_VIDEOS = ("heic", "heif", "jpg", "jpeg"), ("mov", "mp4")
_TAKEOUT = ".supplemental-metadata"
_NUMBERED = re.compile(r"(.*)(\(\d+\))(\.[^.]*)", re.DOTALL)
_MAX_ATOMS = 1000


class Beside:
    """The names in one folder that may belong to its images and videos."""

    def __init__(self) -> None:
        self._sidecars: dict[str, str] = {}  # by lower-case name
        self._images: set[str] = set()  # stems of images, in lower case

    def add(self, name: str) -> None:
        """Note the name of a sidecar or image."""
        lower = name.lower()
        if lower.endswith(ENDINGS):
            self._sidecars[lower] = name
        elif lower.rpartition(".")[2] in _LIVE_IMAGES:
            self._images.add(lower.rpartition(".")[0])

    def sidecars(self, name: str) -> tuple[str, ...]:
        """Return the names of the sidecars of a file, in order of precedence."""
        if not self._sidecars:
            return ()
        lower = name.lower()
        wanted = (f"{lower}.xmp", f"{lower.rpartition('.')[0]}.xmp", *_takeout_names(lower))
        return tuple(self._sidecars[each] for each in dict.fromkeys(wanted) if each in self._sidecars)

    def has_image_for(self, name: str) -> bool:
        """Return whether a video has the name of an image, so that both may be a live photo."""
        stem, _, ending = name.lower().rpartition(".")
        return ending in _LIVE_VIDEOS and stem in self._images


def _takeout_names(name: str) -> Iterator[str]:
    """Yield the names that Takeout may give: it cuts long ones, and moves the number of "a(1).jpg" to the end."""
    match = _NUMBERED.fullmatch(name)
    for plain, number in ((name, ""), *(((match[1] + match[3], match[2]),) if match else ())):
        yield f"{plain}{number}.json"
        for end in range(len(_TAKEOUT), 0, -1):
            yield f"{plain}{_TAKEOUT[:end]}{number}.json"
    if len(name) > 46:
        yield f"{name[:46]}.json"


def sidecar_state(folder: str, names: tuple[str, ...]) -> int:
    """Return a number of 48 bits that changes with the names, sizes and times of sidecars; 0 without any."""
    states = []
    for name in names:
        try:
            status = os.stat(f"{folder}/{name}", follow_symlinks=False)  # noqa: PTH116 - for every file of a walk
        except OSError:
            continue
        states.append(f"{name}\0{status.st_size}\0{status.st_mtime_ns}")
    if not states:
        return 0
    return int.from_bytes(blake2b("\0".join(states).encode("utf-8", "surrogateescape"), digest_size=6).digest()) or 1


def with_sidecars(embedded: Tags, path: Path, names: tuple[str, ...]) -> Tags:
    """Return the metadata of a file together with that of its sidecars; unusable ones are ignored.

    Args:
        embedded: What the file itself says.
        path: The file.
        names: Its sidecars, in the same folder.
    """
    written, takeout = [], []
    for name in names:
        if name.lower().endswith(".xmp"):
            written.append(xmp_tags(_content(path.parent / name, MAX_XMP)))
        else:
            takeout.append(takeout_tags(_content(path.parent / name, MAX_JSON), path.name))
    return merged((*written, embedded, *takeout)) if names else embedded


def takeout_tags(content: bytes, name: str) -> Tags:
    """Read a JSON file of Google Takeout, beside the image ``name``."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return Tags()
    if not isinstance(found, dict):
        return Tags()
    title = clean(found.get("title"), MAX_TITLE)
    if title is not None and kind_of_name(title) is not None:  # usually the name of the file
        stem = title.rpartition(".")[0]
        title = None if name.lower().startswith(stem.lower()) else stem
    people = found.get("people")
    people = people if isinstance(people, list) else []
    latitude, longitude = _coordinates(found.get("geoData")) or _coordinates(found.get("geoDataExif")) or (None, None)
    return Tags(
        taken=_timestamp(found.get("photoTakenTime")),
        latitude=latitude,
        longitude=longitude,
        title=title,
        description=description_of(found.get("description")),
        keywords=unique(each.get("name") for each in people if isinstance(each, dict)),
    )


def _timestamp(value: Any) -> float | None:
    text = str(value.get("timestamp", ""))[:20] if isinstance(value, dict) else ""
    return float(text) if re.fullmatch(r"-?[0-9]{1,12}", text) and text != "0" else None


def _coordinates(value: Any) -> tuple[float, float] | None:
    """Return latitude and longitude; Takeout writes (0, 0) where there are none."""
    if not isinstance(value, dict):
        return None
    found = []
    for name, largest in (("latitude", 90), ("longitude", 180)):
        number = value.get(name)
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= largest:
            return None
        found.append(float(number))
    return (found[0], found[1]) if any(found) else None


def _content(path: Path, limit: int) -> bytes:
    """Return the bytes of a regular file, empty if it is too large or unreadable."""
    try:
        with open_regular(path, follow=False) as file:
            content = file.read(limit + 1) if os.fstat(file.fileno()).st_size <= limit else b""
    except (OSError, ValueError, BadMediaError):
        return b""
    return content if len(content) <= limit else b""


def is_live_video(path: str | Path) -> bool:
    """Return whether a QuickTime or MP4 file is short enough for a live photo, by its header alone."""
    try:
        with open_regular(path) as file:
            seconds = _movie_seconds(file)
    except (OSError, ValueError, BadMediaError):
        return False
    return seconds is not None and 0 < seconds <= LIVE_SECONDS


def _movie_seconds(file: BinaryIO) -> float | None:
    """Return the duration from the movie header, which is inside the movie, which is one of the outermost atoms."""
    at, end = 0, file.seek(0, os.SEEK_END)
    for _ in range(_MAX_ATOMS):
        file.seek(at)
        head = file.read(16)
        if len(head) < 8:
            return None
        size, kind, start = int.from_bytes(head[:4]), head[4:8], 8
        if size == 1:  # 64 bits follow
            size, start = int.from_bytes(head[8:16]), 16
        size = size or end - at
        if kind == b"moov":
            at += start
        elif kind == b"mvhd":
            file.seek(at + start)
            body = file.read(32)
            wide = body[:1] == b"\1"
            scale, length = (body[20:24], body[24:32]) if wide else (body[12:16], body[16:20])
            return int.from_bytes(length) / int.from_bytes(scale) if any(scale) else None
        elif size < start:
            return None
        else:
            at += size
    return None

"""Images inside larger files, by number: WebDataset tars, Parquet files and the Arrow files of ``datasets``.

The files may come from anywhere. Nothing is unpickled; names and sizes are checked before content is read.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from vse.errors import InputError, first_line
from vse.inputs.files import encodable, kind_of_name, open_regular, os_reason

Opener = Callable[[], BinaryIO]
"""Opens a file for random access; called once in each process."""

Member = tuple[str, str, int, int]
"""A file in a tar: key of the sample, ending, offset and size."""

TAR, PARQUET, ARROW = ".tar", ".parquet", ".arrow"
ENDINGS = (TAR, PARQUET, ARROW)
MAX_NAME = 4096
MAX_HEADER = 1_000_000
"""Bytes of one header of a tar, with its extended attributes."""
MAX_SIDE_BYTES = 1_000_000
"""Bytes of the text or JSON beside an image in a tar."""
MAX_MEMBERS = 10_000_000
CAPTION_NAMES = ("txt", "caption", "text")
"""Endings of the member of a tar that holds the caption."""


class BadFieldsError(InputError):
    """What stands beside an image cannot be used: ``name`` says where, ``reason`` why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[BadFieldsError], tuple[str, str]]:
        return type(self), (self.name, self.reason)


def bad_image(name: str, reason: str) -> InputError:
    """Return the error of an image that cannot be used; made here so that datasets open without Pillow."""
    from vse.inputs.images import BadImageError

    return BadImageError(name, reason)


class Packed(Protocol):
    """A file with numbered images, their names and what else is known of each."""

    def __len__(self) -> int: ...

    def key(self, number: int) -> str:
        """Return the name of an image, unique in its file."""

    def image(self, number: int) -> bytes | str:
        """Return the content of an image, or its path or URL; raise BadImageError if there is none."""

    def fields(self, number: int) -> dict[str, Any]:
        """Return what else the file says about an image; raise BadFieldsError if that cannot be used."""


def open_packed(name: str, opener: Opener) -> Packed:
    """Index a file by the ending of its name.

    Raises:
        InputError: It is damaged, too large for its limits, or of another kind.
    """
    ending = os.path.splitext(name)[1].lower()  # noqa: PTH122 - also the path of a URL
    if ending not in ENDINGS:
        raise InputError(f"{name} ends in {ending!r}: expected {', '.join(ENDINGS)}")
    if ending == TAR:
        return TarImages(name, opener)
    from vse.data.packed_tables import TableImages  # with pyarrow

    return TableImages(name, opener, arrow=ending == ARROW)


class OpenFile:
    """The open file of a process; threads take turns, and a copy in another process opens its own."""

    def __init__(self, name: str, opener: Opener) -> None:
        self.name = name
        self._opener = opener
        self._file: BinaryIO | None = None
        self.lock = threading.RLock()

    def file(self) -> BinaryIO:
        if self._file is None:
            self._file = self._opener()
        return self._file

    def read(self, offset: int, size: int) -> bytes:
        with self.lock:
            file = self.file()
            file.seek(offset)
            content = file.read(size)
        if len(content) != size:
            raise InputError(f"{self.name} ends at byte {offset + len(content):,} of {offset + size:,}: truncated")
        return content

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self._opener)


class ThreadFiles(OpenFile):
    """An open file for each thread, which do not wait for each other: a store answers many reads at a time."""

    def __init__(self, name: str, opener: Opener) -> None:
        super().__init__(name, opener)
        self._of_thread = threading.local()

    def read(self, offset: int, size: int) -> bytes:
        if not hasattr(self._of_thread, "file"):
            self._of_thread.file = OpenFile(self.name, self._opener)  # closed with the thread
        content: bytes = self._of_thread.file.read(offset, size)
        return content


class _BoundedReads:
    """A file that refuses to return more than :data:`MAX_HEADER` bytes at once: a header declares its own size."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_HEADER:
            raise InputError(f"{self._name}: a header of {size:,} bytes, at most {MAX_HEADER:,}")
        return self._file.read(size)


@dataclass
class _Sample:
    key: str
    members: dict[str, tuple[int, int]]
    """Ending → offset and size."""

    def image(self) -> tuple[str, tuple[int, int]] | None:
        found = [(ending.count("."), ending) for ending in self.members if kind_of_name(f"x.{ending}") == "image"]
        return None if not found else (min(found)[1], self.members[min(found)[1]])


class TarImages:
    """A WebDataset tar: consecutive members whose names differ after the first dot are one sample.

    Only the headers are read here; compressed tars have no offsets and are refused.

    Args:
        name: What messages call it.
        opener: Opens it.
        members: What :func:`tar_members` returned for it, if it was called before.
        sides: Opens it for reading members that are small, in each thread; by default they are read as images are.
    """

    def __init__(
        self, name: str, opener: Opener, members: Sequence[Member] | None = None, sides: Opener | None = None
    ) -> None:
        self.name = name
        self._opened = OpenFile(name, opener)
        self._sides = self._opened if sides is None else ThreadFiles(name, sides)
        self._samples: list[_Sample] = []
        for key, ending, offset, size in tar_members(name, sides or opener) if members is None else members:
            if not self._samples or self._samples[-1].key != key:
                self._samples.append(_Sample(key, {}))
            self._samples[-1].members[ending] = offset, size

    def __len__(self) -> int:
        return len(self._samples)

    def key(self, number: int) -> str:
        return self._samples[number].key

    def image(self, number: int) -> bytes:
        sample = self._samples[number]
        found = sample.image()
        if found is None:
            raise bad_image(f"{self.name}/{sample.key}", f"no image among {', '.join(sample.members)}")
        ending, (offset, size) = found
        from vse.inputs.images import ImageLimits

        limit = ImageLimits().max_bytes
        if size > limit:
            raise bad_image(f"{self.name}/{sample.key}.{ending}", f"{size:,} bytes, at most {limit:,}")
        return self._opened.read(offset, size)

    def fields(self, number: int) -> dict[str, Any]:
        sample = self._samples[number]
        found: dict[str, Any] = {}
        for ending in sample.members:
            if ending == "json":
                found |= _json_object(*self._side(sample, ending))
        for ending in CAPTION_NAMES:
            if ending in sample.members:
                found["caption"] = _text(*self._side(sample, ending))
                break
        return found

    def _side(self, sample: _Sample, ending: str) -> tuple[bytes, str]:
        """Return the content of a text or JSON, and what messages call it."""
        (offset, size), member = sample.members[ending], f"{self.name}/{sample.key}.{ending}"
        if size > MAX_SIDE_BYTES:
            raise BadFieldsError(member, f"{size:,} bytes, at most {MAX_SIDE_BYTES:,}")
        return self._sides.read(offset, size), member


def tar_members(name: str, opener: Opener) -> list[Member]:
    """Return the members of the samples of a tar, those of one sample one after the other.

    Raises:
        InputError: It is damaged, compressed, or too large for its limits.
    """
    with closing(opener()) as file:
        return [
            (sample.key, ending, offset, size)
            for sample in _tar_samples(name, file)
            for ending, (offset, size) in sample.members.items()
        ]


def _tar_samples(name: str, file: BinaryIO) -> Iterator[_Sample]:
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    sample: _Sample | None = None
    seen: set[str] = set()
    try:
        with tarfile.open(fileobj=_BoundedReads(file, name), mode="r:") as tar:  # type: ignore[call-overload]
            for number, member in enumerate(tar):
                tar.members = []  # it keeps all of them otherwise
                if number >= MAX_MEMBERS or len(member.name) > MAX_NAME:
                    raise InputError(f"{name}: more than {MAX_MEMBERS:,} members, or a name above {MAX_NAME:,}")
                if not member.isreg() or member.issparse():
                    continue
                if member.size < 0 or member.offset_data + member.size > length:
                    raise InputError(
                        f"{name}: {encodable(member.name)} ends beyond the file, at byte "
                        f"{member.offset_data + member.size:,} of {length:,}: the tar is truncated, fetch it again"
                    )
                folder, slash, base = encodable(member.name).rpartition("/")
                stem, dot, ending = base.partition(".")
                if not stem or not dot or base.startswith("."):
                    continue
                key = folder + slash + stem
                if sample is None or sample.key != key:
                    if sample is not None:
                        yield sample
                    if key in seen:
                        raise InputError(f"{name}: sample {key!r} is there twice: expected distinct names")
                    seen.add(key)
                    sample = _Sample(key, {})
                if ending.lower() in sample.members:
                    raise InputError(f"{name}: {encodable(member.name)} is there twice: expected distinct names")
                sample.members[ending.lower()] = (member.offset_data, member.size)
            file.seek(tar.offset)
            if file.read(512) != bytes(512):  # tarfile stops without an error at an invalid header
                raise InputError(f"{name} has no end mark at byte {tar.offset:,}: it is truncated or damaged")
    except InputError:
        raise
    except (tarfile.TarError, ValueError, OSError, EOFError, OverflowError, RecursionError) as error:
        raise InputError(f"{name} cannot be read ({first_line(error)}): expected an uncompressed tar") from None
    if sample is not None:
        yield sample


def _text(content: bytes, place: str) -> str:
    try:
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise BadFieldsError(place, "it is not UTF-8: expected a caption") from None


def _json_object(content: bytes, place: str) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadFieldsError(place, f"it cannot be read ({first_line(error)}): expected a JSON object") from None
    if not isinstance(value, dict):
        raise BadFieldsError(place, f"it holds {type(value).__name__}: expected a JSON object")
    return value


def local_packed(path: Path, name: str | None = None) -> Packed:
    """Index a local file; messages call it ``name``."""
    return open_packed(str(path) if name is None else name, partial(open_local, str(path)))


def open_local(path: str) -> BinaryIO:
    """Open a regular file; a failure is one line."""
    try:
        return open_regular(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {os_reason(error)}") from None


@dataclass(frozen=True, eq=False)
class PackedImages:
    """Images inside packed files. ``images[i]`` is the content of one; an image that is a path is refused earlier.

    ``files`` are the packed files and their sizes in bytes, ``places`` the file and number of each image.
    """

    files: tuple[Packed, ...]
    places: tuple[tuple[int, int], ...]
    ids: tuple[str, ...]
    state: tuple[tuple[str, int], ...]

    @property
    def kind(self) -> Literal["files"]:
        return "files"

    @property
    def feature_size(self) -> None:
        return None

    def expect_finite(self) -> None:
        return

    def identity(self) -> dict[str, Any]:
        """Return the names and sizes of the packed files: another export of the same images is another dataset."""
        text = json.dumps(self.state)
        return {"packed": hashlib.sha256(text.encode()).hexdigest()[:16]}

    def first(self, count: int) -> PackedImages:
        """Return the first images."""
        return replace(self, places=self.places[:count], ids=self.ids[:count])

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> bytes:
        file, number = self.places[operator.index(index)]
        content = self.files[file].image(number)
        if not isinstance(content, bytes):
            raise bad_image(self.ids[index], "a path in place of image bytes")
        return content

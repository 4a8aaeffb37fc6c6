"""Files of embeddings on a disk or behind an fsspec URL: what importing and exporting use of ``pathlib``, for both."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from vse.errors import InputError, VSEError, first_line

if TYPE_CHECKING:
    from vse.batch.store import Store

MODIFIED = 0
"""Time of a file whose store does not say it; rows without a time of their own have that of their file."""


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder behind a URL, with the methods of :class:`pathlib.Path` that reading needs."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        folder = self.url.rpartition("/")[0]
        return RemotePath(f"{folder}/" if folder.endswith(":/") else folder)

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    def is_dir(self) -> bool:
        """Return whether it is a folder: a name without an ending."""
        return not self.suffix

    def exists(self) -> bool:
        """Return whether there is such a file, or a folder with files."""
        if self.is_dir():
            return any(True for _ in _folder(self).names())
        return any(name == self.name for name, _ in _beside(self).names())

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield the files of a folder whose names match."""
        for name, _ in _folder(self).names():
            if "/" not in name and PurePosixPath(name).match(pattern):
                yield self / name

    def open(self, mode: str = "rb") -> BinaryIO:
        """Open the file for reading bytes."""
        try:
            return _beside(self).opener(self.name)()
        except InputError:
            raise FileNotFoundError(str(self)) from None

    def modified(self) -> int:
        """Return the time of the last change in nanoseconds, as far as the store knows it."""
        store: Any = _beside(self)
        with suppress(Exception):  # not every store has it
            return int(store.filesystem.modified(f"{store.root}/{self.name}").timestamp() * 1e9)
        return MODIFIED


AnyPath = Path | RemotePath


def place_of(path: str | os.PathLike[str]) -> AnyPath:
    """Return the file or folder at a path or URL; ``file://`` is a path.

    Raises:
        InputError: The protocol is unknown.
    """
    text = os.fspath(path)
    if "://" not in text:
        return Path(text)
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    found = RemotePath(text.rstrip("/"))
    _folder(found)  # raises
    return found


def modified_time(path: AnyPath) -> int:
    """Return the time of the last change of a file in nanoseconds."""
    return path.modified() if isinstance(path, RemotePath) else path.stat().st_mtime_ns


@lru_cache(maxsize=4)
def local_copy(path: AnyPath) -> Path:
    """Return a local file, which can be mapped: a copy of one behind a URL, until this process ends."""
    if isinstance(path, Path):
        return path
    folder = Path(_copies().name)
    target = folder / f"{len(list(folder.iterdir()))}{path.suffix}"
    try:
        with closing(path.open()) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise VSEError(f"{path} cannot be copied to {target.parent} ({first_line(error)})") from None
    return target


@lru_cache(maxsize=1)
def _copies() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="vse-import-")


def _folder(path: RemotePath) -> Store:
    from vse.batch.store import open_store

    return open_store(path.url)


def _beside(path: RemotePath) -> Store:
    return _folder(path.parent)

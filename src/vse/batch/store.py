"""Folders on disk and in object stores: list, read, and write whole files atomically.

A place is a path or an fsspec URL (``s3://bucket/folder``, ``gs://…``, ``memory://…``). On a disk a file is written
under a temporary name and renamed; an object store shows an object only when its upload is complete.
"""

from __future__ import annotations

import io
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from vse._util.atomic import replace_file, sync_folder
from vse._util.walk import walk_files
from vse.data.packed import Opener, open_local
from vse.errors import InputError, VSEError, first_line, require
from vse.inputs.files import os_reason
from vse.inputs.images import BadImageError, ImageLimits, file_content

ATTEMPTS = 3
PAUSE = 0.5
"""Seconds before the second attempt; doubled for the third."""
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "r2", "memory"})
"""Their objects appear whole; elsewhere a file is renamed."""
TEMPORARY = ".part"
PARQUET_END = b"PAR1"
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


class StoreError(VSEError):
    """A folder or object store cannot be read or written now; what was written before is complete."""


class AccessError(BadImageError):
    """An image that cannot be reached now: it is missing, or the permission, the disk or the network is."""


class Store(Protocol):
    """A folder, by names relative to it."""

    @property
    def place(self) -> str:
        """The path or URL of the folder."""

    def names(self) -> Iterator[tuple[str, int]]:
        """Yield the name and size of every file below the folder; nothing if it does not exist."""

    def opener(self, name: str, block: int | None = None) -> Opener:
        """Return what opens a file for random access; a store reads ``block`` bytes ahead, by default some MB."""

    def content(self, name: str) -> bytes:
        """Return the content of an image; raise AccessError if it cannot be reached."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file, None if there is none."""

    def is_whole(self, name: str, size: int | None = None) -> bool:
        """Return whether there is a file of this name, not empty and, if it is Parquet, not truncated."""

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file; readers see all of it or nothing."""

    def upload(self, name: str, file: Path) -> None:
        """Move a local file, which is on the disk of a local folder, to a name; readers see all of it or nothing."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless it exists; return whether it was written."""

    def clean(self, complete: set[str]) -> None:
        """Remove what interrupted writers left of files that are complete by now."""


def is_url(place: str) -> bool:
    """Return whether a place is a URL; a Windows drive is not."""
    return _URL.match(place) is not None


def open_store(place: str) -> Store:
    """Return the folder at a path or URL; ``file://`` is a path.

    Raises:
        InputError: The URL is chained, or its protocol is unknown.
        MissingDependencyError: fsspec or the package for the protocol is missing.
    """
    if "::" in place:
        raise InputError(f"{place}: chained URLs are not supported: expected one such as s3://bucket/folder")
    if place.startswith("file://"):
        return LocalStore(place.removeprefix("file://"))
    if not is_url(place):
        return LocalStore(place)
    fsspec = require("fsspec", "remote", f"reading {place}")
    protocol = place.partition("://")[0].lower()
    try:
        filesystem, root = fsspec.core.url_to_fs(place)
    except ImportError as error:
        raise InputError(f"{place}: {first_line(error)}") from None
    except Exception as error:  # implementations have no common error
        raise InputError(f"{place}: {first_line(error)}: expected a URL such as s3://bucket/folder") from error
    return RemoteStore(place.rstrip("/"), filesystem, str(root).rstrip("/"), protocol in OBJECT_STORES)


@dataclass(frozen=True)
class LocalStore:
    """A folder on a disk, which machines may share."""

    place: str

    def names(self) -> Iterator[tuple[str, int]]:
        root = Path(self.place)

        def unreadable(folder: str, error: OSError) -> None:
            if folder or root.exists():
                raise StoreError(f"{root / folder} cannot be read: {os_reason(error)}")

        for name in walk_files(root, unreadable):
            try:
                yield name, (root / name).stat().st_size
            except OSError:  # a broken link: reading it says so
                yield name, -1

    def opener(self, name: str, block: int | None = None) -> Opener:
        return partial(open_local, str(Path(self.place) / name))

    def content(self, name: str) -> bytes:
        path = Path(self.place) / name
        try:
            return file_content(path, str(path), ImageLimits())
        except BadImageError as error:
            if isinstance(error.__context__, OSError):  # otherwise it is a folder, too large, …
                raise AccessError(error.name, error.reason) from None
            raise

    def read(self, name: str) -> bytes | None:
        try:
            return (Path(self.place) / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{Path(self.place) / name} cannot be read: {os_reason(error)}") from None

    def is_whole(self, name: str, size: int | None = None) -> bool:
        try:
            with (Path(self.place) / name).open("rb") as file:
                file.seek(-len(PARQUET_END), os.SEEK_END)
                return file.read() == PARQUET_END or not name.endswith(".parquet")
        except OSError:  # also if it is shorter
            return False

    def remove(self, name: str) -> None:
        try:
            (Path(self.place) / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{Path(self.place) / name} cannot be removed: {os_reason(error)}") from None

    def write(self, name: str, content: bytes) -> None:
        with self._temporary(name, content) as (temporary, target):
            try:
                replace_file(temporary, target)
            except FileNotFoundError:
                if not target.exists():  # otherwise another job completed it, and cleaned up
                    raise

    def upload(self, name: str, file: Path) -> None:
        try:
            replace_file(file, Path(self.place) / name)
            sync_folder(Path(self.place))
        except OSError as error:
            raise StoreError(f"{Path(self.place) / name} cannot be written: {os_reason(error)}") from None

    def create(self, name: str, content: bytes) -> bool:
        with self._temporary(name, content) as (temporary, target):
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            except OSError:  # a file system without hard links
                if target.exists():
                    return False
                replace_file(temporary, target)
        return True

    @contextmanager
    def _temporary(self, name: str, content: bytes) -> Iterator[tuple[Path, Path]]:
        target = Path(self.place) / name
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{TEMPORARY}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield temporary, target
            sync_folder(target.parent)
        except OSError as error:
            raise StoreError(
                f"{target} cannot be written ({os_reason(error)}): complete shards are kept, "
                "and the same command resumes when there is room"
            ) from None
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def clean(self, complete: set[str]) -> None:
        for left in Path(self.place).rglob(f".*{TEMPORARY}"):
            name = (left.parent / left.name[1:].rsplit(".", 2)[0]).relative_to(self.place).as_posix()
            if name in complete:
                left.unlink(missing_ok=True)


@dataclass(frozen=True)
class RemoteStore:
    """A folder of an fsspec file system."""

    place: str
    filesystem: Any
    root: str
    whole_objects: bool

    def names(self) -> Iterator[tuple[str, int]]:
        try:
            found = self._retry("listed", partial(self.filesystem.find, self.root, detail=True))
        except FileNotFoundError:
            return
        prefix = self.root + "/"
        for path in sorted(found):
            name = path[len(prefix) :] if path.startswith(prefix) else path.rpartition("/")[2]
            if not any(part.startswith(".") for part in name.split("/")):
                yield name, int(found[path].get("size") or 0)

    def opener(self, name: str, block: int | None = None) -> Opener:
        return partial(_open_remote, self.filesystem, self._path(name), f"{self.place}/{name}", block)

    def content(self, name: str) -> bytes:
        limit, path, shown = ImageLimits().max_bytes, self._path(name), f"{self.place}/{name}".rstrip("/")
        try:
            size = self._retry("read", partial(self.filesystem.size, path), image=True) or 0
            if size > limit:
                raise BadImageError(shown, f"{size:,} bytes, at most {limit:,}")
            if self.whole_objects:
                return self._retry("read", partial(self.filesystem.cat_file, path), image=True)
            content = self._retry(
                "read", partial(self._read_some, path, limit + 1), image=True
            )  # a server may send any amount
            if len(content) > limit:
                raise BadImageError(shown, f"more than {limit:,} bytes")
            return content
        except FileNotFoundError:
            raise AccessError(shown, "no such file") from None
        except PermissionError as error:
            raise AccessError(shown, f"no permission: {first_line(error)}") from None

    def read(self, name: str) -> bytes | None:
        try:
            return self._retry("read", partial(self.filesystem.cat_file, self._path(name)))
        except FileNotFoundError:
            return None

    def is_whole(self, name: str, size: int | None = None) -> bool:
        path, least = self._path(name), len(PARQUET_END)
        try:
            if size is None:
                size = int(self._retry("read", partial(self.filesystem.size, path)) or 0)
            if size <= least or self.whole_objects or not name.endswith(".parquet"):
                return size > least
            return bool(self._retry("read", partial(self.filesystem.tail, path, least)) == PARQUET_END)
        except FileNotFoundError:
            return False

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._retry("written", partial(self.filesystem.rm_file, self._path(name)))

    def write(self, name: str, content: bytes) -> None:
        self._put(name, lambda path: partial(self.filesystem.pipe_file, path, content))

    def upload(self, name: str, file: Path) -> None:
        self._put(name, lambda path: partial(self.filesystem.put_file, str(file), path))

    def _put(self, name: str, put: Callable[[str], partial[Any]]) -> None:
        path = self._path(name)
        try:
            if self.whole_objects:
                self._retry("written", put(path))
                return
            temporary = f"{path}.{uuid.uuid4().hex[:8]}{TEMPORARY}"
            self._retry("written", partial(self.filesystem.makedirs, path.rpartition("/")[0], exist_ok=True))
            try:
                self._retry("written", put(temporary))
                self._retry("written", partial(self.filesystem.mv, temporary, path))
            except BaseException:
                with suppress(Exception):
                    self.filesystem.rm_file(temporary)
                raise
        except (OSError, TypeError, NotImplementedError) as error:
            raise StoreError(f"{self.place} cannot be written ({first_line(error)}): check the address") from None

    def create(self, name: str, content: bytes) -> bool:
        if self.read(name) is not None:
            return False
        if self.whole_objects:
            try:
                self._retry("written", partial(self.filesystem.pipe_file, self._path(name), content, mode="create"))
                return True
            except FileExistsError:
                return False
            except (TypeError, NotImplementedError):  # an implementation without conditional writes
                pass
            except OSError as error:
                raise StoreError(f"{self.place} cannot be written ({first_line(error)}): check the address") from None
        self.write(name, content)  # elsewhere a killed job would leave a part of it; of two jobs the later one wins
        return self.read(name) == content

    def clean(self, complete: set[str]) -> None:
        if self.whole_objects:  # an upload that was not completed is no object
            return
        for name, _ in list(self.names()):
            if name.endswith(TEMPORARY) and name.removesuffix(TEMPORARY).rpartition(".")[0] in complete:
                self.remove(name)

    def _read_some(self, path: str, size: int) -> bytes:
        with self.filesystem.open(path, "rb") as file:
            return file.read(size)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def _retry(self, done: str, call: partial[Any], *, image: bool = False) -> Any:
        for attempt in range(ATTEMPTS):
            try:
                return call()
            except PermissionError as error:
                if image:
                    raise
                reason = f"no permission: {first_line(error)}"
                raise StoreError(f"{self.place} cannot be {done} ({reason}): the same command resumes") from None
            except (FileNotFoundError, FileExistsError, TypeError, NotImplementedError, VSEError):
                raise
            except Exception as error:
                if attempt + 1 == ATTEMPTS:
                    raise StoreError(
                        f"{self.place} cannot be {done} ({first_line(error)}): complete shards are kept, "
                        "and the same command resumes"
                    ) from error
                time.sleep(PAUSE * 2**attempt)
        raise StoreError(f"{self.place} cannot be {done}")


def _open_remote(filesystem: Any, path: str, shown: str, block: int | None) -> BinaryIO:
    try:
        file = filesystem.open(path, "rb", block_size=block)
        if isinstance(file, io.BytesIO):  # memory:// returns one file, with one position, to all who open it
            file = io.BytesIO(file.getvalue())
        return cast("BinaryIO", io.BufferedReader(_RemoteFile(file, shown)))
    except FileNotFoundError:
        raise InputError(f"{shown} does not exist") from None
    except Exception as error:
        raise StoreError(f"{shown} cannot be read ({first_line(error)}): the same command resumes") from error


class _RemoteFile(io.RawIOBase):
    """A file whose failures are those of its store: a parser would take them for damage of the file."""

    def __init__(self, file: BinaryIO, shown: str) -> None:
        self._file, self._shown = file, shown

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._file.read(len(buffer))
        except Exception as error:
            raise StoreError(f"{self._shown} cannot be read ({first_line(error)}): the same command resumes") from error
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()

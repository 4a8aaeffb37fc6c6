"""Read frame features from hdf5 files, npz files and folders: one array ``(frames, size)`` per video."""

from __future__ import annotations

import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from vse.data.npy import map_array, npy_header
from vse.errors import InputError, first_line, require

HDF5_SUFFIXES = (".hdf5", ".h5")
EXPECTED = "expected floats of shape (frames, size)"
CORRUPT = (
    *(OSError, ValueError, KeyError, RuntimeError, EOFError, MemoryError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
"""What h5py, zipfile and numpy raise for a corrupt file."""
Rows = NDArray[np.int64]
MAX_BYTES = 2**31
"""Of one video's features, and of one compressed part of them: a small file can hold far more zeros."""
_AT_ONCE = 2**24  # bytes: smaller ones are read whole, since each row would decompress its chunk
_Handle = TypeVar("_Handle")


class FrameSource(Protocol):
    """Where the frames of videos are stored. A slash in a video's name is an underscore here, as in HGR."""

    @property
    def place(self) -> str:
        """How error messages name it."""

    def names(self) -> frozenset[str]:
        """Return the names of the stored videos."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a video's array without reading it."""

    def read(self, name: str, rows: Rows | None = None) -> NDArray[Any]:
        """Return the frames ``(n, size)`` of a video: all, or those at the ascending ``rows``."""

    def stamp(self) -> str:
        """Return a text that differs when the files may have changed."""


def open_frames(path: Path) -> FrameSource:
    """Open the frames in an hdf5 or npz file, or in a folder with a ``.npy`` or ``.npz`` file for each video."""
    if path.is_dir():
        return FrameFolder(path)
    if not path.exists():
        raise InputError(f"{path} does not exist: expected frame features as .hdf5, .npz or a folder of .npy files")
    if path.suffix in HDF5_SUFFIXES:
        return Hdf5Frames(path)
    if path.suffix == ".npz":
        return NpzFrames(path)
    raise InputError(f"{path}: unknown suffix {path.suffix!r}: expected .hdf5, .h5, .npz or a folder of .npy files")


def stored_name(video: str) -> str:
    """Return the name under which a video's frames are stored."""
    return video.replace("/", "_")


class _Opened:
    """A file that each process opens for itself: handles can be neither pickled nor shared with a child."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: tuple[int, Any] | None = None

    @property
    def place(self) -> str:
        return str(self.path)

    def _open(self, opener: Callable[[Path], _Handle]) -> _Handle:
        if self._handle is None or self._handle[0] != os.getpid():
            with reading(self.place):
                self._handle = os.getpid(), opener(self.path)
        handle: _Handle = self._handle[1]
        return handle

    def stamp(self) -> str:
        return _stamp(self.path)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_handle": None}


class Hdf5Frames(_Opened):
    """``{name: (frames, size)}`` in one hdf5 file."""

    def _file(self) -> Any:
        return self._open(lambda path: require("h5py", "train", "reading frame features").File(path, "r"))

    def names(self) -> frozenset[str]:
        with reading(self.place):
            return frozenset(self._file())

    def shape(self, name: str) -> tuple[int, ...]:
        place = f"{self.path}, {name!r}"
        with reading(place):
            found = self._stored(name, place)
            return _checked(getattr(found, "shape", None), getattr(found, "dtype", None), place)

    def read(self, name: str, rows: Rows | None = None) -> NDArray[Any]:
        place = f"{self.path}, {name!r}"
        with reading(place):
            stored = self._stored(name, place)
            _expect_bytes(_bytes_of(stored.shape, stored.dtype, rows), place)
            if rows is None or (stored.chunks is not None and stored.nbytes <= _AT_ONCE):
                return _chosen(stored[...], rows)
            # One by one: for a list of rows HDF5 visits every chunk between the first and the last.
            return np.stack([stored[row] if stored.ndim == 2 else stored[0, row] for row in rows.tolist()])

    def _stored(self, name: str, place: str) -> Any:
        """Return a dataset, which HDF5 may let point into any other file: one that does is refused."""
        h5py = require("h5py", "train", "reading frame features")
        link = self._file().get(name, getlink=True)
        if link is not None and not isinstance(link, h5py.HardLink):
            raise InputError(f"{place} is a link: expected the features themselves")
        found = self._file()[name]
        if isinstance(found, h5py.Dataset):
            if found.external is not None or found.is_virtual:
                raise InputError(f"{place} is stored in other files: expected the features themselves")
            _expect_bytes(
                math.prod(found.chunks or ()) * found.dtype.itemsize, place
            )  # read whole, however little is used
        return found


class NpzFrames(_Opened):
    """``{name: (frames, size)}`` in one npz file; arrays are read whole, one at a time."""

    def _file(self) -> zipfile.ZipFile:
        return self._open(zipfile.ZipFile)

    def names(self) -> frozenset[str]:
        return frozenset(name.removesuffix(".npy") for name in self._file().namelist() if name.endswith(".npy"))

    def shape(self, name: str) -> tuple[int, ...]:
        place = f"{self.path}, {name!r}"
        with reading(place), self._entry(name) as file:
            return _npy_shape(file, place, whole=True)

    def read(self, name: str, rows: Rows | None = None) -> NDArray[Any]:
        place = f"{self.path}, {name!r}"
        with reading(place), self._entry(name) as file:
            _npy_shape(file, place, whole=True)
        with reading(place), self._entry(name) as file:
            return _chosen(npy_format.read_array(file, allow_pickle=False), rows)

    def _entry(self, name: str) -> IO[bytes]:
        return self._file().open(zip_entry(self._file(), f"{name}.npy"))


class FrameFolder:
    """A folder, with one level of subfolders, of ``NAME.npy`` or ``NAME.npz`` (one array) for each video."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, Path] = {}
        for path in sorted(_feature_files(folder)):
            earlier = self._files.setdefault(path.stem, path)
            if earlier != path:
                raise InputError(f"{folder}: two files for video {path.stem!r}, {earlier} and {path}: remove one")

    @property
    def place(self) -> str:
        return str(self.folder)

    def names(self) -> frozenset[str]:
        return frozenset(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        path = self._files[name]
        if path.suffix == ".npz":
            return NpzFrames(path).shape(_only(path))
        with reading(str(path)), path.open("rb") as file:
            return _npy_shape(file, str(path))

    def read(self, name: str, rows: Rows | None = None) -> NDArray[Any]:
        path = self._files[name]
        if path.suffix == ".npz":
            return NpzFrames(path).read(_only(path), rows)
        with reading(str(path)):
            stored = map_array(path)
            _expect_bytes(_bytes_of(stored.shape, stored.dtype, rows), str(path))
            return _chosen(stored, rows)

    def stamp(self) -> str:
        return "\n".join(map(_stamp, self._files.values()))


def _stamp(path: Path) -> str:
    found = path.stat()
    return f"{path.name} {found.st_size} {found.st_mtime_ns}"


def _feature_files(folder: Path) -> Iterable[Path]:
    for pattern in ("[!.]*.npy", "[!.]*.npz", "[!.]*/[!.]*.npy", "[!.]*/[!.]*.npz"):
        yield from folder.glob(pattern)


def _only(path: Path) -> str:
    names = sorted(NpzFrames(path).names())
    if len(names) != 1:
        raise InputError(f"{path} holds {len(names)} arrays: expected one, the frames of the video {path.stem!r}")
    return names[0]


def zip_entry(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """Return an entry that is stored or deflated; other compressions raise their own errors if corrupt."""
    entry = archive.getinfo(name)
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{archive.filename}: {name!r} has compression {entry.compress_type}, expected deflate")
    return entry


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Report what is wrong with a file in one line that names it."""
    try:
        yield
    except InputError:
        raise
    except CORRUPT as error:
        raise InputError(f"{place} cannot be read ({first_line(error)}): copy or extract it again") from None


def _npy_shape(file: Any, place: str, *, whole: bool = False) -> tuple[int, ...]:
    """Read only the header, so that an object array is refused before anything could unpickle it.

    An array that is read ``whole`` is limited in size; of a mapped one, the frames that are used are.
    """
    shape, dtype = npy_header(file)
    if whole:
        _expect_bytes(_bytes_of(shape, dtype, None), place)
    return _checked(shape, dtype, place)


def _bytes_of(shape: tuple[int, ...], dtype: np.dtype[Any], rows: Rows | None) -> int:
    """Return the bytes of all or some frames of an array ``(frames, size)`` or ``(1, frames, size)``."""
    values = math.prod(shape) if rows is None else len(rows) * math.prod(shape[-1:])
    return values * dtype.itemsize


def _expect_bytes(count: int, place: str) -> None:
    if count > MAX_BYTES:
        raise InputError(f"{place} has {count:,} bytes of features: expected at most {MAX_BYTES:,} of one video")


def _chosen(stored: NDArray[Any], rows: Rows | None) -> NDArray[Any]:
    """Copy all or some frames of an array ``(frames, size)`` or ``(1, frames, size)``."""
    frames = stored.reshape(stored.shape[-2:])
    return np.array(frames if rows is None else frames[rows])


def _checked(shape: Any, dtype: Any, place: str) -> tuple[int, ...]:
    """Return ``(frames, size)``; a video without extracted frames, ``(0,)`` or without a shape, has none."""
    if dtype is None or not np.issubdtype(dtype, np.floating):
        raise InputError(f"{place} holds {'a group' if dtype is None else dtype}: {EXPECTED}")
    if shape is None or 0 in shape[:1]:
        return 0, 0
    found = tuple(int(n) for n in shape)
    if len(found) == 3 and found[0] == 1:  # as the I3D features of VATEX were published
        found = found[1:]
    if len(found) != 2 or found[1] == 0:
        raise InputError(f"{place} has shape {shape}: {EXPECTED}")
    return found

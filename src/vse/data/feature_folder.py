"""A folder of features that is being filled: what it shall hold, its lock and its header.

What images and videos have in common; :mod:`vse.data.feature_writer` writes the features of either.
"""

from __future__ import annotations

import errno
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import write_json
from vse._util.locks import FolderLock
from vse._util.strict import parse, read_json
from vse.data.features import FeaturesHeader
from vse.errors import InputError, VSEError
from vse.inputs.regions import BoxMethod

Header = TypeVar("Header", bound=FeaturesHeader)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class FeaturePlan:
    """What a folder of features shall hold: the images or videos ``ids``, seen by one backbone in one way.

    Images have a ``grid`` of cells, or ``regions`` averaged over it (their number and where their boxes come from).
    The backbone computes them in ``precision``, float32 if None.
    Videos have at most ``frames`` each and a modification time ``modified`` (ns since
    1970, None for one that cannot be read).
    """

    backbone: str
    options: Mapping[str, Any]
    preprocessing: Mapping[str, Any]
    channels: int
    fingerprint: str
    ids: tuple[str, ...]
    grid: tuple[int, int] | None = None
    frames: int = 1
    modified: tuple[int | None, ...] = ()
    regions: tuple[int, BoxMethod] | None = None
    precision: Literal["bf16"] | None = None

    def __post_init__(self) -> None:
        what = "videos" if self.grid is None else "images"
        if not self.ids:
            raise InputError(f"zero {what}, expected at least one")
        (name, times), *_ = Counter(self.ids).most_common(1)
        if times > 1:
            raise InputError(f"id {name!r} is given to {times} {what}: features are found by id, give each its own")

    def described(self) -> dict[str, Any]:
        """The fields of both headers, as they will be read back: lists, not tuples."""
        names = ("backbone", "options", "preprocessing", "channels", "fingerprint")
        found: dict[str, Any] = json.loads(json.dumps({name: getattr(self, name) for name in names}, default=dict))
        return found


@dataclass(frozen=True)
class Extracted:
    """The ``features (n, channels)`` of an image or video, or the ``reason`` why it has none.

    ``modified`` is when the file was last changed before it was read, ``note`` what of it could not be read. ``boxes
    (n, 4)`` are those of regions.
    """

    features: NDArray[np.float16] | None
    reason: str = ""
    modified: int = 0
    note: str | None = None
    boxes: NDArray[np.float32] | None = None


class FeatureWriter(ABC, Generic[Header]):
    """A folder of features that is being filled.

    ``todo`` are the positions in ``plan.ids`` to compute and ``kept`` counts the others. Files that could not be used
    in an earlier run are tried again.
    """

    todo: list[int]

    header_file: ClassVar[str]
    """The name of the file that says what the folder is for."""
    progress_keys: ClassVar[frozenset[str]]
    """The fields of the header that change while the folder is filled."""

    def __init__(self, folder: Path, plan: FeaturePlan, header: Header) -> None:
        self.folder, self.plan = folder, plan
        _expect_own_folder(folder, self.header_file)
        with one_line_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(folder)
            try:
                self.header: Header = self._begin(header)
                self._open()
            except BaseException:
                self._lock.release()
                raise

    @property
    @abstractmethod
    def problems(self) -> Mapping[str, str]:
        """The reasons why some of ``plan.ids`` have no features."""

    @property
    def notes(self) -> Mapping[str, str]:
        """What could not be read of some that have features."""
        return {}

    @abstractmethod
    def commit(self, batch: Mapping[int, Extracted]) -> None:
        """Keep what was extracted, by position in ``plan.ids``; when this returns, it survives a crash."""

    @abstractmethod
    def finish(self) -> None:
        """Record that nothing is left to do."""

    @abstractmethod
    def _open(self) -> None:
        """Lay the folder out or read what it holds; the lock is held."""

    def unsupported(self, position: int) -> str | None:
        """Return why features of this id cannot be stored, None if they can."""
        return None

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    @property
    def kept(self) -> int:
        return len(self.plan.ids) - len(self.todo)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, wanted: Header) -> Header:
        """Write the header, or return the one that is there if they agree."""
        path = self.folder / self.header_file
        if not path.exists():
            write_json(path, wanted.model_dump(mode="json"))
            return wanted
        found = parse(type(wanted), read_json(path), str(path))
        old, new = (
            _flat(header.model_dump(mode="json", exclude=set(self.progress_keys))) for header in (found, wanted)
        )
        for key in (*old, *(key for key in new if key not in old)):
            if old.get(key) != new.get(key):
                raise InputError(other_plan(self.folder, key, old.get(key), new.get(key)))
        return found


def _expect_own_folder(folder: Path, header: str) -> None:
    """Refuse a folder that holds other things: it must be new, empty, or have the file ``header``."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: expected a folder for the features")
    if folder.is_dir() and not (folder / header).exists():
        others = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if others:
            raise InputError(
                f"{folder} is not a feature store and not empty, it holds {others[0]!r}: name another folder"
            )


def other_plan(folder: Path, key: str, old: object, new: object) -> str:
    """Return the message for a folder that was begun with another value of ``key``."""
    return (
        f"{folder} was begun with {key} {old!r}, now it is {new!r}: repeat the options it was begun with, or choose "
        "another folder"
    )


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``, to name a difference precisely."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat.update({f"{key}.{k}": v for k, v in _flat(value).items()} if isinstance(value, dict) else {key: value})
    return flat


@contextmanager
def one_line_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the file system into one line that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise VSEError(
                f"{folder}: the disk is full; finished features are kept: free some space and run the command again"
            ) from error
        raise VSEError(f"{folder} cannot be written: {error.strerror or error}") from error

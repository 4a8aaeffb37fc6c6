"""Writing a feature store so that a run can be killed at any moment and goes on where it stopped.

The files and the commit protocol are those of :mod:`vse.data.features`. Rows are written with ordinary writes
and not through a mapping: when the disk is full a write raises an error, while a store into a mapped page ends the
process with a bus error.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from vse._util.atomic import write_json, write_text
from vse._util.locks import FolderLock
from vse.data.features import (
    BAD,
    DONE,
    DONE_WELL,
    FEATURES,
    HEADER,
    IDS,
    PROBLEMS,
    TO_DO,
    StoreHeader,
    another,
    expect_own_folder,
    expect_same,
    explained,
    map_features,
    read_header,
    read_ids,
    read_marks,
    read_problems,
)
from vse.errors import InputError, VSEError


@dataclass(frozen=True)
class FeaturePlan:
    """What a store shall hold: the features of the images ``ids``, made by one backbone in one way."""

    backbone: str
    options: Mapping[str, Any]
    preprocessing: Mapping[str, Any]
    grid: tuple[int, int]
    channels: int
    fingerprint: str
    ids: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.ids:
            raise InputError("zero images, expected at least one")
        (name, times), *_ = Counter(self.ids).most_common(1)
        if times > 1:
            raise InputError(f"id {name!r} is given to {times} images: features are found by id, give each its own")

    def header(self) -> StoreHeader:
        """What ``store.json`` says at the beginning."""
        return StoreHeader(
            backbone=self.backbone,
            options=json.loads(json.dumps(dict(self.options))),  # as it will be read: lists, not tuples
            preprocessing=json.loads(json.dumps(dict(self.preprocessing))),
            grid=self.grid,
            channels=self.channels,
            count=len(self.ids),
            fingerprint=self.fingerprint,
        )


class FeatureWriter:
    """A store that is being filled, by one process at a time.

    ``todo`` are the rows to compute and ``kept`` counts the others. Pictures that could not be used in an earlier run
    are to do again: they may have been mended.
    """

    def __init__(self, folder: Path, plan: FeaturePlan, lock: FolderLock) -> None:
        self.folder = folder
        self.header = read_header(folder)
        self._ids = plan.ids
        self._lock = lock
        self._marks = read_marks(folder, self.header)
        self._reasons = read_problems(folder)
        self.todo: NDArray[np.int64] = np.flatnonzero(self._marks != DONE_WELL)
        self.kept = len(self._marks) - len(self.todo)
        features = map_features(folder, self.header)
        _expect_space(folder, self.header.nbytes)
        if (folder / PROBLEMS).exists():  # a line that a kill cut in two must not swallow the next one
            self._write_problems()
        marks = np.load(folder / DONE, mmap_mode="r", allow_pickle=False)
        self._features = _RowFile(folder / FEATURES, features.offset, self.header.nbytes // self.header.count)
        self._done = _RowFile(folder / DONE, marks.offset, 1)

    @classmethod
    def open_or_create(cls, folder: str | os.PathLike[str], plan: FeaturePlan) -> FeatureWriter:
        """A new store in ``folder``, or the one there if it was begun with the same plan."""
        where = Path(folder)
        expect_own_folder(where, HEADER)
        with explained(where):
            where.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(where)
            try:
                _lay_out(where, plan)
                return cls(where, plan, lock)
            except BaseException:
                lock.release()
                raise

    def commit(self, rows: Sequence[int], features: NDArray[np.float16], bad: Mapping[int, str]) -> None:
        """Keep ``features (len(rows), cells, channels)`` and the reasons why the rows ``bad`` have none."""
        if features.dtype != np.float16 or features.shape != (len(rows), *self.header.shape[1:]):
            raise InputError(
                f"features are {features.dtype} {features.shape}: expected float16 "
                f"{(len(rows), *self.header.shape[1:])}"
            )
        with explained(self.folder):
            for row, values in zip(rows, features, strict=True):
                self._features.write(row, values.tobytes())
            self._features.flush()
            if bad:
                self._append_problems({self._ids[row]: reason for row, reason in bad.items()})
            # From here on the batch is acknowledged, row by row.
            for mark, marked in ((DONE_WELL, rows), (BAD, bad)):
                for row in marked:
                    self._done.write(row, bytes([mark]))
                    self._marks[row] = mark
            self._done.flush()

    def finish(self) -> None:
        """Declare the store complete."""
        waiting = int((self._marks == TO_DO).sum())
        if waiting:
            raise InputError(f"{self.folder}: {waiting} rows are still to do, a store cannot be complete without them")
        with explained(self.folder):
            self._reasons = dict(self.bad)
            self._write_problems()
            write_json(self.folder / HEADER, self.header.model_copy(update={"complete": True}).model_dump(mode="json"))

    @property
    def bad(self) -> Mapping[str, str]:
        """The ids of pictures that cannot be used, and why, in the order of the rows."""
        names = [self._ids[row] for row in np.flatnonzero(self._marks == BAD)]
        return {name: self._reasons.get(name, "reason unknown") for name in names}

    def close(self) -> None:
        """Let other runs in."""
        self._features.close()
        self._done.close()
        self._lock.release()

    def __enter__(self) -> FeatureWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append_problems(self, reasons: Mapping[str, str]) -> None:
        self._reasons.update(reasons)
        with (self.folder / PROBLEMS).open("a", encoding="utf-8") as file:
            file.write(_lines(reasons))
            file.flush()
            os.fsync(file.fileno())

    def _write_problems(self) -> None:
        write_text(self.folder / PROBLEMS, _lines(self._reasons))


class _RowFile:
    """Rows of fixed size in a file, written in place."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        self._file = path.open("r+b", buffering=0)
        self._start, self._size = start, size

    def write(self, row: int, data: bytes) -> None:
        self._file.seek(self._start + int(row) * self._size)
        rest = memoryview(data)
        while rest:  # an unbuffered write may take less than it was given
            rest = rest[self._file.write(rest) :]

    def flush(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _lay_out(folder: Path, plan: FeaturePlan) -> None:
    """Make the files that are not there yet, in the order that the protocol states."""
    wanted = plan.header()
    laid_out = (folder / DONE).exists()
    if (folder / HEADER).exists():
        found = read_header(folder)
        exclude = {"complete"}
        expect_same(
            folder, found.model_dump(mode="json", exclude=exclude), wanted.model_dump(mode="json", exclude=exclude)
        )
        if found.complete and not laid_out:
            raise InputError(f"{folder / DONE} is missing: the store is damaged, delete its folder and start again")
    else:
        write_json(folder / HEADER, wanted.model_dump(mode="json"))
    if laid_out:
        there = read_ids(folder, wanted)
        for row, (old, new) in enumerate(zip(there, plan.ids, strict=True)):
            if old != new:
                raise InputError(another(folder, f"ids[{row}]", old, new))
        return
    write_json(folder / IDS, list(plan.ids))
    open_memmap(folder / FEATURES, mode="w+", dtype=np.float16, shape=wanted.shape).flush()
    beside = folder / f".{DONE}"
    open_memmap(beside, mode="w+", dtype=np.uint8, shape=(wanted.count,)).flush()
    beside.replace(folder / DONE)


def _expect_space(folder: Path, size: int) -> None:
    """Refuse to begin what the disk cannot hold; blocks that the file has already are not counted again."""
    # Where the system does not count blocks, files have no holes: all the space is taken already.
    blocks = getattr((folder / FEATURES).stat(), "st_blocks", None)
    needed = 0 if blocks is None else size - blocks * 512
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise VSEError(
            f"{folder}: the features need {needed / 1e9:.2f} GB more, the disk has {free / 1e9:.2f} GB free: "
            "make room or choose a folder on another disk"
        )


def _lines(reasons: Mapping[str, str]) -> str:
    return "".join(json.dumps({"id": name, "reason": reason}) + "\n" for name, reason in reasons.items())

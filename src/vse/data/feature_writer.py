"""Write features so that a run can be killed at any moment and resumed.

The files are those of :mod:`vse.data.features`. One process at a time fills a folder. Its header is written first and
says what the folder is for: a call with another backbone, preprocessing or fingerprint is refused.

Commit protocol for images. After the header come ``ids.json`` and the empty ``features.npy``; ``done.npy`` is renamed
into place last, so that its presence means that the folder is laid out. A batch is committed in two steps: its rows of
``features.npy`` and ``boxes.npy`` and its lines of ``problems.jsonl`` are written and synced to disk, and only then are
its marks in ``done.npy`` written and synced. A mark therefore stands for features that are there, whenever the process
is killed or the power fails; only the batch in progress is lost and computed again. ``complete`` in ``store.json``
becomes true when no mark is 0. Rows are written with ordinary writes and not through a mapping: on a full disk a write
raises an error, while a store into a mapped page ends the process with a bus error.

Commit protocol for videos. An array is synced, given the modification time of its video and renamed into place: an
array with the time of its video stands for that video. A note about a video is in ``features.json`` before its array
is there; the reasons of videos without features are found again by the next run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from vse._util.atomic import settle, sync_folder, write_json, write_text
from vse.data.feature_folder import Extracted, FeaturePlan, FeatureWriter, one_line_errors, other_plan
from vse.data.features import (
    BAD,
    BOXES,
    DONE,
    DONE_WELL,
    FEATURES,
    HEADER,
    IDS,
    PROBLEMS,
    START_AGAIN,
    TO_DO,
    VIDEO_HEADER,
    RegionsHeader,
    StoreHeader,
    VideoFeaturesHeader,
    map_boxes,
    map_features,
    read_ids,
    read_marks,
    read_problems,
)
from vse.errors import InputError, VSEError

_WRITING = ".writing.npy"
_MAX_NAME = 255  # bytes of a file name
_TOO_LONG = "its path is too long to name a file of features: shorten it"


def open_writer(folder: str | os.PathLike[str], plan: FeaturePlan) -> FeatureWriter[Any]:
    """Create the features of ``plan`` in ``folder``, or resume them if they were begun with the same plan.

    Args:
        folder: A new or empty folder, or one that was begun before.
        plan: What it shall hold.

    Returns:
        The writer, which holds the lock of the folder until it is closed.

    Raises:
        InputError: If the folder holds something else.
        VSEError: If another process is writing it, or it cannot be written.
    """
    if plan.grid is not None:
        regions = None if plan.regions is None else RegionsHeader(count=plan.regions[0], boxes=plan.regions[1])
        header = StoreHeader(
            **plan.described(), grid=plan.grid, regions=regions, precision=plan.precision, count=len(plan.ids)
        )
        return GridWriter(Path(folder), plan, header)
    return VideoWriter(Path(folder), plan, VideoFeaturesHeader(**plan.described(), frames=plan.frames))


class GridWriter(FeatureWriter[StoreHeader]):
    """Writes the features of images, rows of one array."""

    header_file = HEADER
    progress_keys = frozenset({"complete"})

    def _open(self) -> None:
        self._lay_out()
        self._marks = read_marks(self.folder, self.header)
        self._reasons = read_problems(self.folder)
        self.todo = np.flatnonzero(self._marks != DONE_WELL).tolist()
        features = map_features(self.folder, self.header)
        _expect_space(self.folder, self.header.nbytes)
        if (self.folder / PROBLEMS).exists():  # a line that a kill cut in two must not swallow the next one
            self._write_problems()
        marks = np.load(self.folder / DONE, mmap_mode="r", allow_pickle=False)
        self._features = _RowFile(self.folder / FEATURES, features.offset, self.header.nbytes // self.header.count)
        self._done = _RowFile(self.folder / DONE, marks.offset, 1)
        self._boxes: _RowFile | None = None
        if self.header.regions is not None:
            boxes = map_boxes(self.folder, self.header)
            self._boxes = _RowFile(self.folder / BOXES, boxes.offset, boxes.nbytes // len(boxes))

    @property
    def problems(self) -> Mapping[str, str]:
        names = [self.plan.ids[row] for row in np.flatnonzero(self._marks == BAD)]
        return {name: self._reasons.get(name, "reason unknown") for name in names}

    def commit(self, batch: Mapping[int, Extracted]) -> None:
        shape = self.header.shape[1:]
        good = {row: one.features for row, one in batch.items() if one.features is not None}
        for features in good.values():
            if features.dtype != np.float16 or features.shape != shape:
                raise InputError(f"features are {features.dtype} {features.shape}: expected float16 {shape}")
        boxes = {row: self._checked_boxes(batch[row].boxes) for row in good} if self._boxes is not None else {}
        with one_line_errors(self.folder):
            for row, features in good.items():
                self._features.write(row, features.tobytes())
            self._features.flush()
            if self._boxes is not None:
                for row, data in boxes.items():
                    self._boxes.write(row, data)
                self._boxes.flush()
            bad = {row: one.reason for row, one in batch.items() if row not in good}
            if bad:
                self._append_problems({self.plan.ids[row]: reason for row, reason in bad.items()})
            # From here on the batch is committed, row by row.
            for row in batch:
                mark = DONE_WELL if row in good else BAD
                self._done.write(row, bytes([mark]))
                self._marks[row] = mark
            self._done.flush()

    def finish(self) -> None:
        waiting = int((self._marks == TO_DO).sum())
        if waiting:
            raise InputError(f"{self.folder}: {waiting} rows are still to do, a store cannot be complete without them")
        with one_line_errors(self.folder):
            self._reasons = dict(self.problems)
            self._write_problems()
            write_json(self.folder / HEADER, self.header.model_copy(update={"complete": True}).model_dump(mode="json"))

    def close(self) -> None:
        self._features.close()
        self._done.close()
        if self._boxes is not None:
            self._boxes.close()
        super().close()

    def _checked_boxes(self, boxes: NDArray[np.float32] | None) -> bytes:
        expected = (self.header.elements, 4)
        if boxes is None or boxes.dtype != np.float32 or boxes.shape != expected:
            found = "missing" if boxes is None else f"{boxes.dtype} {boxes.shape}"
            raise InputError(f"boxes are {found}: expected float32 {expected}")
        return boxes.tobytes()

    def _lay_out(self) -> None:
        """Create the files that are missing, in the order of the protocol."""
        if (self.folder / DONE).exists():
            there = read_ids(self.folder, self.header)
            for row, (old, new) in enumerate(zip(there, self.plan.ids, strict=True)):
                if old != new:
                    raise InputError(other_plan(self.folder, f"ids[{row}]", old, new))
            return
        if self.header.complete:
            raise InputError(f"{self.folder / DONE} is missing: {START_AGAIN}")
        write_json(self.folder / IDS, list(self.plan.ids))
        open_memmap(self.folder / FEATURES, mode="w+", dtype=np.float16, shape=self.header.shape).flush()
        if self.header.regions is not None:
            shape = (self.header.count, self.header.elements, 4)
            open_memmap(self.folder / BOXES, mode="w+", dtype=np.float32, shape=shape).flush()
        beside = self.folder / f".{DONE}"
        open_memmap(beside, mode="w+", dtype=np.uint8, shape=(self.header.count,)).flush()
        beside.replace(self.folder / DONE)

    def _append_problems(self, reasons: Mapping[str, str]) -> None:
        self._reasons.update(reasons)
        with (self.folder / PROBLEMS).open("a", encoding="utf-8") as file:
            file.write(_lines(reasons))
            file.flush()
            os.fsync(file.fileno())

    def _write_problems(self) -> None:
        write_text(self.folder / PROBLEMS, _lines(self._reasons))


class VideoWriter(FeatureWriter[VideoFeaturesHeader]):
    """Writes the features of videos, one array each. Features and problems of other videos in the folder stay."""

    header_file = VIDEO_HEADER
    progress_keys = frozenset({"problems", "notes"})

    def _open(self) -> None:
        self._problems, self._notes = dict(self.header.problems), dict(self.header.notes)
        self.todo = [row for row in range(len(self.plan.ids)) if not self._has(row)]
        for name in set(self.plan.ids).difference(self.plan.ids[row] for row in self.todo):
            self._problems.pop(name, None)

    @property
    def problems(self) -> Mapping[str, str]:
        return {name: self._problems[name] for name in self.plan.ids if name in self._problems}

    @property
    def notes(self) -> Mapping[str, str]:
        return {name: self._notes[name] for name in self.plan.ids if name in self._notes}

    def commit(self, batch: Mapping[int, Extracted]) -> None:
        with one_line_errors(self.folder):
            for position, one in batch.items():
                name = self.plan.ids[position]
                if one.features is None:
                    self._problems[name] = one.reason
                    self._notes.pop(name, None)
                    if self.unsupported(position) is None:
                        self._file(name).unlink(missing_ok=True)  # of what the video was before
                else:
                    self._problems.pop(name, None)
                    self._note(name, one.note)
                    self._write(name, one.features, one.modified)

    def finish(self) -> None:
        """Nothing is recorded: the folder may be extended at any time."""

    def unsupported(self, position: int) -> str | None:
        return _TOO_LONG if len(os.fsencode(f"{self.plan.ids[position]}.npy")) > _MAX_NAME else None

    def close(self) -> None:
        try:
            with one_line_errors(self.folder):
                (self.folder / _WRITING).unlink(missing_ok=True)
                self._write_header()
        finally:
            super().close()

    def _has(self, position: int) -> bool:
        try:
            return self._file(self.plan.ids[position]).stat().st_mtime_ns == self.plan.modified[position]
        except OSError:
            return False

    def _note(self, name: str, note: str | None) -> None:
        if self._notes.get(name) != note:
            self._notes.pop(name, None)
            if note is not None:
                self._notes[name] = note
            self._write_header()

    def _write(self, name: str, features: NDArray[np.float16], modified: int) -> None:
        beside = self.folder / _WRITING
        with beside.open("wb") as file:
            npy_format.write_array(file, np.ascontiguousarray(features), allow_pickle=False)
        os.utime(beside, ns=(modified, modified))
        settle(beside)
        beside.replace(self._file(name))
        sync_folder(self.folder)

    def _write_header(self) -> None:
        known = {"problems": self._problems, "notes": self._notes}
        write_json(self.folder / VIDEO_HEADER, self.header.model_copy(update=known).model_dump(mode="json"))

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


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


def _expect_space(folder: Path, size: int) -> None:
    """Refuse to begin what the disk cannot hold; blocks that the file already has are not counted again."""
    # Where the system does not count blocks, files have no holes: all the space is allocated already.
    blocks = getattr((folder / FEATURES).stat(), "st_blocks", None)
    needed = 0 if blocks is None else size - blocks * 512
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise VSEError(
            f"{folder}: the features need {needed / 1e9:.2f} GB more, the disk has {free / 1e9:.2f} GB free: "
            "free some space or choose a folder on another disk"
        )


def _lines(reasons: Mapping[str, str]) -> str:
    return "".join(json.dumps({"id": name, "reason": reason}) + "\n" for name, reason in reasons.items())

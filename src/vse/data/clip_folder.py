"""Frame features of clips on disk: one array a clip, made by ``vse features`` and read like any folder of arrays.

::

    FOLDER/ID.npy          float16 (frames, channels) of one clip; its time of change is that of the clip
    FOLDER/features.json   backbone, preprocessing, fingerprint of the weights, frames; what went wrong

``features.json`` is written first and says what the folder is for. An array appears in one step, flushed to the disk,
with its clip's time of change: one that is there and has the time of its clip stands for this clip, whenever a run is
killed. A remark on a clip is in ``features.json`` before the array is there; the reasons of clips without features are
found again by the next run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from vse._util.atomic import settle, sync_folder, write_json
from vse._util.locks import FolderLock
from vse._util.strict import Strict, parse, read_json
from vse.data.features import expect_own_folder, expect_same, explained

HEADER = "features.json"
KIND: Literal["clip features"] = "clip features"
_WRITING = ".writing.npy"
_LONGEST_NAME = 255  # bytes of a file's name


class ClipFeaturesHeader(Strict):
    """``features.json``. ``fingerprint`` stands for the weights of the backbone; ``frames`` is the most a clip has."""

    format: Literal[1] = 1
    kind: Literal["clip features"] = KIND
    backbone: str
    options: dict[str, Any]
    preprocessing: dict[str, Any]
    fingerprint: str
    frames: PositiveInt
    channels: PositiveInt
    dtype: Literal["float16"] = "float16"
    problems: dict[str, str] = Field(default_factory=dict)
    notes: dict[str, str] = Field(default_factory=dict)


def read_clip_header(folder: Path) -> ClipFeaturesHeader | None:
    """What the features in ``folder`` are; None for features from elsewhere, whatever lies beside them."""
    try:
        described = json.loads((folder / HEADER).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(described, dict) or described.get("kind") != KIND:
        return None
    return parse(ClipFeaturesHeader, described, str(folder / HEADER))


class ClipFolder:
    """A folder of clip features that is being filled, by one process at a time.

    ``problems`` and ``notes`` hold, by id, why a clip has no features, and what of one could not be read.
    """

    def __init__(self, folder: Path, wanted: ClipFeaturesHeader) -> None:
        expect_own_folder(folder, HEADER)
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(folder)
            try:
                self.folder = folder
                self._header = self._begun(wanted)
                self.problems, self.notes = dict(self._header.problems), dict(self._header.notes)
            except BaseException:
                self._lock.release()
                raise

    def has(self, name: str, changed: int | None) -> bool:
        """Whether the features of the clip ``name`` are there, as it was last changed (ns since 1970)."""
        try:
            return self._place(name).stat().st_mtime_ns == changed
        except OSError:
            return False

    def add(self, name: str, features: NDArray[np.float16], changed: int, note: str | None) -> None:
        """Keep the features ``(frames, channels)`` of a clip in one step."""
        with explained(self.folder):
            self.problems.pop(name, None)
            if self.notes.get(name) != note:
                self.notes.pop(name, None)
                if note is not None:
                    self.notes[name] = note
                self.write_header()
            beside = self.folder / _WRITING
            with beside.open("wb") as file:
                npy_format.write_array(file, np.ascontiguousarray(features), allow_pickle=False)
            os.utime(beside, ns=(changed, changed))
            settle(beside)
            beside.replace(self._place(name))
            sync_folder(self.folder)

    def refuse(self, name: str, reason: str) -> None:
        """Note why a clip has no features; those of what it was before go."""
        with explained(self.folder):
            self.problems[name] = reason
            self.notes.pop(name, None)
            if self.fits(name):
                self._place(name).unlink(missing_ok=True)

    def fits(self, name: str) -> bool:
        """Whether a file can have the name of the clip."""
        return len(os.fsencode(f"{name}.npy")) <= _LONGEST_NAME

    def write_header(self) -> None:
        """Write what is known now into ``features.json``."""
        known = {"problems": self.problems, "notes": self.notes}
        write_json(self.folder / HEADER, self._header.model_copy(update=known).model_dump(mode="json"))

    def close(self) -> None:
        """Write the problems and let other runs in."""
        try:
            with explained(self.folder):
                (self.folder / _WRITING).unlink(missing_ok=True)
                self.write_header()
        finally:
            self._lock.release()

    def _begun(self, wanted: ClipFeaturesHeader) -> ClipFeaturesHeader:
        if not (self.folder / HEADER).exists():
            write_json(self.folder / HEADER, wanted.model_dump(mode="json"))
            return wanted
        found = parse(ClipFeaturesHeader, read_json(self.folder / HEADER), str(self.folder / HEADER))
        expect_same(self.folder, _plan(found), _plan(wanted))
        return found

    def _place(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


def _plan(header: ClipFeaturesHeader) -> Mapping[str, Any]:
    return header.model_dump(mode="json", exclude={"problems", "notes"})

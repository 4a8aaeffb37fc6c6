"""A training run on disk.

::

    RUN/run.json                  recipe, data and versions of the run; written first
    RUN/checkpoint.json           {"folder": "checkpoint-…"}: the current checkpoint
    RUN/checkpoint-00000120/      state.safetensors (weights, optimizer, EMA) and state.json (position)
    RUN/model-00000120/           a model for vse.load
    RUN/best, last, averaged      links to models
    RUN/frames/                   the training videos in one array, during the run; can be deleted
    RUN/metrics.jsonl             one line for each step and epoch; reproducible bit for bit
    RUN/timings.jsonl             seconds; not reproducible
    RUN/result.json, curves.png   written at the end

Commit protocol. A checkpoint is written into a hidden folder, flushed to disk, and renamed; then ``checkpoint.json``
is replaced atomically, which makes it the current one; then older checkpoints are removed. Models are written the same
way; links to them are replaced atomically, and unused models removed, after the checkpoint that refers to them is
current. A killed process leaves at most hidden files and folders behind, which the next one removes. The state holds
the size of ``metrics.jsonl``: what a killed process wrote after it is truncated when the run resumes.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from vse._util.atomic import settle, sync_folder, write_json
from vse._util.locks import NAME as LOCK
from vse._util.strict import read_json
from vse.errors import InputError, VSEError, first_line, require
from vse.models.storage import read_weights

RUN, POINTER, METRICS, TIMINGS, RESULT, CURVES = (
    "run.json",
    "checkpoint.json",
    "metrics.jsonl",
    "timings.jsonl",
    "result.json",
    "curves.png",
)
STATE, TENSORS = "state.json", "state.safetensors"
FRAMES = "frames"
LINKS = ("best", "last", "averaged")
HIDDEN = ".writing-"
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}  # errors of filesystems without links, where models are copied


class RunFolder:
    """Read and write one run; the caller holds its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def clear_leftovers(self) -> None:
        """Remove what a killed process was writing, and nothing else."""
        for left in self.path.glob(".*"):
            if left.name == LOCK or not is_leftover(left.name):
                continue
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)

    def read_checkpoint(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return state and tensors of the current checkpoint, None before the first one."""
        pointer = self.path / POINTER
        if not pointer.is_file():
            return None
        folder = self.path / str(read_json(pointer).get("folder", ""))
        if not (folder / STATE).is_file():
            raise InputError(f"{pointer} names {folder.name}, which is not there: restore it, or use another folder")
        tensors, _ = read_weights(folder / TENSORS)
        return read_json(folder / STATE), tensors

    def write_checkpoint(self, step: int, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Write a checkpoint and make it the current one; if that fails, the previous one stays."""
        safetensors = require("safetensors.torch", "train", "saving a checkpoint")
        before = str(read_json(self.path / POINTER)["folder"]) if (self.path / POINTER).is_file() else ""
        name = f"checkpoint-{step:08d}"
        if before == name:  # a run that was stopped at the last step of an epoch saves again when the epoch is closed
            name += "-again"

        def write(folder: Path) -> None:
            flat = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
            safetensors.save_file(flat, folder / TENSORS)
            settle(folder / TENSORS)
            write_json(folder / STATE, state)

        self._install(name, write)
        with explained(self.path / POINTER):
            write_json(self.path / POINTER, {"folder": name})
        for old in self.path.glob("checkpoint-*/"):
            if old.name != name:
                shutil.rmtree(old, ignore_errors=True)

    def write_model(self, name: str, save: Callable[[Path], object]) -> None:
        """Write the model ``name`` with ``save``; :meth:`show_models` links to it."""
        self._install(name, save)

    @property
    def frames(self) -> Path:
        """The packed frames of the training videos."""
        return self.path / FRAMES

    def write_frames(self, write: Callable[[Path], object]) -> None:
        """Pack the frames with ``write``, replacing others."""
        self._install(FRAMES, write)

    def remove_frames(self) -> None:
        """Remove the packed frames, which are rebuilt when missing."""
        shutil.rmtree(self.frames, ignore_errors=True)

    def show_models(self, models: Mapping[str, str]) -> None:
        """Link to these models, each atomically, and remove all other models.

        Call it when the checkpoint that refers to them is current. Links that copying the folder lost or turned into
        folders are restored.
        """
        for link, name in models.items():
            if not (self.path / name).is_dir():
                raise InputError(
                    f"{self.path / name}, the {link} model of this run, is missing: restore the whole folder"
                )
            if self._target(link) != name:
                self._set_link(link, name)
        for model in self.path.glob("model-*/"):
            if model.name not in models.values():
                shutil.rmtree(model, ignore_errors=True)

    def _target(self, link: str) -> str | None:
        path = self.path / link
        return path.readlink().name if path.is_symlink() else None

    def _set_link(self, link: str, name: str) -> None:
        place, temporary = self.path / link, self.path / f".{link}"
        with explained(place):
            _remove(temporary)
            try:
                temporary.symlink_to(name, target_is_directory=True)
            except OSError as error:
                if os.name != "nt" and error.errno not in NO_LINKS:
                    raise
                shutil.copytree(self.path / name, temporary)
            if not place.is_symlink():
                _remove(place)
            temporary.replace(place)

    def _install(self, name: str, write: Callable[[Path], object]) -> None:
        """Create a folder atomically."""
        staging = self.path / f"{HIDDEN}{name}"
        shutil.rmtree(staging, ignore_errors=True)
        try:
            with explained(self.path / name):
                staging.mkdir()
                write(staging)
                sync_folder(staging)
                shutil.rmtree(self.path / name, ignore_errors=True)  # of a run that was killed after this step
                staging.replace(self.path / name)
                sync_folder(self.path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of the disk into one line."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or "safetensor" in type(error).__name__.lower():
            raise VSEError(
                f"{path} could not be written ({_reason(error)}): the checkpoint before it is intact; "
                "make it writable or make room, and run the same command again to resume"
            ) from error
        raise


def is_leftover(name: str) -> bool:
    """Return whether a file of this name is our lock, or an incomplete file of a killed process."""
    writing = (HIDDEN, *(f".{each}." for each in (RUN, POINTER, RESULT)))
    return name == LOCK or name.startswith(writing) or name in {f".{link}" for link in LINKS}


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)

"""What folders of computed features have in common: whose they are, what they were begun with, full disks."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vse.errors import InputError, VSEError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def expect_own_folder(folder: Path, header: str) -> None:
    """Refuse a folder that holds other things: it must be new, empty, or have the file ``header``."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: expected a folder for the features")
    if folder.is_dir() and not (folder / header).exists():
        strange = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if strange:
            raise InputError(
                f"{folder} is no feature store and not empty, it holds {strange[0]!r}: name a folder of its own"
            )


def expect_same(folder: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a folder of something else: its features and ours would be mixed."""
    old, new = _flat(found), _flat(wanted)
    for key in (*old, *(key for key in new if key not in old)):
        if old.get(key) != new.get(key):
            raise InputError(another(folder, key, old.get(key), new.get(key)))


def another(folder: Path, key: str, old: object, new: object) -> str:
    """The message for a folder that was begun with another value."""
    return (
        f"{folder} was begun with {key} {old!r}, now it is {new!r}: "
        "call with what it was begun with, or choose another folder"
    )


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Errors of the file system as one line."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise VSEError(
                f"{folder}: the disk is full; what is done stays: make room and run the same command again"
            ) from error
        raise VSEError(f"{folder} cannot be written: {error.strerror or error}") from error


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``: a difference is told by its smallest name."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat.update({f"{key}.{k}": v for k, v in _flat(value).items()} if isinstance(value, dict) else {key: value})
    return flat

"""Write files atomically, so that a reader never sees a partial file."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

REPLACE_ATTEMPTS = 50
REPLACE_PAUSE = 0.02
"""Seconds between two attempts."""


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically and durably: write a temporary file beside it, sync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        replace_file(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def replace_file(source: Path, target: Path) -> None:
    """Rename a file over another one; on Windows, wait for readers, which have the target open for a moment."""
    for _ in range(REPLACE_ATTEMPTS if os.name == "nt" else 0):
        with suppress(PermissionError):
            source.replace(target)
            return
        time.sleep(REPLACE_PAUSE)
    source.replace(target)


def sync_folder(folder: Path) -> None:
    """Make created and replaced names in ``folder`` durable."""
    if os.name == "nt":  # folders cannot be opened there, and renames are durable already
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def settle(path: Path) -> None:
    """Sync a file that another library wrote, and give it the permissions of files written here."""
    path.chmod(0o644)
    with path.open("r+b") as file:  # Windows syncs only what is open for writing
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")

"""Image files as the file system sees them: there or not, empty, copies of each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from stat import S_ISREG


def file_size(path: Path) -> int | None:
    """Bytes of a file, None if there is no such file."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None
    return status.st_size if S_ISREG(status.st_mode) else None


def missing_files(paths: Iterable[Path]) -> list[Path]:
    """The paths that are no files."""
    return [path for path in paths if file_size(path) is None]


def file_digest(path: Path) -> bytes | None:
    """SHA-256 of the content, None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None

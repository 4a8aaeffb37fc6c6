"""A name for the content of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from vse.inputs.problem import BadMediaError, os_reason
from vse.inputs.regular import regular_size

DIGITS = 32
_BLOCK = 1 << 20


def digest(path: str | Path) -> str:
    """The first 32 hexadecimal digits of SHA-256 of the whole content, read in blocks.

    All of it, also of large clips: a digest of some parts would take an edited file for the old one where the edit lies
    between them. Processors have instructions for this hash, which is faster than most disks.
    """
    regular_size(path)
    found = hashlib.sha256()
    try:
        with Path(path).open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                found.update(block)
    except FileNotFoundError:
        raise BadMediaError(str(path), "no such file") from None
    except PermissionError:
        raise BadMediaError(str(path), "no permission to read it") from None
    except OSError as error:
        raise BadMediaError(str(path), os_reason(error)) from error
    return found.hexdigest()[:DIGITS]


def digest_of(content: bytes) -> str:
    """The same for content that was read already."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]

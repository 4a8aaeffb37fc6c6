"""Whether a folder is there, or only the place where its disk would be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vse.index.scan.problem import os_reason


def is_there(root: str | Path, known: int = 0) -> bool:
    """Whether ``root`` can be read now; ``known`` is the number of files that it held when it was last read.

    A folder that held files and is missing or empty counts as not there: the mount point of an absent disk looks like
    this, and to forget all files of a disk because it is unplugged would be worse than to remember some too long.
    """
    return why_absent(root, known) is None


def why_absent(root: str | Path, known: int = 0) -> str | None:
    """Why ``root`` is not there, None if it is. Hidden entries do not count: systems put them onto mount points."""
    try:
        if not stat.S_ISDIR(Path(root).stat().st_mode):
            return "not a folder"
        with os.scandir(root) as entries:
            empty = all(entry.name.startswith(".") for entry in entries)
    except FileNotFoundError:
        return "no such folder"
    except OSError as error:
        return f"cannot be read ({os_reason(error)})"
    except ValueError:  # a null character
        return "no such folder"
    if empty and known > 0:
        return f"empty, but held {known:,} files: is its disk mounted?"
    return None

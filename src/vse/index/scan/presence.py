"""Whether a folder is there, or only the place where its disk would be."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from vse.inputs.problem import os_reason


def why_absent(root: str | Path, known: int = 0) -> str | None:
    """Why ``root`` cannot be read now, None if it can; ``known`` files were in it when it was last read.

    A folder that held files and is missing or empty counts as not there: the mount point of an absent disk looks like
    this, and to forget all files of a disk because it is unplugged would be worse than to remember some too long.
    Hidden entries do not count: systems put them onto mount points.
    """
    try:
        if not stat.S_ISDIR(Path(root).stat().st_mode):
            return "not a folder"
        empty = _is_empty(root)
    except FileNotFoundError:
        return "no such folder"
    except OSError as error:
        return f"cannot be read ({os_reason(error)})"
    except ValueError:  # a null character
        return "no such folder"
    if empty and known > 0:
        return f"empty, but held {known:,} files: is its disk mounted?"
    return None


def empty_folders(root: str | Path, paths: Iterable[str]) -> dict[str, str]:
    """For those of the missing ``paths`` that may be on a disk that is away: the folder where it would be mounted.

    This is the first folder above the path that is there, if it is empty; both are places below ``root`` with ``/``
    between their parts. A folder that was removed has one above it that is not empty, so what lay in it has no entry
    here; a folder that a person emptied and left behind cannot be told from a mount point, and has.
    """

    @cache
    def nearest(folder: str) -> str | None:
        if not folder:
            return None  # whoever asks has found that the root is there
        try:
            return folder if _is_empty(Path(root) / folder) else None
        except (FileNotFoundError, NotADirectoryError):
            return nearest(folder.rpartition("/")[0])
        except OSError:
            return None

    found = ((path, nearest(path.rpartition("/")[0])) for path in paths)
    return {path: folder for path, folder in found if folder is not None}


def _is_empty(folder: str | Path) -> bool:
    with os.scandir(folder) as entries:
        return all(entry.name.startswith(".") for entry in entries)

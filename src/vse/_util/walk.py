"""Walk the files below a folder in a fixed order, follow links once, and report what cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path


def walk_files(root: Path, on_error: Callable[[str, OSError], None]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield every visible entry below ``root`` that is not a folder, depth first, each folder sorted by name.

    Files and folders whose names begin with a dot are skipped. Links are followed and each folder is visited once, so
    that a loop of links ends. A broken link is yielded as well: the caller decides by its name whether to report it.

    Args:
        root: The folder to walk.
        on_error: Called with the path below ``root`` (empty for ``root``) and the error of a folder that cannot be
            read. The walk continues.

    Yields:
        The path below ``root``, with ``/`` between its parts, and the entry.
    """
    seen: set[tuple[int, int]] = set()

    def enter(folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        place = root / folder
        try:
            status = place.stat()
            if (status.st_dev, status.st_ino) in seen:
                return iter(())
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(place) as listing:
                entries = sorted((entry for entry in listing if not entry.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:
            on_error(folder, error)
            return iter(())
        return iter([(f"{folder}/{entry.name}" if folder else entry.name, entry) for entry in entries])

    stack = [enter("")]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
        elif _is_folder(found[1]):
            stack.append(enter(found[0]))
        else:
            yield found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False

"""Walk the files below a folder in a fixed order, visit each folder once, and report what cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

Identity = tuple[int, int]
"""Device and inode."""


def walk_tree(
    root: Path,
    *,
    select: Callable[[str, os.DirEntry[str]], bool | None],
    enter: Callable[[str, int], bool | None],
    on_error: Callable[[str, OSError], None],
    on_listed: Callable[[], None] = lambda: None,
    visited: set[Identity] | None = None,
) -> Iterator[tuple[str, bool]]:
    """Yield the selected files below ``root`` in the order of their paths as strings.

    Only the names in the folders on the way to the current file are held in memory. Paths are relative to ``root`` and
    use ``/``; the path of ``root`` is empty. No folder is visited twice, so loops of links end.

    Args:
        root: The folder to walk.
        select: Called with the path of an entry and the entry; returns True to visit a folder, False to yield a file,
            None to skip it.
        enter: Called with the path and depth of a selected folder before it is visited; returns whether it is a link,
            or None to skip it.
        on_error: Called with the path of a folder that cannot be read, and the error. The walk continues.
        on_listed: Called after each folder is listed.
        visited: Device and inode of visited folders, shared with the caller.

    Yields:
        The path of a file, and whether a link leads to one of its folders.
    """
    seen: set[Identity] = set() if visited is None else visited

    def names_in(folder: str) -> Iterator[str]:
        """List a folder; names of folders end in ``/``, so that sorting names sorts whole paths."""
        place, prefix = root / folder, f"{folder}/" if folder else ""
        names: list[str] = []
        try:
            identity = folder_identity(place)
            if identity in seen:
                return iter(())
            if identity is not None:
                seen.add(identity)
            with os.scandir(place) as entries:
                for entry in entries:
                    is_folder = select(prefix + entry.name, entry)
                    if is_folder is not None:
                        names.append(f"{entry.name}/" if is_folder else entry.name)
        except OSError as error:
            on_error(folder, error)
        names.sort()
        on_listed()
        return iter(names)

    stack = [("", names_in(""), False)]
    while stack:
        prefix, names, linked = stack[-1]
        name = next(names, None)
        if name is None:
            stack.pop()
        elif not name.endswith("/"):
            yield prefix + name, linked
        else:
            path = prefix + name[:-1]
            is_link = enter(path, len(stack))
            if is_link is not None:
                stack.append((f"{path}/", names_in(path), linked or is_link))


def folder_identity(place: Path) -> Identity | None:
    """Return device and inode of a folder, None if it cannot be read.

    Windows has no inodes on some network drives: they are 0 there, and None is returned.
    """
    try:
        status = place.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status.st_ino else None


def walk_files(root: Path, on_error: Callable[[str, OSError], None]) -> Iterator[str]:
    """Yield the path below ``root`` of every visible file; links are followed, each folder once.

    Files and folders whose names begin with a dot are skipped. A broken link is yielded as well: the caller decides by
    its name whether to report it.

    Args:
        root: The folder to walk.
        on_error: Called with the path below ``root`` and the error of a folder that cannot be read.
    """

    def select(path: str, entry: os.DirEntry[str]) -> bool | None:
        if entry.name.startswith("."):
            return None
        try:
            return entry.is_dir()
        except OSError:  # a link to itself
            return False

    for path, _ in walk_tree(root, select=select, enter=lambda path, depth: False, on_error=on_error):
        yield path

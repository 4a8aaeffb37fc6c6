"""The clips of a folder and of the folders inside it, each under the name that its features will have."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vse.data.video_sources import stored_name
from vse.errors import InputError
from vse.inputs.files import (
    SNIFFED_BYTES,
    MediaKind,
    Problem,
    is_text,
    kind_of_bytes,
    kind_of_name,
    os_reason,
    worth_sniffing,
)
from vse.inputs.text import printable


@dataclass(frozen=True)
class NamedClips:
    """Clips with an id each; ``clips[i]`` is the path of one. ``problems`` are what could not be looked at."""

    paths: tuple[Path, ...]
    ids: tuple[str, ...]
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Path:
        return self.paths[operator.index(index)]


def find_clips(folder: str | os.PathLike[str]) -> NamedClips:
    """The clips in ``folder``, in the order of their paths, by the endings of their names (``vse.inputs.files``).

    An id is the path below the folder without the ending, with ``_`` for ``/``: the name under which the frames of a
    video are looked for. Two clips with one id are an error. Hidden files and folders are left out; links are followed,
    each folder once.
    """
    root = Path(folder)
    if not root.is_dir():
        said = "is no folder" if root.exists() else "does not exist"
        raise InputError(f"{printable(str(root))} {said}: expected a folder of clips")
    problems: list[Problem] = []
    found: dict[str, str] = {}
    for path, kind in sorted(media_files(root, problems)):
        if kind == "video":
            name = clip_id(path)
            if found.setdefault(name, path) != path:
                raise InputError(
                    f"{printable(str(root))}: {printable(found[name])} and {printable(path)} are both video "
                    f"{printable(name)!r}: rename one of them"
                )
    if not found:
        why = f" ({problems[0]})" if problems else ""
        raise InputError(f"{printable(str(root))}: no clips in it{why}: expected .mp4, .m4v, .mov, .webm, .mkv or .avi")
    return NamedClips(tuple(root / path for path in found.values()), tuple(found), tuple(problems))


def clip_id(path: str) -> str:
    """Such as ``2024_party`` for ``2024/party.mp4``."""
    folder, slash, name = path.rpartition("/")
    return stored_name(folder + slash + (name if kind_of_name(name) is None else name.rpartition(".")[0]))


def media_kinds(folder: Path) -> frozenset[MediaKind]:
    """Whether a folder holds pictures, clips or both; the search stops when both are found."""
    found: set[MediaKind] = set()
    for _, kind in media_files(folder, []):
        found.add(kind)
        if len(found) == 2:
            break
    return frozenset(found)


def media_files(root: Path, problems: list[Problem]) -> Iterator[tuple[str, MediaKind]]:
    """The path below ``root`` of every picture and clip, with its kind, in no particular order.

    A link to nothing counts as what its name says: better missed aloud than silently.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            status = (root / folder).stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(root / folder) as listing:
                entries = sorted((entry for entry in listing if not entry.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:
            problems.append(Problem(folder or ".", f"the folder cannot be read ({os_reason(error)})"))
            continue
        inside = []
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if _is_folder(entry):
                inside.append(path)
            elif (kind := _kind(entry)) is not None:
                if is_text(path):
                    yield path, kind
                else:
                    problems.append(Problem(path, "its name is not UTF-8: rename it"))
        waiting += reversed(inside)  # the first is taken next, so that of two ways to a folder the same one wins always


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _kind(entry: os.DirEntry[str]) -> MediaKind | None:
    kind = kind_of_name(entry.name)
    if kind is not None or not worth_sniffing(entry.name):
        return kind
    try:
        if not entry.is_file():
            return None
        with Path(entry.path).open("rb") as file:
            return kind_of_bytes(file.read(SNIFFED_BYTES))
    except OSError:
        return None

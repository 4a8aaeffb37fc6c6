"""Find the images and videos that a path stands for, each with an id."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vse._util.walk import walk_files
from vse.data.dataset import ImageFiles
from vse.data.features import distinct_files
from vse.data.open import AUTO, list_splits, open_data
from vse.data.reading import ALL
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
class VideoFiles:
    """Videos as files; ``videos[i]`` is a path. ``problems`` are the files and folders that could not be read."""

    paths: tuple[Path, ...]
    ids: tuple[str, ...]
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Path:
        return self.paths[operator.index(index)]


def find_images(path: str | os.PathLike[str], *, layout: str = AUTO, split: str | None = None) -> ImageFiles:
    """Return the image files of a folder or dataset, each once.

    Args:
        path: A folder of images or a dataset.
        layout: A name in :data:`~vse.data.open.LAYOUTS`, or ``auto`` to detect it.
        split: One split of a dataset; all of them by default.

    Raises:
        InputError: If there are none, or an id names two files.
    """
    splits = (split,) if split is not None else list_splits(path, layout=layout) or (ALL,)
    found = [open_data(path, each, layout=layout, use="files").images for each in splits]
    files = [images for images in found if isinstance(images, ImageFiles)]
    if len(files) < len(found):
        raise InputError(f"{path} holds no image files but images inside larger files: unpack them into a folder")
    return distinct_files(files)


def find_videos(folder: str | os.PathLike[str]) -> VideoFiles:
    """Return the videos in ``folder`` and its subfolders, in the order of their paths.

    Videos are recognized by the suffix of their names, see :mod:`vse.inputs.files`. An id is the path below the folder
    without the suffix, with ``_`` for ``/``: the name under which the frames of a video are stored, such as
    ``2024_party`` for ``2024/party.mp4``. Hidden files and folders are skipped; links are followed, each folder once.

    Raises:
        InputError: If there are none, or two videos have the same id.
    """
    root = Path(folder)
    if not root.is_dir():
        reason = "is not a folder" if root.exists() else "does not exist"
        raise InputError(f"{printable(str(root))} {reason}: expected a folder of videos")
    problems: list[Problem] = []
    found: dict[str, str] = {}
    for path, kind in sorted(_media_files(root, problems)):
        if kind == "video":
            name = _video_id(path)
            if found.setdefault(name, path) != path:
                raise InputError(
                    f"{printable(str(root))}: {printable(found[name])} and {printable(path)} are both video "
                    f"{printable(name)!r}: rename one of them"
                )
    if not found:
        why = f" ({problems[0]})" if problems else ""
        raise InputError(
            f"{printable(str(root))}: no videos in it{why}: expected .mp4, .m4v, .mov, .webm, .mkv or .avi"
        )
    return VideoFiles(tuple(root / path for path in found.values()), tuple(found), tuple(problems))


def media_kinds(folder: Path) -> frozenset[MediaKind]:
    """Return whether a folder holds images, videos or both; the search stops when both are found."""
    found: set[MediaKind] = set()
    for _, kind in _media_files(folder, []):
        found.add(kind)
        if len(found) == 2:
            break
    return frozenset(found)


def _video_id(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return stored_name(folder + slash + (name if kind_of_name(name) is None else name.rpartition(".")[0]))


def _media_files(root: Path, problems: list[Problem]) -> Iterator[tuple[str, MediaKind]]:
    """Yield the path and kind of each image and video. A broken link counts as what its name says, to be reported."""

    def unreadable(folder: str, error: OSError) -> None:
        problems.append(Problem(folder or ".", f"the folder cannot be read ({os_reason(error)})"))

    for path in walk_files(root, unreadable):
        kind = _kind(root / path)
        if kind is not None:
            if is_text(path):
                yield path, kind
            else:
                problems.append(Problem(path, "its name is not UTF-8: rename it"))


def _kind(path: Path) -> MediaKind | None:
    kind = kind_of_name(path.name)
    if kind is not None or not worth_sniffing(path.name):
        return kind
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return kind_of_bytes(file.read(SNIFFED_BYTES))
    except OSError:
        return None

"""What the readers of all layouts share: options, names of splits, and how problems are reported."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vse.data.frames import FRAME_LIMIT
from vse.errors import InputError, unknown_choice

StrPath = str | os.PathLike[str]
Use = Literal["auto", "features", "files"]

OnProblem = Callable[[str, str], None]
"""Called with a kind, such as ``"empty caption"``, and a message with its location."""


def stop(kind: str, message: str) -> None:
    """Raise the problem as an error, the default. A check collects problems instead."""
    raise InputError(message)


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading a split, as in :func:`vse.data.open_data`; ``on_problem`` is called for each problem."""

    images: Path | None = None
    use: Use = "auto"
    features: StrPath | None = None
    frame_limit: int | None = FRAME_LIMIT
    on_problem: OnProblem = stop

    def image_folder(self) -> Path | None:
        """Return ``images`` after checking that it is a folder, None if it was not given."""
        if self.images is not None and not self.images.is_dir():
            raise InputError(
                f"images={str(self.images)!r} is not a folder: expected the one that holds the image files"
            )
        return self.images

    def expect_files(self, path: Path, layout: str) -> None:
        """Refuse ``use="features"`` for a layout that has only image files."""
        if self.use == "features":
            raise InputError(f"{path}: use='features', but layout {layout!r} holds image files: leave use out")


def expect_images(path: Path, split: str, count: int) -> None:
    """Refuse a split without images."""
    if count == 0:
        raise InputError(f"{path}, split {split!r}: zero images, expected at least one")


def first_folder(candidates: list[Path], sample: str) -> Path:
    """Return the first folder that holds the file ``sample``, else the first that exists, else the first.

    Only one file is checked: a dataset may have a hundred thousand of them on a slow disk.
    """
    for folder in candidates:
        if (folder / sample).is_file():
            return folder
    return next((folder for folder in candidates if folder.is_dir()), candidates[0])


ALL = "all"
"""The name of the only split of a dataset without splits."""

_SYNONYMS = {"dev": "val", "val": "dev"}
_USUAL_ORDER = ("train", "dev", "val", "test", "testall")


def in_usual_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names: train, dev and test first, then the others by name."""
    distinct = set(names)
    usual = [name for name in _USUAL_ORDER if name in distinct]
    return (*usual, *sorted(distinct.difference(usual)))


def find_split(wanted: str, available: Sequence[str], path: Path) -> str:
    """Return the name in ``available`` of the split ``wanted``; ``dev`` and ``val`` are synonyms."""
    if wanted in available:
        return wanted
    if _SYNONYMS.get(wanted) in available:
        return _SYNONYMS[wanted]
    if tuple(available) == (ALL,):
        raise InputError(
            f"{path}: unknown split {wanted!r}: there is no split column and no list of splits, "
            f"everything is in split {ALL!r}: use that"
        )
    raise InputError(f"{path}: {unknown_choice('split', wanted, available)}")

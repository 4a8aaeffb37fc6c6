"""Open a data set on disk, whichever layout it has."""

from __future__ import annotations

import os
from pathlib import Path

from vse.data.captioned_images import CaptionedImages, ImageFiles
from vse.data.image_files import missing_files
from vse.data.layouts import AUTO, LAYOUTS, find_layout
from vse.data.reading import ReadOptions, Use
from vse.data.splits import find_split
from vse.errors import InputError, unknown_choice

StrPath = str | os.PathLike[str]


def open_data(
    path: StrPath,
    split: str = "test",
    *,
    layout: str = AUTO,
    images: StrPath | None = None,
    use: Use = "auto",
    features: StrPath | None = None,
    check_files: bool = False,
) -> CaptionedImages:
    """One split of the data at ``path``.

    ``layout`` is ``auto`` or a name of :data:`~vse.data.layouts.LAYOUTS`; ``dev`` and ``val`` are the same split.
    ``images`` is the folder of the image files, if they are not where the layout has them. ``use`` chooses between the
    ``features`` and the ``files`` of a layout that has both; ``auto`` takes features unless ``images`` is given. Image
    files are not looked at unless ``check_files`` is set: a hundred thousand of them take their time. ``features`` are
    the frame features of videos: an hdf5 or npz file, a folder of arrays, or in the layout ``hgr`` the name of a kind.
    """
    if use not in {"auto", "features", "files"}:
        raise InputError(unknown_choice("use", use, ("auto", "features", "files")))
    where = Path(path)
    known = LAYOUTS[find_layout(where, layout)]
    if features is not None and not known.videos:
        raise InputError(
            f"--features {str(features)!r} (features= in Python) is for videos, and {where} holds images: leave it out"
        )
    available = known.splits(where)
    # Without any split the reader knows best what is wrong: a missing list, or rows of which none can be understood.
    name = find_split(split, available, where) if available else split
    data = known.read(where, name, ReadOptions(None if images is None else Path(images), use, features))
    if check_files and isinstance(data.images, ImageFiles):
        missing = missing_files(data.images.paths)
        if missing:
            raise InputError(
                f"{where}, split {name!r}: {len(missing)} of {len(data.images)} image files are missing, "
                f"{missing[0]} is the first: check the folder or pass images="
            )
    return data


def list_splits(path: StrPath, *, layout: str = AUTO) -> tuple[str, ...]:
    """The names of the splits, train, dev and test first."""
    return LAYOUTS[find_layout(Path(path), layout)].splits(Path(path))


def detect_layout(path: StrPath) -> str:
    """The name of the layout at ``path``."""
    return find_layout(Path(path))

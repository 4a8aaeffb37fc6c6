"""What the options of ``vse search`` mean: filters, weights and places, checked before a model is loaded."""

from __future__ import annotations

import math
import posixpath
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vse.errors import InputError, UsageError

if TYPE_CHECKING:
    from vse.index.filters import Filter

SHOWN = 60
"""Characters of a bad value that are repeated."""


def make_filter(
    kind: str | None, after: str | None, before: str | None, near: str | None, within: float | None
) -> Filter:
    """The filter of the options; None leaves a part out. The folder is added where the collection is known."""
    from vse.index.filter_words import read_filter

    try:
        return read_filter(kind, after, before, near, within, mark="--")
    except InputError as error:
        raise UsageError(str(error)) from None


def parse_weights(text: str | None, wanted: int) -> tuple[float, ...] | None:
    """Numbers above 0 separated by commas, one for each text, image and id."""
    if text is None:
        return None
    weights = []
    for part in text.split(","):
        try:
            weights.append(float(part))
        except ValueError:
            weights.append(math.nan)
        if not (math.isfinite(weights[-1]) and weights[-1] > 0):
            raise UsageError(
                f"--weights {text[:SHOWN]!r}: {part.strip()[:SHOWN]!r} is not a number above 0; write them like "
                '"1,0.3", and what is not wanted with --not'
            )
    if len(weights) != wanted:
        raise UsageError(
            f"--weights {text[:SHOWN]!r}: {len(weights)} for {wanted} texts, images and ids: expected one for each, "
            "in this order"
        )
    return tuple(weights)


def in_folder(where: Filter, folder: str | None, roots: tuple[str, ...]) -> Filter:
    """The filter for what lies in a folder too: a place below any root, or a whole path as results show it."""
    if folder is None:
        return where
    if not folder.startswith("/"):
        try:
            return replace(where, folder=folder)
        except InputError as error:
            raise UsageError(f"--folder: {error}") from None
    path = Path(posixpath.normpath("/" + folder.strip("/")))
    for root in sorted(roots, key=len, reverse=True):
        if path.is_relative_to(root):
            return replace(where, root=root, folder=path.relative_to(root).as_posix())
    known = ", ".join(roots[:3]) + (" …" if len(roots) > 3 else "")
    raise UsageError(f"--folder {folder[:SHOWN]!r}: expected a folder below one that was indexed ({known})")


def check_evidence_folder(folder: Path | None) -> None:
    """A folder, or a place where one can be made."""
    for place in () if folder is None else (folder, *folder.parents):
        if place.is_dir():
            return
        if place.exists():
            raise UsageError(f"--evidence {str(folder)!r}: {str(place)!r} is a file, expected a folder")

"""Which row of a feature file is which image, and which captions describe it.

A file has either one row an image, with M captions for each (M = captions / rows), or one row a caption, each image
repeated for its captions. The counts tell the two apart; in the second case the ids or the rows themselves tell
where an image ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.data.repetition import Neighbours, compare_neighbours
from vse.errors import InputError


@dataclass(frozen=True)
class Assignment:
    """``rows (I,)``: the row of each image; ``owners (captions,)``: the image of each caption; ``ids`` if known."""

    rows: NDArray[np.int64]
    owners: NDArray[np.int64]
    ids: tuple[str, ...] | None


def assign_rows(array: NDArray[Any], captions: int, ids: Sequence[str] | None, name: str) -> Assignment:
    """Assign rows and captions to images; ``name`` is how errors call the split."""
    rows = len(array)
    if captions == 0 or captions % rows:
        raise InputError(
            f"{name}: {captions} captions for {rows} feature rows: expected a row for each caption or for each image, "
            "so that captions are a multiple of rows"
        )
    if captions > rows:
        each = captions // rows
        owners = np.repeat(np.arange(rows), each)
        return Assignment(np.arange(rows), owners, _image_ids(ids, rows, each, name))
    seen = compare_neighbours(array)
    if ids is None:
        return _repeated(rows, _factor(seen, name), None)
    if len(ids) == rows:
        assignment = group_by_id(ids)
        _agree(seen, assignment.owners, name)
        return assignment
    if len(ids) and rows % len(ids) == 0:
        assignment = _repeated(rows, rows // len(ids), tuple(ids))
        _agree(seen, assignment.owners, name)
        return assignment
    raise InputError(
        f"{name}: {len(ids)} ids for {rows} feature rows: expected one id for each row, or for each image if every "
        "image is repeated equally often"
    )


def assign_ids(ids: Sequence[str], captions: int, name: str) -> Assignment:
    """Assign captions to images by the ids alone: one id a caption, or one an image with equally many captions."""
    if captions == 0 or not ids or captions % len(ids):
        raise InputError(
            f"{name}: {captions} captions for {len(ids)} ids: expected an id for each caption or for each image, "
            "so that captions are a multiple of ids"
        )
    if captions == len(ids):
        return group_by_id(ids)
    return Assignment(np.arange(len(ids)), np.repeat(np.arange(len(ids)), captions // len(ids)), tuple(ids))


def group_by_id(ids: Sequence[str]) -> Assignment:
    """One id a row and a caption: equal ids are one image, wherever they stand; its row is the first of them."""
    first: dict[str, int] = {}
    owners = np.array([first.setdefault(image, len(first)) for image in ids], dtype=np.int64)
    rows = np.unique(owners, return_index=True)[1]
    return Assignment(rows.astype(np.int64), owners, tuple(first))


def _repeated(rows: int, factor: int, ids: tuple[str, ...] | None) -> Assignment:
    return Assignment(np.arange(0, rows, factor), np.arange(rows) // factor, ids)


def _image_ids(ids: Sequence[str] | None, images: int, each: int, name: str) -> tuple[str, ...] | None:
    """Ids of a file with one row an image: as they are, or one of every ``each`` if there is one a caption."""
    if ids is None or len(ids) == images:
        return None if ids is None else tuple(ids)
    if len(ids) != images * each:
        raise InputError(
            f"{name}: {len(ids)} ids for {images} feature rows and {images * each} captions: "
            "expected one id for each row or for each caption"
        )
    for caption, image_id in enumerate(ids):
        owner = ids[caption - caption % each]
        if image_id != owner:
            raise InputError(
                f"{name}: id {image_id!r} on line {caption + 1} differs from {owner!r} of the same feature row: "
                f"expected {each} equal lines for each row"
            )
    return tuple(ids[::each])


def _factor(seen: Neighbours, name: str) -> int:
    factor = seen.factor
    if factor is None:
        raise InputError(
            f"{name}: all feature rows that were looked at are equal: expected different images, extract them again"
        )
    if factor == 1 and seen.mostly_equal:
        raise InputError(
            f"{name}: feature rows are repeated irregularly (row {_odd_change(seen)} starts a new image): expected "
            "every image equally often, or a file of ids with one id for each row"
        )
    return factor


def _odd_change(seen: Neighbours) -> int:
    """The first change that does not fit the first run."""
    changes = seen.changes
    return int(next((c for c in changes if c % changes[0]), changes[0]))


def _agree(seen: Neighbours, owners: NDArray[np.int64], name: str) -> None:
    """Refuse ids that contradict the rows: one id for different rows, or a new id for each copy of a row."""
    same_image = owners[seen.positions] == owners[seen.positions - 1]
    torn = seen.positions[same_image & ~seen.equal]
    if torn.size:
        raise InputError(
            f"{name}: feature rows {torn[0] - 1} and {torn[0]} differ, but by the ids they are one image: "
            "expected equal rows for equal ids"
        )
    factor = seen.factor
    if seen.changes.size and factor is not None and factor > 1 and not same_image.any():
        raise InputError(
            f"{name}: every feature row is repeated {factor} times, but the ids call each copy another image: "
            "expected ids of images, not of captions; remove the file of ids to go without"
        )

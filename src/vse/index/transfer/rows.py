"""One row of metadata, as JSON, CSV and Parquet files hold it, and the file of a collection that it describes."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.index.types import Item, MediaFile, Moment, Vectors
from vse.inputs.files import MediaKind

EMBEDDING = "embedding"
"""Default name of the column that holds embeddings."""
DEFAULT_ROOT = "imported"
MAX_ID_BYTES = 4096
MAX_TEXT = 100_000
"""Characters of one text."""
MAX_TEXTS = 1000
"""Keywords or captions of one file."""
MAX_MOMENTS = 100_000
"""Moments of one file."""
SMALLEST = 1e-30
"""A shorter vector counts as zero."""
UNIT = 9e-4
"""How far the length of a vector may be from 1 for it to be stored as it is; a collection allows 1e-3."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXTS = ("camera", "place", "title", "description", "ocr", "digest")
_LISTS = ("keywords", "captions")
_COUNTS = ("size", "modified", "width", "height", "metadata_version")
_NUMBERS = ("latitude", "longitude", "duration", "start", "end")
METADATA = "metadata"
"""Column of a JSON object, as ``vse embed`` writes it, whose fields count as columns where there are none."""
COLUMNS = ("id", "path", "root", "kind", "taken", *_TEXTS, *_LISTS, "caption", *_COUNTS, *_NUMBERS, METADATA)
"""Columns that are read; others are ignored, and reported."""
_KNOWN = frozenset(COLUMNS)
_NOT_IN_METADATA = frozenset({"id", "path", "root", METADATA})


class RowError(ValueError):
    """A row cannot be used; the message completes "row 7: "."""


def unit_rows(vectors: NDArray[Any]) -> tuple[Vectors, dict[int, str]]:
    """Return vectors ``(n, D)`` with unit length, and why rows have none; a unit vector is returned unchanged."""
    wide = np.asarray(vectors, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(wide, axis=1)
    finite = np.isfinite(wide).all(axis=1) & np.isfinite(lengths)
    bad = {int(row): "the embedding holds NaN or infinity" for row in np.flatnonzero(~finite)}
    zero = finite & (lengths < SMALLEST)
    bad |= {int(row): "the embedding is zero, and has no direction" for row in np.flatnonzero(zero)}
    usable = np.where(np.abs(lengths - 1) <= UNIT, 1.0, lengths)
    usable[list(bad)] = 1.0
    result = (wide / usable[:, None]).astype(np.float32)
    return result, bad


def read_file(row: Mapping[str, Any], vector: Vectors, *, root: str | None, modified: int) -> tuple[MediaFile, Moment]:
    """Return the file that a row describes, and the moment of its embedding.

    Args:
        row: Values by column; missing ones, None and empty texts count as absent.
        vector: The unit embedding of the row ``(D,)``.
        root: The folder that ids are relative to, unless the row has a ``root``.
        modified: Time of the last change of a row that has none, in nanoseconds since 1970.

    Raises:
        RowError: A value is missing or invalid.
    """
    given = {name: value for name, value in row.items() if name in _KNOWN and not _is_absent(name, value)}
    if METADATA in given:
        given = {**_metadata(given.pop(METADATA)), **given}
    found_root = _text("root", given.pop("root", root or DEFAULT_ROOT))
    path = _path(given, found_root)
    kind = given.pop("kind", "image")
    if kind not in ("image", "video"):
        raise RowError(f"kind {str(kind)[:60]!r}: expected image or video")
    caption = given.pop("caption", None)
    values: dict[str, Any] = {name: _READERS[name](name, value) for name, value in given.items() if name in _READERS}
    if caption is not None and "captions" not in given:
        values["captions"] = (_text("caption", caption),)
    numbers = {name: values.pop(name) for name in _NUMBERS if name in values}
    start, end = numbers.pop("start", None), numbers.pop("end", None)
    if (start is None) != (end is None) or (start is not None and end is not None and not 0 <= start <= end):
        raise RowError(f"a moment from {start} to {end}: expected 0 ≤ start ≤ end in seconds, or neither")
    if abs(numbers.get("latitude", 0)) > 90 or abs(numbers.get("longitude", 0)) > 180:
        raise RowError("latitude or longitude out of range: expected -90 to 90 and -180 to 180")
    values = {"size": 0, "modified": modified, "width": 0, "height": 0, **values, **numbers}
    values.setdefault("digest", hashlib.blake2b(vector.tobytes(), digest_size=20).hexdigest())
    file = MediaFile(root=found_root, path=path, kind=cast("MediaKind", kind), **values)
    return file, Moment(vector, start, end)


def write_row(item: Item) -> dict[str, Any]:
    """Return the values of an item that :func:`read_file` reads; absent ones are left out."""
    file = item.file
    values: dict[str, Any] = {"id": file.path}
    for field in fields(MediaFile):
        value = getattr(file, field.name)
        if field.name == "path" or value is None or value == ():
            continue
        values[field.name] = list(value) if isinstance(value, tuple) else value
    if item.start is not None:
        values |= {"start": item.start, "end": item.end}
    return values


def mark_of(file: MediaFile, moments: Sequence[Moment]) -> bytes:
    """Return a hash of everything that an import stores, except ``modified``: equal ones need not be written again."""
    same = replace(file, modified=0)
    state = hashlib.blake2b(digest_size=16)
    state.update(json.dumps([getattr(same, field.name) for field in fields(MediaFile)]).encode())
    for moment in moments:
        state.update(json.dumps([moment.start, moment.end]).encode())
        state.update(np.ascontiguousarray(moment.vector, np.float32).tobytes())
    return state.digest()


def _metadata(value: Any) -> dict[str, Any]:
    """Return the fields of a JSON object that are columns; what else a program stored there is left out."""
    try:
        fields_found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return {}
    if not isinstance(fields_found, dict):
        return {}
    known = _KNOWN - _NOT_IN_METADATA
    return {name: each for name, each in fields_found.items() if name in known and not _is_absent(name, each)}


def _is_absent(name: str, value: Any) -> bool:
    """Return whether there is no value; an empty ``ocr`` says that an image holds no text."""
    return value is None or (value == "" and name != "ocr") or (isinstance(value, float) and math.isnan(value))


def _path(given: Mapping[str, Any], root: str) -> str:
    value = given.get("id", given.get("path"))
    if value is None:
        raise RowError("neither 'id' nor 'path': expected a name that identifies the row")
    path = str(value) if isinstance(value, int) and not isinstance(value, bool) else _text("id", value)
    if path.startswith(f"{root.rstrip('/')}/"):
        path = path[len(root.rstrip("/")) + 1 :]
    if path.startswith("/"):
        raise RowError(f"id {path[:60]!r} begins with '/': expected a path below the root, which --root names")
    if not path or "\0" in path or len(path.encode()) > MAX_ID_BYTES:
        raise RowError(f"id {path[:60]!r}: expected 1 to {MAX_ID_BYTES:,} bytes without NUL")
    return path


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise RowError(f"{name} is {type(value).__name__}, expected a text")
    if len(value) > MAX_TEXT:
        raise RowError(f"{name} has {len(value):,} characters, at most {MAX_TEXT:,}")
    if not value.isascii() and _SURROGATE.search(value):
        raise RowError(f"{name} holds a lone surrogate, expected UTF-8")
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """Return a list of texts; a table has them in one cell, separated by semicolons."""
    parts = [part.strip() for part in value.split(";") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or len(parts) > MAX_TEXTS:
        raise RowError(f"{name}: expected a list of at most {MAX_TEXTS:,} texts, or texts separated by ';'")
    return tuple(_text(name, part) for part in parts)


def _number(name: str, value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise RowError(f"{name} {str(value)[:60]!r}: expected a finite number")
    return number


def _count(name: str, value: Any) -> int:
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    if number is None and isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        number = int(value[:20])
    if number is None and isinstance(value, float) and value.is_integer():
        number = int(value)
    lowest = -(2**63) if name == "modified" else 0
    if number is None or not lowest <= number < 2**63:
        raise RowError(f"{name} {str(value)[:60]!r}: expected a whole number of at least {lowest}")
    return number


def _time(name: str, value: Any) -> float:
    """Return local time in seconds since 1970 as if in UTC, from a number, a date, or a text in ISO 8601."""
    if isinstance(value, str) and not value.replace(".", "", 1).lstrip("-").isdigit():
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise RowError(f"taken {value[:60]!r}: expected seconds since 1970, or a date like 2024-05-31") from None
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).timestamp()
    return _number(name, value)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(_TEXTS, _text),
    **dict.fromkeys(_LISTS, _texts),
    **dict.fromkeys(_COUNTS, _count),
    **dict.fromkeys(_NUMBERS, _number),
    "taken": _time,
}


def check_columns(columns: Sequence[str], place: str, embedding: str | None) -> list[str]:
    """Return the columns that are ignored.

    Raises:
        InputError: No column identifies a row, or the one of the embeddings is missing.
    """
    if not {"id", "path"} & set(columns):
        shown = ", ".join(map(str, columns[:8])) or "none"
        raise InputError(f"{place} has no column 'id' or 'path' to name its rows (its columns: {shown})")
    if embedding is not None and embedding not in columns:
        raise InputError(f"{place} has no column {embedding!r}: name the one of the embeddings with --column")
    return [name for name in columns if name not in COLUMNS and name != embedding]

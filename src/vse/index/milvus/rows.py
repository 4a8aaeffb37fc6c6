"""What the columns of a row hold."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from vse.errors import InputError
from vse.index.collection import Entry, Item, Vectors
from vse.index.media_file import MediaFile, Place
from vse.index.milvus.schema import DIGEST_BYTES, NAME_BYTES, NEVER
from vse.index.milvus.state import MOST_BYTES
from vse.index.milvus.texts import from_stored, to_stored

Row = dict[str, Any]
_TEXTS = {"root": NAME_BYTES, "path": NAME_BYTES, "digest": DIGEST_BYTES, "kind": 16}
_WHOLE = ("size", "modified", "width", "height")
_REAL = ("taken", "latitude", "longitude", "duration")


def place_key(place: Place) -> str:
    """SHA-256 of root and path, by which a file is looked up."""
    text = f"{len(place[0])}:{place[0]}{place[1]}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_columns(file: MediaFile) -> Row:
    """The columns that describe the file; values that Milvus cannot hold are an error."""
    name = f"{file.root}/{file.path}"
    row: Row = {"place": place_key((file.root, file.path))}
    for column, most in _TEXTS.items():
        row[column] = _bounded(name, column, to_stored(getattr(file, column)), most)
    for column in _WHOLE:
        value = int(getattr(file, column))
        if not -(2**63) <= value < 2**63:
            raise InputError(f"{name} has {column} {value}: expected 64 bits at most")
        row[column] = value
    for column in _REAL:
        value = getattr(file, column)
        if value is not None and not math.isfinite(value):
            raise InputError(f"{name} has {column} {value}: expected a finite number, or None")
        row[column] = _real(value)
    row["captions"] = _bounded(
        name, "captions", json.dumps([to_stored(text) for text in file.captions], ensure_ascii=False), MOST_BYTES
    )
    return row


def item_rows(entry: Entry, items: Sequence[int], batch: int, row: int) -> list[Row]:
    """A row for each moment, with keys from ``row`` on and the ids ``items``."""
    file = file_columns(entry.file)
    return [
        {
            "row": row + position, "born": batch, "died": NEVER, "item": item, "position": position, **file,
            "start": _real(moment.start), "end": _real(moment.end), "vector": moment.vector,
        }
        for position, (item, moment) in enumerate(zip(items, entry.moments, strict=True))
    ]  # fmt: skip


def caption_row(text: str, vector: Vectors, first: int, batch: int, row: int, caption: int) -> Row:
    """A caption of the file whose first item has id ``first``."""
    return {
        "row": row, "born": batch, "died": NEVER, "caption": caption, "first": first, "text": to_stored(text),
        "vector": vector,
    }  # fmt: skip


def file_of(row: Row) -> MediaFile:
    """The file whose item this is."""
    values = {each.name: row[each.name] for each in fields(MediaFile) if each.name != "captions"}
    values |= {column: from_stored(row[column]) for column in _TEXTS}
    return MediaFile(**values, captions=captions_of(row))


def captions_of(row: Row) -> tuple[str, ...]:
    """The captions of an item's file."""
    return tuple(from_stored(text) for text in json.loads(row["captions"]))


def item_of(row: Row) -> Item:
    """The item of a row."""
    return Item(row["item"], file_of(row), row["start"], row["end"])


def vectors_of(rows: Sequence[Row], dimensions: int) -> Vectors:
    """Their vectors (n, D)."""
    return np.array([row["vector"] for row in rows], np.float32).reshape(len(rows), dimensions)


def _bounded(name: str, column: str, text: str, most: int) -> str:
    size = len(text.encode())
    if size > most:
        raise InputError(f"{name} has {column} of {size} bytes as stored: Milvus takes {most} at most, shorten it")
    return text


def _real(value: float | None) -> float | None:
    return None if value is None else float(value)

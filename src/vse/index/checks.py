"""Validate what is added and what is queried, and retry when a concurrent writer removes a hit."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import TypeVar

import numpy as np

from vse.errors import InputError, VSEError
from vse.index.filters import Filter
from vse.index.types import Collection, Entry, Place, Vectors
from vse.models.sources import NAMES

T = TypeVar("T")
UNIT_TOLERANCE = 1e-3
MAX_TRIES = 20
"""Attempts at a read that a concurrent writer disturbs."""


def check_entry(entry: Entry, dimensions: int) -> None:
    """Require at least one moment, unit embeddings, ordered finite times, and one embedding per caption or none."""
    name = f"{entry.file.root}/{entry.file.path}"
    if not entry.moments:
        raise InputError(f"{name} has no embeddings, expected at least one moment: leave the file out")
    for moment in entry.moments:
        check_vectors(moment.vector, (dimensions,), name)
        span = moment.start, moment.end
        if span != (None, None) and (None in span or not all(map(math.isfinite, span)) or span[0] > span[1]):  # type: ignore[arg-type, operator]
            raise InputError(
                f"{name} has a moment from {span[0]} to {span[1]}: expected start ≤ end in seconds, or None twice"
            )
    file = entry.file
    for field in ("taken", "latitude", "longitude", "duration"):
        value = getattr(file, field)
        if value is not None and not math.isfinite(value):
            raise InputError(f"{name} has {field} {value}: expected a finite number, or None")
    if entry.caption_vectors is not None:
        check_vectors(entry.caption_vectors, (len(file.captions), dimensions), f"{name} (captions)")


def check_vectors(vectors: Vectors, shape: tuple[int, ...], name: str) -> None:
    """Require float32 of this shape, finite, with unit length along the last axis (tolerance 1e-3)."""
    if not isinstance(vectors, np.ndarray) or vectors.dtype != np.float32 or vectors.shape != shape:
        found = f"{vectors.dtype} {vectors.shape}" if isinstance(vectors, np.ndarray) else type(vectors).__name__
        raise InputError(f"{name}: vector is {found}, expected float32 {shape}: encode it with the collection's model")
    lengths = np.linalg.norm(vectors, axis=-1)
    if not np.isfinite(lengths).all():
        raise InputError(
            f"{name}: vector is not finite, expected a unit vector: the file could not be encoded, leave it out"
        )
    off = float(np.abs(lengths - 1).max(initial=0))
    if off > UNIT_TOLERANCE:
        raise InputError(f"{name}: vector has a length off 1 by {off:.3g}, expected a unit vector: normalise it")


def check_captions(captions: Mapping[str, Vectors] | None, dimensions: int) -> Mapping[str, Vectors]:
    """Return embeddings of captions by text; require unit vectors."""
    for text, vector in (captions or {}).items():
        check_vectors(vector, (dimensions,), f"caption {text[:60]!r}")
    return captions or {}


def check_distinct(what: str, places: Iterable[Place]) -> None:
    """Raise if a file occurs twice; ``what`` completes the error message."""
    seen: set[Place] = set()
    for place in places:
        if place in seen:
            raise InputError(f"{place[0]}/{place[1]} is {what}: name each file once")
        seen.add(place)


def check_dimensions(dimensions: int) -> int:
    """Return ``dimensions``; raise if below 1."""
    if dimensions < 1:
        raise InputError(f"dimensions {dimensions}: expected at least 1, the width of the model's embeddings")
    return dimensions


def check_page(k: int, offset: int) -> tuple[int, int]:
    """Return ``k`` (at least 1) and ``offset`` (at least 0) as plain integers."""
    if not isinstance(k, Integral) or k < 1:
        raise InputError(f"k {str(k)[:60]}: expected a whole number of at least 1")
    if not isinstance(offset, Integral) or offset < 0:
        raise InputError(f"offset {str(offset)[:60]}: expected a whole number of at least 0")
    return int(k), int(offset)


def model_mismatch_error(
    where: str, held: str, held_source: str, given: str, given_source: str | None = None
) -> InputError:
    """Return the error for a model whose embeddings cannot be compared with those of a collection.

    Args:
        where: Address of the collection.
        held: Fingerprint of the model that encoded the collection.
        held_source: Folder or name of that model.
        given: Fingerprint of the other model.
        given_source: Folder or name of the other model, if known.
    """
    command = f"vse collection upgrade {shlex.quote(where)} --model {shlex.quote(given_source or 'MODEL')}"
    if given_source == held_source and held_source in NAMES:  # the bundled model differs between versions
        return InputError(
            f"{where} holds embeddings of model {held}, and the {held_source!r} model of this version of vse is "
            f"{given}: name the former with --model (a clone has it in src/vse/models/shipped), or re-encode all "
            f"files: {command}"
        )
    return InputError(
        f"{where} holds embeddings of model {held} ({held_source}), not of {given}: use that model, or re-encode all "
        f"files: {command}"
    )


class _StaleHitError(Exception):
    """A hit was removed between the search and the read."""


def read_hits(read: Callable[[Sequence[int]], T], ids: Sequence[int]) -> T:
    """Return ``read(ids)`` inside :func:`retry_on_stale_hits`; ``read`` is ``Collection.items`` or ``.vectors``."""
    try:
        return read(ids)
    except InputError as error:  # the ids come from the collection itself, so they can only be stale
        raise _StaleHitError from error


def retry_on_stale_hits(ask: Callable[[], T]) -> T:
    """Return ``ask()``, retrying when a concurrent writer removed a hit between its steps.

    Raises:
        VSEError: The collection changed during each of :data:`MAX_TRIES` attempts.
    """
    for _ in range(MAX_TRIES):
        try:
            return ask()
        except _StaleHitError:
            continue
    raise VSEError(
        f"the collection changed {MAX_TRIES} times while it was searched: retry when fewer changes are written"
    )


SAMPLED_ITEMS = 256
"""Items that supply folder names for suggestions; listing all files would take too long."""
NAMED_FOLDERS = 3


def suggest_folder(collection: Collection, vector: Vectors, where: Filter | None) -> None:
    """Raise an error with a suggestion when the folder of a filter holds no file.

    It takes one search per part of the folder, so call it only after an empty result, inside
    :func:`retry_on_stale_hits`. Any query ``vector (D,)`` will do.
    """
    if where is None or (where.folder is None and where.root is None):
        return
    parts = [] if where.folder is None else where.folder.split("/")
    if _paths(collection, vector, where.root, parts, 1):
        return
    shown = "/".join([*([where.root.rstrip("/")] if where.root is not None else []), *parts])
    raise InputError(f"no file lies in folder {shown[:200]!r}: {_hint(collection, vector, where.root, parts)}")


def _hint(collection: Collection, vector: Vectors, root: str | None, parts: list[str]) -> str:
    from difflib import get_close_matches

    for depth in range(len(parts) - 1, -1, -1):
        paths = _paths(collection, vector, root, parts[:depth], SAMPLED_ITEMS)
        below = sorted({path.split("/")[depth] for path in paths if path.count("/") > depth})
        close = get_close_matches(parts[depth], below, n=1)
        if close:
            return f"did you mean {'/'.join([*parts[:depth], *close])!r}?"
        if paths and depth:
            return f"the nearest that holds files is {'/'.join(parts[:depth])!r}"
        if below:
            more = " …" if len(below) > NAMED_FOLDERS else ""
            return f"there are {', '.join(map(repr, below[:NAMED_FOLDERS]))}{more}"
    return "leave it out, or index it"


def _paths(collection: Collection, vector: Vectors, root: str | None, parts: list[str], count: int) -> list[str]:
    """Return the paths of up to ``count`` files in a folder."""
    hits = collection.search(vector, count, where=Filter(folder="/".join(parts), root=root))
    return [item.file.path for item in read_hits(collection.items, hits.ids.tolist())]

"""What the options of ``vse search`` mean: filters, weights and places, checked before a model is loaded."""

from __future__ import annotations

import math
import posixpath
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vse.errors import InputError, UsageError, unknown_choice

if TYPE_CHECKING:
    from vse.index.filters import Box, Filter
    from vse.index.media_file import MediaKind

KINDS = ("image", "video")
SHOWN = 60
"""Characters of a bad value that are repeated."""
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")


def make_filter(
    kind: str | None, after: str | None, before: str | None, near: str | None, within: float | None
) -> Filter:
    """The filter of the options; None leaves a part out. The folder is added where the collection is known."""
    from vse.index.filters import Filter

    if kind is not None and kind not in KINDS:
        raise UsageError(f"--type: {unknown_choice('type', kind[:SHOWN], KINDS)}")
    first = None if after is None else parse_date("--after", after)
    last = None if before is None else parse_date("--before", before)
    if first is not None and last is not None and first >= last:
        raise UsageError(f"--after {after} --before {before}: nothing lies between, {_mended(first, str(before))}")
    return Filter(kind=cast("MediaKind | None", kind), after=first, before=last, within=parse_place(near, within))


def parse_date(option: str, text: str) -> float:
    """The moment at which a year, a month or a day begins, in the manner of ``MediaFile.taken``."""
    match = _DATE.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        year, month, day = (int(part or 1) for part in match.groups())
        return datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:
        raise UsageError(f"{option} {text[:SHOWN]!r}: expected a date like 2024, 2024-05 or 2024-05-31") from None


def _mended(first: float, before: str) -> str:
    """What helps when ``--before`` is not behind ``first``: the date that follows, if all of it was meant."""
    following = _following(before.strip())
    if following is None or parse_date("--before", following) <= first:
        return "exchange them"
    return f"--before is where it ends: for all of {before.strip()} write --before {following}"


def _following(text: str) -> str | None:
    """The year, month or day after this one; None where the calendar ends."""
    year, *rest = (int(part) for part in text.split("-"))
    try:
        if not rest:
            return date(year + 1, 1, 1).isoformat()[:4]
        if len(rest) == 1:
            return date(year + rest[0] // 12, rest[0] % 12 + 1, 1).isoformat()[:7]
        return (date(year, *rest) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return None


def parse_place(near: str | None, within: float | None, default: float = 10.0) -> Box | None:
    """The box around LATITUDE,LONGITUDE; None without a place."""
    from vse.index.filters import box_around

    if near is None:
        if within is not None:
            raise UsageError(f"--within {within:g}: of which place? add --near LATITUDE,LONGITUDE")
        return None
    try:
        latitude, longitude = (float(part) for part in near.split(","))
    except ValueError:
        expected = "expected LATITUDE,LONGITUDE in degrees, like 48.14,11.58"
        raise UsageError(f"--near {near[:SHOWN]!r}: {expected}") from None
    try:
        return box_around(latitude, longitude, default if within is None else within)
    except InputError as error:
        raise UsageError(f"--near {near[:SHOWN]!r}: {error}") from None


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

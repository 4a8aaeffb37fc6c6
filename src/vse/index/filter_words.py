"""Filters as people write them: kinds, dates and places in words and digits."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, cast

from vse.errors import InputError, unknown_choice
from vse.index.filters import Box, Filter, box_around

if TYPE_CHECKING:
    from vse.inputs.formats import MediaKind

KINDS = ("image", "video")
SHOWN = 60
"""Characters of a bad value that are repeated."""
KILOMETRES = 10.0
"""Around a place, where nothing else is said."""
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")


def read_filter(
    kind: str | None = None,
    after: str | None = None,
    before: str | None = None,
    near: str | None = None,
    within: float | None = None,
    *,
    mark: str = "",
) -> Filter:
    """The filter that is written so; None leaves a part out.

    ``after`` and ``before`` are dates like 2024, 2024-05 or 2024-05-31, of which each means its beginning; ``near`` is
    LATITUDE,LONGITUDE in degrees, ``within`` kilometres around it. ``mark`` stands before the names in errors, such as
    ``--`` for options.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"{mark}type: {unknown_choice('type', kind[:SHOWN], KINDS)}")
    first = None if after is None else read_date(f"{mark}after", after)
    last = None if before is None else read_date(f"{mark}before", before)
    if first is not None and last is not None and first >= last:
        hint = _mended(first, str(before), mark)
        raise InputError(f"{mark}after {after} {mark}before {before}: nothing lies between, {hint}")
    return Filter(kind=cast("MediaKind | None", kind), after=first, before=last, within=_read_place(near, within, mark))


def read_date(name: str, text: str) -> float:
    """The moment at which a year, a month or a day begins, in the manner of ``MediaFile.taken``."""
    match = _DATE.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        year, month, day = (int(part or 1) for part in match.groups())
        return datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(f"{name} {text[:SHOWN]!r}: expected a date like 2024, 2024-05 or 2024-05-31") from None


def _mended(first: float, before: str, mark: str) -> str:
    """What helps when ``before`` is not behind ``first``: the date that follows, if all of it was meant."""
    following = _following(before.strip())
    if following is None or read_date("before", following) <= first:
        return "exchange them"
    return f"{mark}before is where it ends: for all of {before.strip()} write {mark}before {following}"


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


def _read_place(near: str | None, within: float | None, mark: str) -> Box | None:
    """The box around LATITUDE,LONGITUDE; None without a place."""
    if near is None:
        if within is not None:
            raise InputError(f"{mark}within {within:g}: of which place? add {mark}near LATITUDE,LONGITUDE")
        return None
    try:
        latitude, longitude = (float(part) for part in near.split(","))
    except ValueError:
        expected = "expected LATITUDE,LONGITUDE in degrees, like 48.14,11.58"
        raise InputError(f"{mark}near {near[:SHOWN]!r}: {expected}") from None
    try:
        return box_around(latitude, longitude, KILOMETRES if within is None else within)
    except InputError as error:
        raise InputError(f"{mark}near {near[:SHOWN]!r}: {error}") from None

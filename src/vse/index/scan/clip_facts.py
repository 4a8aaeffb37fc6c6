"""The facts of a clip: from its container, and its first frame."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from vse.index.scan.exif import Place
from vse.index.scan.facts import Facts
from vse.inputs.clips.clip import open_clip
from vse.inputs.clips.frame_reader import FrameReader
from vse.inputs.clips.limits import VideoLimits
from vse.inputs.clips.upright import square
from vse.inputs.problem import BadMediaError

_DATES = ("com.apple.quicktime.creationdate", "creation_time", "date")
_PLACES = ("com.apple.quicktime.location.ISO6709", "location", "location-eng")
_ISO6709 = re.compile(r"([+-]\d{2}(?:\.\d+)?)([+-]\d{3}(?:\.\d+)?)")
_NO_DATE = (1904, 1970)  # the years in which the clocks of containers begin


def clip_facts(path: str | Path, limits: VideoLimits) -> Facts:
    """Size as seen, duration, time and place; the first frame is decoded, since only it says how it is turned."""
    with open_clip(path, limits) as clip, closing(FrameReader(clip)) as reader:
        frame = reader.at(0.0)
        if frame is None:
            raise BadMediaError(str(path), f"not one frame can be decoded ({reader.remark or 'there is none'})")
        width, height = reader.orientation.size(*square(frame.width, frame.height, clip.aspect))
        tags = {**clip.stream.metadata, **clip.container.metadata}
        place = place_of(tags)
        latitude, longitude = place if place is not None else (None, None)
        return Facts(width, height, taken_of(tags), latitude, longitude, clip.duration)


def taken_of(tags: Mapping[str, str]) -> float | None:
    """Local time where the file has it with its zone, else the container's, which is UTC by its definition."""
    for name in _DATES:
        try:
            found = datetime.fromisoformat(tags.get(name, "").strip())
        except ValueError:
            continue
        if found.year not in _NO_DATE or (found.month, found.day) != (1, 1):
            return found.replace(tzinfo=UTC).timestamp()
    return None


def place_of(tags: Mapping[str, str]) -> Place | None:
    """``+48.8577+002.295/``: latitude and longitude in degrees; (0, 0) is no place, as in pictures."""
    for name in _PLACES:
        match = _ISO6709.match(tags.get(name, "").strip())
        if match is not None:
            latitude, longitude = float(match[1]), float(match[2])
            if abs(latitude) <= 90 and abs(longitude) <= 180 and math.hypot(latitude, longitude) > 0:
                return latitude, longitude
    return None

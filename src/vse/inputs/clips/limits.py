"""How much reading a clip may take, from files that anybody may have made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VideoLimits:
    """``max_pixels`` of a stored frame (a little above 8K), ``max_duration`` of a clip in seconds.

    ``max_side`` is the longer side of the frames that are handed out: larger ones are reduced, since a window of 4K
    frames would take 200 MB. ``max_time`` is the time in seconds that decoding one clip may take, without the time
    in which the caller works with the frames; a clip that takes longer is not used.
    """

    max_pixels: int = 36_000_000
    max_duration: float = 86_400.0
    max_side: int = 1024
    max_time: float = 600.0

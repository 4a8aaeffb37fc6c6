"""How much a scan takes on, from files that anybody may have made."""

from __future__ import annotations

from dataclasses import dataclass, field

from vse.inputs.images import ImageLimits


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


@dataclass(frozen=True)
class ScanLimits:
    """``max_files`` of one walk, ``max_depth`` of folders in folders; captions, and bytes of a file of captions."""

    max_files: int = 10_000_000
    max_depth: int = 200
    max_captions: int = 5_000_000
    max_caption_bytes: int = 500_000_000
    image: ImageLimits = field(default_factory=ImageLimits)
    video: VideoLimits = field(default_factory=VideoLimits)

"""How much a scan takes on, from files that anybody may have made."""

from __future__ import annotations

from dataclasses import dataclass, field

from vse.inputs.clips.limits import VideoLimits
from vse.inputs.images import ImageLimits


@dataclass(frozen=True)
class ScanLimits:
    """``max_files`` of one walk, ``max_depth`` of folders in folders; captions, and bytes of a file of captions."""

    max_files: int = 10_000_000
    max_depth: int = 200
    max_captions: int = 5_000_000
    max_caption_bytes: int = 500_000_000
    image: ImageLimits = field(default_factory=ImageLimits)
    video: VideoLimits = field(default_factory=VideoLimits)

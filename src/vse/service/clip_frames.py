"""One frame of a clip, for its thumbnail."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vse.service.media import OpenFile
from vse.service.problems import ProblemError


def frame_at(opened: OpenFile, path: str, second: float, seconds: float) -> NDArray[np.uint8]:
    """The upright frame ``(H, W, 3)`` that is seen then; the last one where the clip is shorter.

    ``path`` is where it was opened. Finding it may take ``seconds``.
    """
    from vse.inputs.clips.clip import open_clip
    from vse.inputs.clips.frame_reader import FrameReader
    from vse.inputs.clips.limits import VideoLimits
    from vse.inputs.clips.upright import upright
    from vse.inputs.problem import BadMediaError

    limits = VideoLimits(max_time=seconds)
    try:
        with open_clip(reachable(opened, path), limits) as clip, closing(FrameReader(clip)) as reader:
            frame = reader.at(min(second, max(clip.duration - 0.1, 0.0)))
            if frame is None:
                raise ProblemError(404, "the clip has no frame there")
            return upright(frame, reader.orientation, clip.aspect, limits.max_side)
    except BadMediaError as error:
        raise ProblemError(404, f"the clip cannot be read ({error.reason})") from None


def reachable(opened: OpenFile, path: str) -> Path:
    """A path to exactly the file that was opened safely: a link put in its place afterwards is not followed.

    Where the system has no such paths it is ``path``.
    """
    by_number = Path(f"/proc/self/fd/{opened.stream.fileno()}")
    return by_number if by_number.exists() else Path(path)

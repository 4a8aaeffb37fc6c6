"""From a folder to media files: walking, describing, cutting clips into windows of frames. Needs no torch.

>>> from vse.index.scan import Problem, describe, walk
>>> scan = walk("photos")                                              # doctest: +SKIP
>>> described = [describe(found, "photos") for found in scan]          # doctest: +SKIP
>>> scan.problems + [file for file in described if isinstance(file, Problem)]   # doctest: +SKIP
[Problem(path='old/scan.jpg', reason='empty')]
"""

from vse.index.scan.captions import read_captions
from vse.index.scan.describe import describe
from vse.index.scan.digest import digest
from vse.index.scan.found import Found
from vse.index.scan.limits import ScanLimits
from vse.index.scan.presence import empty_folders, why_absent
from vse.index.scan.walk import Scan, walk
from vse.inputs.clips.frames import frames
from vse.inputs.clips.limits import VideoLimits
from vse.inputs.clips.window import Window
from vse.inputs.problem import BadMediaError, Problem

__all__ = [
    "BadMediaError",
    "Found",
    "Problem",
    "Scan",
    "ScanLimits",
    "VideoLimits",
    "Window",
    "describe",
    "digest",
    "empty_folders",
    "frames",
    "read_captions",
    "walk",
    "why_absent",
]

"""From a folder to media files: walk it, describe files, cut videos into windows of frames. Needs no torch.

>>> from vse.index.scan import Problem, describe, walk
>>> scan = walk("photos")                                              # doctest: +SKIP
>>> described = [describe(found, "photos") for found in scan]          # doctest: +SKIP
>>> scan.problems + [file for file in described if isinstance(file, Problem)]   # doctest: +SKIP
[Problem(path='old/scan.jpg', reason='empty')]
"""

from vse.index.scan.captions import read_captions
from vse.index.scan.describe import describe, digest
from vse.index.scan.exclude import ScanRules
from vse.index.scan.walk import Found, Scan, ScanLimits, empty_folders, walk, why_absent
from vse.inputs.files import BadMediaError, Problem
from vse.inputs.video.file import VideoLimits
from vse.inputs.video.windows import Window, frames

__all__ = [
    "BadMediaError",
    "Found",
    "Problem",
    "Scan",
    "ScanLimits",
    "ScanRules",
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

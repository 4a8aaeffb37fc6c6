"""Read the datasets that users already have on disk. Needs numpy, not torch.

>>> from vse.data import open_data
>>> data = open_data("data/f30k", "test")          # doctest: +SKIP
>>> data.images[0].shape, data.captions_of(0)[0]   # doctest: +SKIP
((36, 2048), 'A man in a blue shirt is standing on a ladder .')
"""

from vse.data.check import check_data
from vse.data.dataset import CaptionedImages, CaptionedVideos, FeatureRows, ImageFiles, ImageSet
from vse.data.features import FeatureStore, attach
from vse.data.frames import VideoFrames
from vse.data.open import LAYOUTS, Layout, detect_layout, list_splits, open_data
from vse.data.report import DataReport

__all__ = [
    "LAYOUTS",
    "CaptionedImages",
    "CaptionedVideos",
    "DataReport",
    "FeatureRows",
    "FeatureStore",
    "ImageFiles",
    "ImageSet",
    "Layout",
    "VideoFrames",
    "attach",
    "check_data",
    "detect_layout",
    "list_splits",
    "open_data",
]

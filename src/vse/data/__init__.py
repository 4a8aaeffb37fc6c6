"""Readers for the data users already have on disk. Needs numpy, not torch.

>>> from vse.data import open_data
>>> data = open_data("data/f30k", "test")          # doctest: +SKIP
>>> data.images[0].shape, data.captions_of(0)[0]   # doctest: +SKIP
((36, 2048), 'A man in a blue shirt is standing on a ladder .')
"""

from vse.data.captioned_images import CaptionedImages, FeatureRows, ImageFiles, ImageSet
from vse.data.check import check_data
from vse.data.data_report import DataReport
from vse.data.feature_store import FeatureStore, attach
from vse.data.layouts import LAYOUTS
from vse.data.open import detect_layout, list_splits, open_data
from vse.data.video_frames import VideoFrames
from vse.data.videos import CaptionedVideos

__all__ = [
    "LAYOUTS",
    "CaptionedImages",
    "CaptionedVideos",
    "DataReport",
    "FeatureRows",
    "FeatureStore",
    "ImageFiles",
    "ImageSet",
    "VideoFrames",
    "attach",
    "check_data",
    "detect_layout",
    "list_splits",
    "open_data",
]

"""The training videos of a run in one array: opening a file for every sample would take longer than the step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vse.data import CaptionedImages, VideoFrames
from vse.data.packed_frames import open_packed, write_packed
from vse.errors import InputError
from vse.progress import ProgressReporter
from vse.training.distributed import Ranks
from vse.training.run_folder import RunFolder


def packed_videos(data: CaptionedImages, folder: RunFolder, ranks: Ranks, report: ProgressReporter) -> CaptionedImages:
    """``data`` with its frames in the run's folder, packed there by the first process; images stay as they are."""
    videos = data.images
    if not isinstance(videos, VideoFrames):
        return data
    if ranks.first and open_packed(videos, folder.frames) is None:
        report.note(f"packing {int(videos.sizes.sum())} frames of {len(videos)} videos into one file")
        folder.write_frames(partial(write_packed, videos))
    ranks.share(None)  # nobody opens them before they are there
    packed = open_packed(videos, folder.frames)
    if packed is None:
        raise InputError(f"{folder.frames}: the packed frames are not those of {videos.source.place}: start again")
    return replace(data, images=packed)

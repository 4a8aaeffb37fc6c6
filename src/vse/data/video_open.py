"""Open a data set of videos, whichever layout it has."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vse.data import video_hgr, video_msrvtt, video_vatex
from vse.data.reading import OnProblem, stop
from vse.data.splits import find_split
from vse.data.video_frames import FRAME_LIMIT
from vse.data.video_sources import open_frames
from vse.data.videos import CaptionedVideos, VideoCaptions
from vse.errors import InputError, unknown_choice

StrPath = str | os.PathLike[str]
AUTO = "auto"


@dataclass(frozen=True)
class VideoLayout:
    """How one layout is recognised and read; ``protocols`` are the splits that belong together."""

    detect: Callable[[Path], bool]
    splits: Callable[[Path], tuple[str, ...]]
    read: Callable[[Path, str, OnProblem], VideoCaptions]
    protocols: tuple[tuple[str, ...], ...] = (("train", "val", "test"),)


VIDEO_LAYOUTS = {
    video_hgr.NAME: VideoLayout(video_hgr.detect, video_hgr.splits, video_hgr.read),
    video_msrvtt.NAME: VideoLayout(video_msrvtt.detect, video_msrvtt.splits, video_msrvtt.read, video_msrvtt.PROTOCOLS),
    video_vatex.NAME: VideoLayout(video_vatex.detect, video_vatex.splits, video_vatex.read, video_vatex.PROTOCOLS),
}


def open_videos(
    path: StrPath,
    split: str = "test",
    *,
    features: StrPath | None = None,
    layout: str = AUTO,
    limit: int | None = FRAME_LIMIT,
) -> CaptionedVideos:
    """One split of the videos at ``path`` with their frames.

    ``features`` is an hdf5 or npz file or a folder of arrays, one ``(frames, size)`` a video; in the layout ``hgr`` it
    may be left out, or name one of the folders in ``ordered_feature/SA``, even where a path is called so. Of a longer
    video ``limit`` frames are used, evenly spaced. Videos without frames are left out and listed in ``dropped``.
    """
    captions = read_video_captions(path, split, layout=layout)
    return captions.with_frames(open_frames(find_features(Path(path), captions, features)), limit)


def read_video_captions(
    path: StrPath, split: str = "test", *, layout: str = AUTO, on_problem: OnProblem = stop
) -> VideoCaptions:
    """One split without frames: enough for vocabularies and role graphs."""
    where = Path(path)
    known = VIDEO_LAYOUTS[find_video_layout(where, layout)]
    available = known.splits(where)
    return known.read(where, find_split(split, available, where), on_problem)


def find_video_layout(path: Path, layout: str = AUTO) -> str:
    """The name of the layout of ``path``; ``layout`` itself unless it is ``auto``."""
    if layout != AUTO and layout not in VIDEO_LAYOUTS:
        raise InputError(unknown_choice("video layout", layout, (AUTO, *VIDEO_LAYOUTS)))
    if not path.is_dir():
        raise InputError(f"{path} is no folder: expected one with the captions of videos")
    found = layout if layout != AUTO else next((name for name, one in VIDEO_LAYOUTS.items() if one.detect(path)), None)
    if found is None:
        raise InputError(
            f"{path}: no known layout of videos: expected ref_captions.json with public_split, MSR-VTT's "
            "*_videodatainfo.json or VATEX's vatex_*.json"
        )
    return found


def find_features(path: Path, captions: VideoCaptions, features: StrPath | None) -> Path:
    """The file or folder of the frames of a split; a kind that the data have is not looked for elsewhere."""
    own = captions.layout == video_hgr.NAME and features is not None and str(features) in video_hgr.feature_kinds(path)
    if features is not None and not own and Path(features).exists():
        return video_hgr.split_file(Path(features), captions.split) or Path(features)
    if captions.layout == video_hgr.NAME:
        return video_hgr.features(path, captions.split, None if features is None else str(features))
    if features is None:
        raise InputError(
            f"{path}: layout {captions.layout!r} has no frame features of its own: {video_hgr.GIVE_FEATURES}"
        )
    raise InputError(f"features {str(features)!r} do not exist: expected an hdf5 or npz file or a folder of arrays")

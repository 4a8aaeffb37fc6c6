"""Videos and the sentences that describe them, with and without frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from vse.data.captioned_images import CaptionedImages
from vse.data.video_frames import FRAME_LIMIT, VideoFrames, find_frames
from vse.data.video_sources import FrameSource


@dataclass(frozen=True, eq=False)
class VideoCaptions:
    """One split as its annotation files have it: no frames yet.

    ``owners[j]`` is the index into ``ids`` of the video that ``captions[j]`` describes. A sentence that describes
    several videos stands once for each of them. ``remarks`` say what a reader of results should know of the split.
    """

    name: str
    split: str
    layout: str
    ids: tuple[str, ...]
    captions: tuple[str, ...]
    owners: NDArray[np.int64]
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        split: str,
        layout: str,
        videos: Sequence[tuple[str, Sequence[str]]],
        remarks: tuple[str, ...] = (),
    ) -> VideoCaptions:
        """From pairs of a video and its captions."""
        owners = np.repeat(np.arange(len(videos)), [len(captions) for _, captions in videos])
        captions = tuple(caption for _, each in videos for caption in each)
        return cls(name, split, layout, tuple(video for video, _ in videos), captions, owners.astype(np.int64), remarks)

    def with_frames(self, source: FrameSource, limit: int | None = FRAME_LIMIT) -> CaptionedVideos:
        """The split with its frames; videos without any are left out with their captions, and listed."""
        frames, dropped = find_frames(source, self.ids, limit)
        left = set(frames.ids)
        kept = np.array([video in left for video in self.ids])  # (videos,)
        described = kept[self.owners]  # (captions,)
        return CaptionedVideos(
            self.name,
            self.split,
            self.layout,
            frames,
            tuple(compress(self.captions, described)),
            (np.cumsum(kept) - 1)[self.owners[described]],
            dropped=dropped,
            remarks=self.remarks,
        )


@dataclass(frozen=True, eq=False)
class CaptionedVideos(CaptionedImages):
    """A split of videos: :class:`CaptionedImages` whose images are videos.

    Everything that asks for captions, owners, ids or sizes works on both; ``images[i]`` is ``(n, C)`` with an n of its
    own for each video. A sentence that several videos share stands once for each of them, as training needs it; ranking
    makes one candidate of it (:func:`vse.evaluation.distinct_sentences`). ``dropped`` are the videos of the split that
    had no frames.
    """

    images: VideoFrames
    dropped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

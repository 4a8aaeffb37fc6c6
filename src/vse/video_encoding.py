"""Videos to vectors, as arrays of frame features or as clips: the method of every model that has vectors.

Clips are in :mod:`vse.clip_encoding`, which is loaded when one is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from vse.encoding import BadImage, Images, Towers, Vectors, encode_images
from vse.progress import ProgressReporter

if TYPE_CHECKING:
    from vse.clip_encoding import ClipEncoder


class VideoTowers(Towers, Protocol):
    """A runtime that also says how clips are seen."""

    def clip_encoder(self) -> ClipEncoder:
        """How a clip becomes a vector; a model that cannot see clips is an error when it is asked for one."""


class VideoMethods:
    """``encode_videos`` for whatever implements :class:`VideoTowers`."""

    def encode_videos(
        self: VideoTowers,
        videos: Images,
        *,
        batch_size: int = 64,
        progress: ProgressReporter | None = None,
        on_bad: Literal["report", "raise"] = "report",
        problems: list[BadImage] | None = None,
    ) -> Vectors:
        """Unit vectors ``(n, D)`` float32 of videos: arrays of frame features ``(frames, C)``, or paths of clips.

        Of an array of more than 20 frames 20 are used, evenly spaced, as when data are read.
        A model of pictures sees 20 frames of a clip, evenly spaced; its vector is the mean of theirs, brought to
        length 1. A model of frame features sees clips if it was trained on features of ``vse features``, and then
        with the same backbone. ``batch_size`` counts arrays, or the frames of a clip that are computed at once. The
        rest is as in :func:`vse.encoding.encode_images`.
        """
        from vse.clip_encoding import clip_paths, encode_clips

        paths = clip_paths(videos)
        if paths is None:
            return encode_images(
                self, videos, batch_size=batch_size, progress=progress, on_bad=on_bad, problems=problems, what="videos"
            )
        return encode_clips(
            self.clip_encoder(),
            paths,
            self.embed_size,
            batch_size=batch_size,
            progress=progress,
            on_bad=on_bad,
            problems=problems,
        )

"""Videos to vectors, as arrays of frame features or as clips: the method of every model that has vectors.

Clips are in :mod:`vse.models.encode_videos`, which is loaded when one is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.inputs.files import BadMediaError
from vse.inputs.video.windows import FRAMES, even_frames_of
from vse.models.encode import (
    BadImage,
    Images,
    Towers,
    Vectors,
    check_batch_size,
    check_choice,
    direction,
    encode_images,
    read_ahead,
    warn_of,
)
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing


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
        rest is as in :func:`vse.models.encode.encode_images`.
        """

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


Pixels = NDArray[np.float32]
NO_VECTOR = "the model gives no finite vector for it"


class ClipPixels(NamedTuple):
    """The frames of a clip as a network takes them, ``(n, 3, H, W)``, and what of the clip could not be read."""

    pixels: Pixels
    remark: str | None


class ClipEncoder(Protocol):
    """How a model makes one vector of a clip."""

    @property
    def preprocessing(self) -> ImagePreprocessing:
        """How frames are prepared."""

    @property
    def frames(self) -> int:
        """How many are taken of a clip, evenly spaced."""

    def vector(self, pixels: Pixels, batch_size: int) -> Vectors | None:
        """Frames ``(n, 3, H, W)`` to a unit vector ``(D,)``; None where there is none."""


@dataclass(frozen=True)
class PixelClips:
    """For a model of pictures: the mean of the unit vectors of the frames, brought to length 1."""

    towers: Towers
    frames: int = FRAMES

    @property
    def preprocessing(self) -> ImagePreprocessing:
        how = self.towers.preprocessing
        if how is None:
            raise InputError(
                f"this model takes features (n, {self.towers.feature_size}) and cannot see clips itself: compute them "
                "with 'vse features CLIPS --backbone NAME --into DIR', by the network it was trained with, and pass "
                "the arrays"
            )
        return how

    def vector(self, pixels: Pixels, batch_size: int) -> Vectors | None:
        starts = range(0, len(pixels), batch_size)
        return direction(np.concatenate([self.towers.embed_images(pixels[k : k + batch_size]) for k in starts]))


@dataclass(frozen=True)
class FeatureClips:
    """For a model of frame features that knows its backbone: ``features`` are what ``vse features`` would keep.

    Of more than 20 frames the model is given 20, evenly spaced, as in training.
    """

    towers: Towers
    preprocessing: ImagePreprocessing
    frames: int
    features: Callable[[Pixels, int], NDArray[np.float16] | None]

    def vector(self, pixels: Pixels, batch_size: int) -> Vectors | None:
        from vse.data.frames import even_frames

        rows = self.features(pixels, batch_size)
        if rows is None:
            return None
        used = rows[even_frames(len(rows))].astype(np.float32)
        vector = self.towers.embed_images(used[None], np.array([len(used)]))[0]
        return vector if np.isfinite(vector).all() else None


def read_clip(path: str | os.PathLike[str], how: ImagePreprocessing, frames: int) -> ClipPixels:
    """Evenly spaced frames of a clip, prepared for a network; a clip without any raises :class:`BadMediaError`."""
    from vse.inputs.preprocessing import prepare

    found = even_frames_of(Path(path), frames)
    return ClipPixels(np.stack([prepare(frame, how) for frame in found.frames]), found.remark)


def clip_paths(videos: Any) -> Sequence[str | os.PathLike[str]] | None:
    """The paths, where ``videos`` is one or some of them; None where they are arrays."""
    if isinstance(videos, (str, os.PathLike)):
        return [videos]
    given = getattr(videos, "paths", videos)
    if not isinstance(given, (list, tuple)):
        return None
    are_paths = [isinstance(video, (str, os.PathLike)) for video in given]
    if any(are_paths) and not all(are_paths):
        place = are_paths.index(not are_paths[0])
        raise InputError(f"videos: paths and arrays are mixed from number {place} on: encode each kind in its own call")
    return given if any(are_paths) else None


def encode_clips(
    encoder: ClipEncoder,
    paths: Sequence[str | os.PathLike[str]],
    size: int,
    *,
    batch_size: int,
    progress: ProgressReporter | None,
    on_bad: Literal["report", "raise"],
    problems: list[BadImage] | None,
) -> Vectors:
    """Unit vectors ``(n, size)`` of clips, ``batch_size`` frames at a time; the next clip is decoded meanwhile.

    Bad clips are treated as bad pictures are in :func:`vse.models.encode.encode_images`. A clip that can be read in
    part is used, with a note to ``progress``.
    """
    check_batch_size(batch_size)
    check_choice("on_bad", on_bad, ("report", "raise"))
    how, frames = encoder.preprocessing, encoder.frames
    report = progress or SilentProgress()
    out = np.full((len(paths), size), np.nan, dtype=np.float32)
    found: list[BadImage] = [] if problems is None else problems

    def read(index: int) -> ClipPixels | BadMediaError:
        try:
            return read_clip(paths[index], how, frames)
        except BadMediaError as error:
            return error

    report.start(len(paths), "videos")
    for index, (clip,) in read_ahead(read, len(paths), 1):
        name = str(paths[index])
        if isinstance(clip, ClipPixels):
            vector = encoder.vector(clip.pixels, batch_size)
            if clip.remark is not None:
                report.note(f"{name}: {clip.remark}")
            problem = BadMediaError(name, NO_VECTOR) if vector is None else None
            if vector is not None:
                out[index] = vector
        else:
            problem = clip
        if problem is not None:
            if on_bad == "raise":
                raise problem
            found.append(BadImage(index, name, problem.reason))
        report.advance()
    report.finish()
    if problems is None and found:
        warn_of(found, "videos")
    return out

"""Encode videos with any embedding model: video files, or arrays of frame features."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.inputs.files import BadMediaError
from vse.inputs.video.windows import FRAMES
from vse.models.encode import BadImage, check_batch_size, check_choice, direction, read_ahead, warn_of
from vse.models.protocols import Towers, Vectors
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing

Pixels = NDArray[np.float32]
NO_VECTOR = "the model returns no finite embedding for it"


class VideoPixels(NamedTuple):
    """Preprocessed frames of a video ``(n, 3, H, W)``, and a remark about what could not be read."""

    pixels: Pixels
    remark: str | None


class VideoEmbedder(Protocol):
    """How a model embeds a video file."""

    @property
    def preprocessing(self) -> ImagePreprocessing:
        """How frames are prepared."""

    @property
    def frames(self) -> int:
        """How many evenly spaced frames are taken."""

    def embed(self, pixels: Pixels, batch_size: int) -> Vectors | None:
        """Return the unit vector ``(D,)`` of frames ``(n, 3, H, W)``; None if there is none."""


@dataclass(frozen=True)
class PixelVideos:
    """For a model of images: the normalized mean of the frames' embeddings."""

    towers: Towers
    frames: int = FRAMES

    @property
    def preprocessing(self) -> ImagePreprocessing:
        how = self.towers.preprocessing
        if how is None:
            raise InputError(
                f"this model takes features (n, {self.towers.feature_size}) and cannot read videos: compute them "
                "with 'vse features VIDEOS --backbone NAME --into DIR', with the backbone it was trained with, and "
                "pass the arrays"
            )
        return how

    def embed(self, pixels: Pixels, batch_size: int) -> Vectors | None:
        starts = range(0, len(pixels), batch_size)
        return direction(np.concatenate([self.towers.embed_images(pixels[k : k + batch_size]) for k in starts]))


@dataclass(frozen=True)
class FeatureVideos:
    """For a model of frame features that knows its backbone; ``features`` computes what ``vse features`` stores.

    Of more than 20 frames the model is given 20, evenly spaced, as in training.
    """

    towers: Towers
    preprocessing: ImagePreprocessing
    frames: int
    features: Callable[[Pixels, int], NDArray[np.float16] | None]

    def embed(self, pixels: Pixels, batch_size: int) -> Vectors | None:
        from vse.data.frames import even_frames

        rows = self.features(pixels, batch_size)
        if rows is None:
            return None
        used = rows[even_frames(len(rows))].astype(np.float32)
        vector = self.towers.embed_images(used[None], np.array([len(used)]))[0]
        return vector if np.isfinite(vector).all() else None


def read_video(path: str | os.PathLike[str], how: ImagePreprocessing, frames: int) -> VideoPixels:
    """Return evenly spaced, preprocessed frames of a video; raise :class:`BadMediaError` if there are none."""
    from vse.inputs.decoding import decode_video

    return VideoPixels(*decode_video(path, how, frames))


def video_paths(videos: Any) -> Sequence[str | os.PathLike[str]] | None:
    """Return the paths if ``videos`` is one or several of them, None if they are arrays."""
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


def encode_video_files(
    embedder: VideoEmbedder,
    paths: Sequence[str | os.PathLike[str]],
    size: int,
    *,
    batch_size: int,
    progress: ProgressReporter | None,
    on_bad: Literal["report", "raise"],
    problems: list[BadImage] | None,
) -> Vectors:
    """Return the embeddings ``(n, size)`` of video files; the next video is decoded while one is computed.

    Bad videos are treated as :func:`vse.models.encode.encode_images` treats bad images. A video that is readable in
    part is used, with a note to ``progress``.
    """
    check_batch_size(batch_size)
    check_choice("on_bad", on_bad, ("report", "raise"))
    how, frames = embedder.preprocessing, embedder.frames
    report = progress or SilentProgress()
    out = np.full((len(paths), size), np.nan, dtype=np.float32)
    found: list[BadImage] = [] if problems is None else problems

    def read(index: int) -> VideoPixels | BadMediaError:
        try:
            return read_video(paths[index], how, frames)
        except BadMediaError as error:
            return error

    report.start(len(paths), "videos")
    for index, (video,) in read_ahead(read, len(paths), 1):
        name = str(paths[index])
        if isinstance(video, VideoPixels):
            vector = embedder.embed(video.pixels, batch_size)
            if video.remark is not None:
                report.note(f"{name}: {video.remark}")
            problem = BadMediaError(name, NO_VECTOR) if vector is None else None
            if vector is not None:
                out[index] = vector
        else:
            problem = video
        if problem is not None:
            if on_bad == "raise":
                raise problem
            found.append(BadImage(index, name, problem.reason))
        report.advance()
    report.finish()
    if problems is None and found:
        warn_of(found, "videos")
    return out

"""The frames behind one moment of a clip, and what each of them adds to its score."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vse.encoding import SHORTEST
from vse.errors import InputError
from vse.index.collection import Vectors
from vse.index.indexing.parts import FRAMES
from vse.index.scan import VideoLimits
from vse.inputs.clips.clip import open_clip
from vse.inputs.clips.frame_reader import FrameReader
from vse.inputs.clips.frames import WINDOW_SECONDS, WINDOWS, read_window, spans
from vse.inputs.clips.window import Window

if TYPE_CHECKING:
    from vse.index.query import Model

SAME_START = 1e-3
"""Seconds."""


def moment_frames(path: str | Path, start: float, limits: VideoLimits | None = None) -> Window:
    """The frames that indexing took from the window that begins at ``start``; what lies before it is jumped over."""
    limits = limits or VideoLimits()
    with open_clip(path, limits) as clip, closing(FrameReader(clip)) as reader:
        span = min(spans(clip.duration, WINDOW_SECONDS, WINDOWS), key=lambda span: abs(span[0] - start))
        if abs(span[0] - start) > SAME_START:
            raise InputError(f"no moment of the clip begins at {start:.3f} s: index it again with 'vse index'")
        window, _ = read_window(reader, span, FRAMES, clip.aspect, limits.max_side)
    if window is None:
        raise InputError(f"no frame of the clip can be decoded at {start:.3f} s: index it again with 'vse index'")
    return window


def frame_evidence(model: Model, window: Window, vector: Vectors) -> NDArray[np.float32]:
    """What every frame of a moment adds to its score for the query ``vector (D,)``: ``(F,)``."""
    if model.preprocessing is None:
        raise InputError("this model takes sets of features, not pictures: it has no vectors of frames")
    if vector.shape != (model.embed_size,):
        raise InputError(f"query vector of shape {vector.shape}, expected ({model.embed_size},): that of this model")
    from vse.inputs.preprocessing import load_pixels

    pixels = np.stack([load_pixels(picture, model.preprocessing) for picture in window.frames])
    return shares(model.embed_images(pixels), vector)


def shares(frames: Vectors, vector: Vectors) -> NDArray[np.float32]:
    """Of unit vectors v_f ``(F, D)`` whose mean m, brought to length 1, is the moment: ``u · v_f / (F ‖m‖)``, ``(F,)``.

    They add up to the score ``u · m / ‖m‖`` with the query u. A frame may count against the query.
    """
    wide = frames.astype(np.float64)
    length = float(np.linalg.norm(wide.mean(axis=0)))
    if not length > SHORTEST:  # also NaN
        raise InputError(f"the vectors of {len(frames)} frames cancel each other: they have no common direction")
    return (wide @ vector.astype(np.float64) / (len(frames) * length)).astype(np.float32)

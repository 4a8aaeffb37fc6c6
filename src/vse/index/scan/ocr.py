"""Read the text in images with RapidOCR, of the extra ``ocr``: its models come with the package."""

from __future__ import annotations

from typing import Any

import numpy as np

from vse._util.prefetch import available_cores
from vse.errors import require
from vse.index.scan.tags import clean

MAX_SIDE = 1280
"""Pixels of the longer side; larger images are reduced."""
MAX_TEXT = 10_000
"""Characters of one image that are kept."""
MIN_SCORE = 0.7
"""Smallest score of a line; RapidOCR finds letters in fences and leaves."""


def check_ocr() -> None:
    """Raise :class:`~vse.errors.MissingDependencyError`, with how to install it, if RapidOCR is missing."""
    require("rapidocr", "ocr", "reading text in images (--ocr)")


class TextReader:
    """Recognises text; not thread-safe, it uses all cores for one image.

    Example:
        >>> TextReader().read(decode_image("sign.jpg", longest=MAX_SIDE))  # doctest: +SKIP
        'Happy Birthday'
    """

    def __init__(self) -> None:
        rapidocr = require("rapidocr", "ocr", "reading text in images (--ocr)")
        threads = available_cores()
        self._engine: Any = rapidocr.RapidOCR(
            params={
                "Global.log_level": "critical",
                "Global.max_side_len": MAX_SIDE,
                "EngineConfig.onnxruntime.intra_op_num_threads": threads,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
        )

    def read(self, pixels: np.ndarray) -> str:
        """Return the text of an image (H, W, 3) in reading order, "" if there is none."""
        try:
            found = self._engine(np.ascontiguousarray(pixels[:, :, ::-1]))  # BGR
        except Exception:  # noqa: BLE001 - one odd image must not end the run
            return ""
        lines = zip(found.txts or (), found.scores or (), strict=False)
        return clean(" ".join(str(line) for line, score in lines if score >= MIN_SCORE), MAX_TEXT) or ""

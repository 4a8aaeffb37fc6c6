"""A moment of a clip as a picture: its frames in a row, and below each a bar for what it adds to the score."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.index.evidence import AGAINST, FOR
from vse.index.results import clock
from vse.inputs.clips.window import Window

HEIGHT, NARROWEST, WIDEST = 120, 56, 240
"""Of a column, in pixels; a frame that would be wider is reduced, and the text needs some room."""
BAR, LINE, GAP = 60, 14, 4
"""Height of the longest bar, height of a line of text, space between frames."""
PAPER, INK, RULE = (255, 255, 255), (64, 64, 64), (180, 180, 180)


def timeline(window: Window, shares: NDArray[Any]) -> NDArray[np.uint8]:
    """``(H, W, 3)``: a column for each frame with the frame, its second, its share ``(F,)`` and a bar.

    Bars above the line are red and speak for the query, bars below are blue and against it. The largest share has the
    longest bar, so bars of one picture can be compared and those of two cannot.
    """
    from PIL import Image, ImageDraw

    pictures = [_reduced(picture) for picture in window.frames]
    width = max(NARROWEST, *(picture.width for picture in pictures)) + GAP
    longest = float(np.abs(shares).max()) or 1.0
    lengths = np.round(BAR * shares / longest).astype(int)
    above, below = max(lengths.max(), 0), max(-lengths.min(), 0)
    top = HEIGHT + GAP
    ground = int(top + 2 * LINE + GAP + above)
    sheet = Image.new("RGB", (width * len(pictures) + GAP, int(ground + below + GAP + 1)), PAPER)
    pen = ImageDraw.Draw(sheet)
    for column, (picture, seconds, share) in enumerate(zip(pictures, window.times, shares.tolist(), strict=True)):
        left = GAP + column * width
        middle = left + (width - GAP) // 2
        sheet.paste(picture, (middle - picture.width // 2, GAP + (HEIGHT - picture.height) // 2))
        pen.text((middle, top + LINE), clock(seconds), INK, anchor="ms")
        pen.text((middle, top + 2 * LINE), f"{share:+.3f}", INK, anchor="ms")
        end = ground - int(lengths[column])
        if end != ground:
            colour = tuple((FOR if share > 0 else AGAINST).astype(int).tolist())
            pen.rectangle((left, min(end, ground), left + width - 2 * GAP, max(end, ground)), colour)
    pen.line((0, ground, sheet.width, ground), RULE)
    return np.asarray(sheet)


def _reduced(picture: NDArray[np.uint8]) -> Any:
    from PIL import Image

    height, width = picture.shape[:2]
    scale = min(HEIGHT / height, WIDEST / width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR)

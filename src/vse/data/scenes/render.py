"""Draw a scene, and a contact sheet of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from vse.data.scenes.keyed import KeyedRandom
from vse.data.scenes.sample import caption_scene, sample_scene
from vse.data.scenes.scene import Background, Kind, Scene, Shape, Split
from vse.errors import InputError

Outline: TypeAlias = tuple[tuple[float, float], ...]
SMALLEST, LARGEST = 32, 2048
OVERSAMPLING = 3
RING_WIDTH = 0.42
CLOUD_CELLS = 7


def render(scene: Scene, size: int = 128) -> Image.Image:
    """Return the scene as an RGB image of ``size`` × ``size`` pixels with smooth edges.

    It is drawn three times as large and downsampled. The same scene gives the same pixels on every run; another version
    of Pillow or numpy may change an edge slightly.
    """
    check_size(size)
    scale = size * OVERSAMPLING
    canvas = _background(scene.background, size).resize((scale, scale), Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(canvas)
    for stroke in scene.clutter:
        ends = [(x * scale, y * scale) for x, y in (stroke.start, stroke.end)]
        draw.line(ends, fill=stroke.rgb, width=max(1, round(stroke.width * scale)))
    for shape in scene.shapes:
        _draw_shape(draw, shape, scale)
    return canvas.reduce(OVERSAMPLING)


def check_size(size: int) -> int:
    """Return ``size`` if an image can have it."""
    if not isinstance(size, int) or isinstance(size, bool) or not SMALLEST <= size <= LARGEST:
        raise InputError(f"size must be an integer number of pixels from {SMALLEST} to {LARGEST}, got {size!r}")
    return size


def _draw_shape(draw: ImageDraw.ImageDraw, shape: Shape, scale: int) -> None:
    x, y, radius = shape.x * scale, shape.y * scale, shape.radius * scale
    if shape.kind in {"circle", "ring"}:
        box = (x - radius, y - radius, x + radius, y + radius)
        if shape.kind == "circle":
            draw.ellipse(box, fill=shape.rgb)
        else:
            draw.ellipse(box, outline=shape.rgb, width=round(RING_WIDTH * radius))
        return
    angle = math.radians(shape.turn)
    cos, sin = radius * math.cos(angle), radius * math.sin(angle)
    draw.polygon([(x + cos * u - sin * v, y + sin * u + cos * v) for u, v in OUTLINES[shape.kind]], fill=shape.rgb)


def _background(background: Background, size: int) -> Image.Image:
    mix = _texture(background, size)[..., None]  # (size, size, 1) in [0, 1]
    dark, light = (np.asarray(tone, dtype=np.float32) for tone in background.tones)
    pixels = np.rint(dark + (light - dark) * mix)  # (size, size, 3)
    return Image.fromarray(pixels.astype(np.uint8))


def _texture(background: Background, size: int) -> NDArray[np.float32]:
    """Return the share of the second tone in each pixel, ``(size, size)``."""
    if background.texture == "plain":
        return np.full((size, size), 0.5, dtype=np.float32)
    if background.texture == "clouds":
        rng = KeyedRandom(background.seed)
        knots = np.array([rng.uniform() for _ in range(CLOUD_CELLS**2)], dtype=np.float32)
        coarse = Image.fromarray(knots.reshape(CLOUD_CELLS, CLOUD_CELLS))
        return np.clip(np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC)), 0, 1)
    angle = math.radians(background.angle)
    steps = (np.arange(size, dtype=np.float32) + 0.5) / size - 0.5
    along: NDArray[Any] = math.cos(angle) * steps[None, :] + math.sin(angle) * steps[:, None]
    if background.texture == "gradient":
        return np.clip(along / math.sqrt(2) + 0.5, 0, 1)
    turns = 2 * math.pi * background.waves
    waves: NDArray[Any] = np.sin(turns * along)
    if background.texture == "checks":
        across: NDArray[Any] = -math.sin(angle) * steps[None, :] + math.cos(angle) * steps[:, None]
        waves = waves * np.sin(turns * across)
    return np.clip(0.5 + 2 * waves, 0, 1)  # steep but without jagged edges


def _polygon(corners: int, inner: float | None = None) -> Outline:
    """Return a regular polygon with a corner on top, or a star whose inner corners are at ``inner``."""
    radii = [1.0] if inner is None else [1.0, inner]
    number = corners * len(radii)
    return tuple(
        (
            radii[i % len(radii)] * math.sin(2 * math.pi * i / number),
            -radii[i % len(radii)] * math.cos(2 * math.pi * i / number),
        )
        for i in range(number)
    )


def _square() -> Outline:
    side = math.sqrt(0.5)
    return ((-side, -side), (side, -side), (side, side), (-side, side))


def _cross(arm: float = 0.3) -> Outline:
    reach = math.sqrt(1 - arm**2)
    quarter = ((arm, -reach), (arm, -arm), (reach, -arm))
    points: list[tuple[float, float]] = []
    for _ in range(4):
        points += quarter
        quarter = tuple((-v, u) for u, v in quarter)  # type: ignore[assignment]  # still three points
    return tuple(points)


def _heart(corners: int = 40) -> Outline:
    """Return the curve (16 sin³ t, 13 cos t − 5 cos 2t − 2 cos 3t − cos 4t), fitted into the unit circle."""
    points = []
    for i in range(corners):
        t = 2 * math.pi * i / corners
        v = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((16 * math.sin(t) ** 3, -v - 1))
    reach = max(math.hypot(u, v) for u, v in points)
    return tuple((u / reach, v / reach) for u, v in points)


OUTLINES: dict[Kind, Outline] = {
    "square": _square(),
    "triangle": _polygon(3),
    "star": _polygon(5, inner=0.42),
    "cross": _cross(),
    "diamond": ((0.0, -1.0), (0.62, 0.0), (0.0, 1.0), (-0.62, 0.0)),
    "heart": _heart(),
}
"""Corners within the unit circle, y down; circles and rings are not polygons."""


INK = "#1f2a44"
PAPER = "#ffffff"
MARGIN = 16
FONT_SIZE = 15
LINE = 20


def contact_sheet(
    seed: int = 0,
    split: Split = "test",
    indices: Sequence[int] = range(12),
    *,
    columns: int = 4,
    size: int = 256,
    captions: int = 2,
) -> Image.Image:
    """Return scenes in rows of ``columns``, each with its first ``captions`` captions; scenes 2f and 2f + 1 are a pair.

    ``contact_sheet().save("scenes.png")`` is the image in the documentation.
    """
    for name, value in (("columns", columns), ("captions", captions), ("number of indices", len(indices))):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be an integer of at least 1, got {value!r}")
    font = ImageFont.load_default(FONT_SIZE)
    tiles = []
    for index in indices:
        scene = sample_scene(seed, split, index)
        wrapped = [_wrap(text, font, size) for text in caption_scene(scene, seed, split, index)[:captions]]
        tiles.append((render(scene, size), wrapped))
    tallest = max(sum(len(lines) for lines in texts) for _, texts in tiles)
    width, height = size + MARGIN, size + LINE * tallest + 6 * captions + 2 * MARGIN
    rows = -(-len(tiles) // columns)
    sheet = Image.new("RGB", (columns * width + MARGIN, rows * height + MARGIN), PAPER)
    draw = ImageDraw.Draw(sheet)
    for number, (picture, texts) in enumerate(tiles):
        row, column = divmod(number, columns)
        x, y = MARGIN + column * width, MARGIN + row * height
        sheet.paste(picture, (x, y))
        y += size + 6
        for lines in texts:
            for line in lines:
                draw.text((x, y), line, fill=INK, font=font)
                y += LINE
            y += 6
    return sheet


def _wrap(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> list[str]:
    """Return the text in lines of at most ``width`` pixels; further lines are indented."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines[-1].strip() else f"{lines[-1]}{word}"
        if font.getlength(longer) > width and lines[-1].strip():
            lines.append(f"   {word}")
        else:
            lines[-1] = longer
    return lines
